"""From where volumes are within reach, and why pods wait for them, in kube-scheduler's words."""

import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from hbox_common.events import JobVerdict
from hbox_common.model import Match, MatchOperator, NodeTerm, VolumeDemand
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.views import PodView
from hbox_jobs.core.volumes import Binding, ClaimView, Volumes, VolumeUse

from .job_world import group, pod

ZONE_A = (NodeTerm((Match("zone", MatchOperator.IN, ("a",)),)),)
ZONE_B = (NodeTerm((Match("zone", MatchOperator.IN, ("b",)),)),)

NONE_FITS = 'no node has available persistent volumes of StorageClass late to bind persistentvolumeclaim "data"'
IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"

WAITING = [
    pytest.param(None, 'persistentvolumeclaim "data" not found', id="missing"),
    pytest.param(ClaimView(), IMMEDIATE, id="no class, to be bound by hand"),
    pytest.param(ClaimView(storage_class="now"), IMMEDIATE, id="provisioned at once"),
    pytest.param(
        ClaimView(storage_class="late", demand=VolumeDemand(1)), NONE_FITS, id="no volume of a class without provisioner"
    ),
    pytest.param(ClaimView(storage_class="late", volume="v"), IMMEDIATE, id="a volume is named, not bound yet"),
    pytest.param(
        ClaimView(storage_class="none"),
        'storageclass.storage.k8s.io "none" not found, which persistentvolumeclaim "data" names',
        id="no such class",
    ),
    pytest.param(
        ClaimView(volume="v", bound=True, deleting=True), 'persistentvolumeclaim "data" is being deleted', id="deleting"
    ),
    pytest.param(
        ClaimView(volume="x", bound=True),
        'persistentvolumeclaim "data" bound to non-existent persistentvolume "x"',
        id="no such volume",
    ),
    pytest.param(
        ClaimView(volume="v", bound=True, lost=True),
        'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
        id="lost",
    ),
    pytest.param(ClaimView(volume="v", bound=True), "", id="bound"),
]


@pytest.fixture
def volumes() -> Volumes:
    volumes = Volumes()
    volumes.storage_class("now", Binding.IMMEDIATE)
    volumes.storage_class("late", Binding.STATIC)
    volumes.volume("v", ())
    volumes.volume("a", (ZONE_A,))
    volumes.volume("b", (ZONE_B,))
    return volumes


@pytest.mark.parametrize(("claim", "why"), WAITING)
def test_a_pod_waits_for_a_claim_with_the_reason_that_kube_scheduler_gives(
    volumes: Volumes, claim: ClaimView | None, why: str
) -> None:
    volumes.claim("ml/data", claim)
    assert volumes.needs("ml", "p", "uid-p", [VolumeUse("data")]) == ((), why)


def test_a_claim_that_is_provisioned_for_a_node_keeps_its_pod_from_none_until_one_is_selected(volumes: Volumes) -> None:
    volumes.storage_class("placed", Binding.PLACED)
    volumes.claim("ml/data", ClaimView(storage_class="placed"))
    uses = [VolumeUse("data")]
    assert volumes.needs("ml", "p", "u", uses) == ((), "")
    assert volumes.unselected("ml", uses) == ["data"]
    volumes.claim("ml/data", ClaimView(storage_class="placed", selected="n1"))
    only = (NodeTerm(fields=(Match("metadata.name", MatchOperator.IN, ("n1",)),)),)
    assert volumes.needs("ml", "another", "u2", uses) == ((only,), "")
    assert volumes.unselected("ml", uses) == []


def test_claim_that_waits_for_its_first_consumer_is_bound_before_its_pod(volumes: Volumes) -> None:
    volumes.storage_class("placed", Binding.PLACED)
    volumes.claim("ml/data", ClaimView(storage_class="placed"))
    volumes.claim("ml/old", ClaimView(volume="v", bound=True))
    uses = [VolumeUse("data"), VolumeUse("old"), VolumeUse("data")]
    assert volumes.unbound_claims("ml", uses) == ("data",)
    assert volumes.provisioning_text("ml", ["data"]) == ""
    volumes.claim("ml/data", ClaimView(storage_class="placed", selected="n1"))
    assert volumes.provisioning_text("ml", ["data"]) == 'persistentvolumeclaim "data" waits for its volume on node n1'
    volumes.claim("ml/data", ClaimView(storage_class="placed", volume="v", bound=True))
    assert volumes.unbound_claims("ml", uses) == ()


def test_claim_that_is_deleted_and_created_again_has_no_rejected_nodes(volumes: Volumes) -> None:
    """After a relist the watch shows both changes as one."""
    volumes.storage_class("placed", Binding.PLACED)
    volumes.claim("ml/data", ClaimView(storage_class="placed", selected="n1", uid="1"))
    volumes.rejections.add("ml/data", "n2", 0.0)
    created_again = ClaimView(storage_class="placed", uid="2")
    assert volumes.rejected("ml/data", created_again) == ""
    volumes.claim("ml/data", created_again)
    assert volumes.needs("ml", "p", "u", [VolumeUse("data")]) == ((), "")


def test_node_that_a_provisioner_rejects_is_not_tried_for_a_while(volumes: Volumes) -> None:
    volumes.storage_class("placed", Binding.PLACED)
    waits, has_node = ClaimView(storage_class="placed"), ClaimView(storage_class="placed", selected="n1")
    uses, rejections = [VolumeUse("data")], volumes.rejections

    def reject(now: float) -> float:
        volumes.claim("ml/data", has_node)
        assert volumes.rejected("ml/data", has_node) == ""
        assert volumes.rejected("ml/data", ClaimView(storage_class="placed", selected="n1", volume="v")) == ""
        assert volumes.rejected("ml/data", waits) == "n1"
        wait_s = rejections.add("ml/data", "n1", now)
        volumes.claim("ml/data", waits)
        return wait_s

    assert reject(0.0) == 10.0
    why = 'no volume was made for persistentvolumeclaim "data" on n1, to be tried again later'
    assert volumes.provisioning_text("ml", ["data"]) == why
    others = (NodeTerm(fields=(Match("metadata.name", MatchOperator.NOT_IN, ("n1",)),)),)
    assert volumes.needs("ml", "p", "u", uses) == ((others,), "")
    assert (rejections.next_due(), rejections.expire(9.9), rejections.expire(10.0)) == (10.0, [], ["ml/data"])
    assert volumes.needs("ml", "p", "u", uses) == ((), "")
    assert reject(10.0) == 20.0
    volumes.claim("ml/data", ClaimView(storage_class="placed", volume="v", bound=True))
    assert (rejections.nodes("ml/data"), rejections.expire(30.0), rejections.next_due()) == ((), [], None)


def test_a_volume_that_is_made_late_is_reached_from_where_its_class_allows_it(volumes: Volumes) -> None:
    assert volumes.storage_class("zonal", Binding.PLACED, (ZONE_A,)) == []
    volumes.claim("ml/data", ClaimView(storage_class="zonal"))
    uses = [VolumeUse("data")]
    assert volumes.needs("ml", "p", "u", uses) == ((ZONE_A,), "")
    assert volumes.storage_class("zonal", Binding.PLACED, (ZONE_B,)) == ["ml/data"]
    volumes.claim("ml/data", ClaimView(storage_class="zonal", selected="n1"))
    only = (NodeTerm(fields=(Match("metadata.name", MatchOperator.IN, ("n1",)),)),)
    assert volumes.needs("ml", "p", "u", uses) == ((only, ZONE_B), "")


def test_what_no_binding_can_help_is_said_before_what_a_binding_would(volumes: Volumes) -> None:
    volumes.claim("ml/one", ClaimView())
    assert volumes.needs("ml", "p", "u", [VolumeUse("one"), VolumeUse("two")])[1] == 'persistentvolumeclaim "two" not found'


def test_an_ephemeral_volume_has_to_be_of_this_pod(volumes: Volumes) -> None:
    use = [VolumeUse("p-scratch", own=True)]
    assert volumes.needs("ml", "p", "uid-p", use)[1] == (
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'
    )
    volumes.claim("ml/p-scratch", ClaimView(volume="v", bound=True, owner="another"))
    assert volumes.needs("ml", "p", "uid-p", use)[1] == "PVC ml/p-scratch was not created for pod ml/p (pod is not owner)"
    volumes.claim("ml/p-scratch", ClaimView(volume="v", bound=True, owner="uid-p"))
    assert volumes.needs("ml", "p", "uid-p", use) == ((), "")


def test_all_volumes_have_to_be_within_reach_and_those_reached_from_everywhere_do_not_matter(volumes: Volumes) -> None:
    for claim, volume in (("one", "a"), ("two", "b"), ("three", "v")):
        volumes.claim(f"ml/{claim}", ClaimView(volume=volume, bound=True))
    uses = [VolumeUse("one"), VolumeUse("two"), VolumeUse("three")]
    assert volumes.needs("ml", "p", "u", uses) == ((ZONE_A, ZONE_B), "")


def test_a_change_names_the_claims_that_it_touches_and_no_change_names_none(volumes: Volumes) -> None:
    bound = ClaimView(volume="a", bound=True)
    assert volumes.claim("ml/one", bound) == ["ml/one"]
    assert volumes.claim("ml/one", bound) == []
    assert volumes.volume("a", (ZONE_A,)) == []
    assert volumes.volume("a", (ZONE_B,)) == ["ml/one"]
    assert volumes.volume("a", (), gone=True) == ["ml/one"]
    assert volumes.volume("a", (), gone=True) == []
    volumes.claim("ml/two", ClaimView(storage_class="late"))
    assert volumes.storage_class("late", Binding.STATIC) == []
    assert volumes.storage_class("late", None) == ["ml/two"]
    assert volumes.claim("ml/two", None) == ["ml/two"]
    assert volumes.storage_class("late", Binding.STATIC) == []


def test_claims_and_volumes_that_are_gone_leave_nothing_behind(volumes: Volumes) -> None:
    """Each pod with an ephemeral volume has a claim and a volume of names that never come again."""

    def a_pods_life(number: int) -> None:
        volumes.claim(f"ml/{number}", ClaimView(storage_class=f"now-{number}"))
        volumes.volume(f"pvc-{number}", (ZONE_A,))
        volumes.claim(f"ml/{number}", ClaimView(volume=f"pvc-{number}", bound=True, storage_class=f"now-{number}"))
        volumes.claim(f"ml/{number}", None)
        volumes.volume(f"pvc-{number}", (), gone=True)

    tracemalloc.start()
    try:
        a_pods_life(0)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1, 2_000):
            a_pods_life(number)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20 * 2_000, "bytes; an empty set alone has 200"


def using(name: str, *claims: str, **fields: Any) -> Any:
    return pod(name, volumes=tuple(VolumeUse(claim) for claim in claims), **fields)


def test_a_job_is_announced_anew_when_its_claim_is_bound_and_only_that_job() -> None:
    jobs = Jobs()
    jobs.pod(using("a", "data"), 0.0)
    jobs.pod(using("b", "other"), 0.0)
    (first, _) = jobs.take(1.0, 1e9).pending
    assert first.problem == 'VolumesNotReady: pod a: persistentvolumeclaim "data" not found'
    jobs.volumes.volume("v", (ZONE_A,))
    jobs.volumes_changed(jobs.volumes.claim("ml/data", ClaimView(volume="v", bound=True)), 2.0)
    (again,) = jobs.take(2.0, 1e9).pending
    assert (again.id, again.problem, again.tasks[0].volumes) == ("uid-a", "", (ZONE_A,))
    jobs.volumes_changed(jobs.volumes.volume("v", (ZONE_B,)), 3.0)
    (moved,) = jobs.take(3.0, 1e9).pending
    assert moved.tasks[0].volumes == (ZONE_B,)
    assert moved.revision > again.revision > first.revision


def test_reason_of_a_job_names_the_volume_that_is_made() -> None:
    jobs = Jobs()
    jobs.volumes.storage_class("placed", Binding.PLACED)
    jobs.volumes.claim("ml/data", ClaimView(storage_class="placed"))
    jobs.pod(using("a", "data"), 0.0)
    (job,) = jobs.take(1.0, 1e9).pending
    record = jobs.known(job.id)
    assert record is not None
    assert (job.problem, job.tasks[0].pods[0].volume_claims, record.reason) == ("", ("data",), "")
    jobs.volumes_changed(jobs.volumes.claim("ml/data", ClaimView(storage_class="placed", selected="n1")), 2.0)
    (job,) = jobs.take(2.0, 1e9).pending
    assert (job.problem, record.reason) == ("", 'persistentvolumeclaim "data" waits for its volume on node n1')
    record.verdict = JobVerdict(job=job.id, message="0/1 nodes")
    assert record.reason == 'persistentvolumeclaim "data" waits for its volume on node n1; 0/1 nodes'


def test_a_pod_that_is_gone_or_has_its_node_is_not_looked_at_when_its_claim_changes() -> None:
    jobs = Jobs()
    jobs.pod(using("a", "data"), 0.0)
    jobs.pod(using("b", "data", node="n"), 0.0)
    jobs.pod_gone(using("a").uid, 0.0)
    jobs.take(10.0, 1e9)
    jobs.volumes_changed(["ml/data"], 20.0)
    assert jobs.next_due() is None


def test_members_of_equal_shape_whose_volumes_are_elsewhere_are_tasks_of_their_own() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=3), 0.0)
    for name, volume, reach in (("a", "va", ZONE_A), ("b", "vb", ZONE_B), ("c", "vc", ZONE_A)):
        jobs.volumes.volume(volume, (reach,))
        jobs.volumes.claim(f"ml/data-{name}", ClaimView(volume=volume, bound=True))
        jobs.pod(using(name, f"data-{name}", group="g"), 0.0)
    (job,) = jobs.take(1.0, 1e9).pending
    assert [(task.volumes, [p.name for p in task.pods]) for task in job.tasks] == [((ZONE_A,), ["a", "c"]), ((ZONE_B,), ["b"])]
    assert job.problem == ""


def test_claim_of_mode_read_write_once_pod_is_used_by_one_pod_at_a_time() -> None:
    jobs = Jobs()
    jobs.volumes.volume("v", ())
    jobs.volumes.claim("ml/data", ClaimView(volume="v", bound=True, single_pod=True))
    for name, made in (("first", 100.0), ("second", 101.0)):
        jobs.pod(pod(name, created_at=made, volumes=(VolumeUse("data"),)), 0.0)

    def problems(now: float) -> dict[str, str]:
        jobs.take(now, 0.0)
        jobs.validate()
        return {job.name: job.problem for job in jobs.jobs() if job.tasks}

    waits = (
        'VolumesNotReady: pod second: persistentvolumeclaim "data" is ReadWriteOncePod, and another pod uses it or was created before: '
        "this pod is placed after it has ended"
    )
    assert problems(1.0) == {"first": "", "second": waits}
    jobs.pod(pod("first", rv="2", created_at=100.0, volumes=(VolumeUse("data"),), node="n", status="Running"), 2.0)
    assert problems(1000.0) == {"second": waits}
    jobs.pod(pod("first", rv="3", created_at=100.0, volumes=(VolumeUse("data"),), node="n", status="Succeeded"), 1001.0)
    assert problems(1001.0) == {"second": ""}


def test_pod_that_waits_for_a_claim_in_use_is_tried_when_its_user_is_gone() -> None:
    jobs = Jobs()
    jobs.volumes.volume("v", ())
    jobs.volumes.claim("ml/data", ClaimView(volume="v", bound=True, single_pod=True))
    for name in ("first", "second"):
        jobs.pod(pod(name, volumes=(VolumeUse("data"),)), 0.0)
    jobs.take(1.0, 0.0)
    jobs.pod_gone(pod("first").uid, 2.0)
    assert [(job.name, job.problem) for job in jobs.take(2.0, 0.0).pending] == [("second", "")]


def test_end_of_a_pod_wakes_the_next_user_of_its_claim_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds for a pod with a shared claim among its volumes: job-controller does not evaluate the jobs of the other users again."""
    jobs = Jobs()
    jobs.volumes.volume("v", ())
    jobs.volumes.claim("ml/data", ClaimView(volume="v", bound=True, single_pod=True))
    jobs.volumes.claim("ml/shared", ClaimView(volume="v", bound=True))
    uses = (VolumeUse("data"), VolumeUse("shared"))
    for number in range(50):
        jobs.pod(pod(f"p{number:02}", created_at=100.0 + number, volumes=uses), 0.0)
    assert [job.name for job in jobs.take(1.0, 0.0).pending if not job.problem] == ["p00"]
    walks = 0
    users = jobs.users

    def counted(claims: Iterable[str]) -> Iterator[PodView]:
        nonlocal walks
        walks += 1
        return users(claims)

    monkeypatch.setattr(jobs, "users", counted)
    for number in range(10):
        jobs.pod_gone(pod(f"p{number:02}").uid, 2.0 + number)
        assert [(job.name, job.problem) for job in jobs.take(2.0 + number, 0.0).pending] == [(f"p{number + 1:02}", "")]
    assert walks == 10, "one walk each time that the first pod ends"
