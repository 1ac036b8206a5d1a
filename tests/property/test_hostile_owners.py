"""Owners that tenants wrote to do harm: nothing raises, no gang below its minimum is announced, and the order of arrival does not matter."""

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model.bounds import INT32_MAX, ROLES
from hbox_common.workloads import GroupBy, GroupRef, Kinds, Owner, OwnerRef, Submitted, read_owner
from hbox_common.workloads.placing import MAX_STEPS
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.views import PodView

from ..searching import examples
from ..unit.hbox_jobs.job_world import pod

WALL = 1_800_000_000.0
KINDS = Kinds.builtin()


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"replicas": value}
    return value


#: In place of a number.
COUNTS = st.sampled_from(
    [0, 1, 2, 3, -1, 2**31, 2**63, 10**5000, -(2**63), "2", "", True, 1.5, None, [2], {"replicas": 2}, nested(700)]
)
#: In place of anything.
ANYTHING = st.sampled_from([None, 7, "x", [], {}, [None], {"": None}, [[]], nested(300), "\x00", "a" * 70_000])
NAMES = st.sampled_from(["Worker", "worker", "Master", "", "\n", "x" * 300, "🜁"])


@st.composite
def roles(draw: st.DrawFn) -> Any:
    if draw(st.integers(0, 19)) == 0:
        return {f"role-{n}": {"replicas": 1} for n in range(10_000)}
    return {
        name: draw(st.one_of(ANYTHING, st.builds(lambda n: {"replicas": n}, COUNTS)))
        for name in draw(st.lists(NAMES, max_size=4))
    }


@st.composite
def specs(draw: st.DrawFn, kind: str) -> Any:
    if draw(st.integers(0, 5)) == 0:
        return draw(ANYTHING)
    count = COUNTS
    policy = {"schedulingPolicy": {"minAvailable": draw(count), "queue": draw(ANYTHING), "priorityClass": draw(ANYTHING)}}
    match kind:
        case "PyTorchJob":
            return {"pytorchReplicaSpecs": draw(roles()), "runPolicy": draw(st.sampled_from([None, policy]))}
        case "JobSet":
            jobs = [
                {"name": draw(NAMES), "replicas": draw(count), "template": {"spec": {"parallelism": draw(count)}}}
                for _ in range(2)
            ]
            return {"replicatedJobs": draw(st.sampled_from([jobs, {"a": 1}, 3])), "startupPolicy": draw(ANYTHING)}
        case "LeaderWorkerSet":
            return {"replicas": draw(count), "leaderWorkerTemplate": {"size": draw(count)}, "startupPolicy": "LeaderReady"}
        case "RayCluster":
            workers = [
                {"groupName": draw(NAMES), "replicas": draw(count), "minReplicas": draw(count), "numOfHosts": draw(count)}
            ]
            return {"workerGroupSpecs": draw(st.sampled_from([workers, 1, None]))}
        case "PodGroup":
            return {"minMember": draw(count)}
    return {"replicas": draw(count)}


APIS = {
    "PyTorchJob": "kubeflow.org/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "RayCluster": "ray.io/v1",
    "Deployment": "apps/v1",
    "Job": "batch/v1",
    "Workflow": "argoproj.io/v1alpha1",
    "PodGroup": "scheduling.x-k8s.io/v1alpha1",
    "Unknown": "example.org/v1",
}
SIZE = 5


def ref_of(number: int, kinds: list[str], *, uid: str = "") -> OwnerRef:
    return OwnerRef(APIS[kinds[number]], kinds[number], f"o{number}", uid or f"uid-o{number}")


def written(ref: OwnerRef, parent: OwnerRef | None, namespace: str, spec: Any, least: Any) -> Any:
    """An owner as the API server delivers it."""
    named = {"apiVersion": parent.api_version, "kind": parent.kind, "name": parent.name, "uid": parent.uid} if parent else {}
    annotations = {"scheduling.volcano.sh/group-min-member": least} if least is not None else {}
    metadata: dict[str, Any] = {
        "name": ref.name,
        "uid": ref.uid,
        "namespace": namespace,
        "resourceVersion": "5",
        "annotations": annotations,
    }
    metadata["ownerReferences"] = [{**named, "controller": True}] if parent else None
    return {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": metadata, "spec": spec}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Owner], list[PodView]]:
    kinds = draw(st.lists(st.sampled_from(sorted(APIS)), min_size=SIZE, max_size=SIZE))
    owners = []
    for number in range(SIZE):
        above = draw(st.none() | st.integers(0, SIZE - 1))  # cycles among them
        uid = draw(st.sampled_from(["", "", "", "uid-of-another"]))
        parent = ref_of(above, kinds, uid=uid) if above is not None else None
        namespace = draw(st.sampled_from(["ml", "ml", "ml", "other"]))
        least = draw(st.sampled_from([None, None, "2", "four", "-1", "9" * 5000, "٣"]))
        owners.append(read_owner(KINDS, written(ref_of(number, kinds), parent, namespace, draw(specs(kinds[number])), least)))
    return owners, [draw(pods(number, kinds)) for number in range(6)]


@st.composite
def pods(draw: st.DrawFn, number: int, kinds: list[str]) -> PodView:
    at = draw(st.integers(0, SIZE - 1))
    name, uid = f"p{number}", draw(st.sampled_from(["", "", "", "uid-of-another"]))
    controller = draw(
        st.sampled_from(
            [ref_of(at, kinds, uid=uid), OwnerRef("v1", "Pod", "p0", "uid-p0"), OwnerRef("v1", "Pod", "p1", "uid-p1"), None]
        )
    )
    group = draw(
        st.sampled_from(
            [None, None, GroupRef(GroupBy.COSCHEDULING, f"o{at}"), GroupRef(GroupBy.KUEUE, "k", draw(st.integers(0, 3)))]
        )
    )
    labels = {"training.kubeflow.org/replica-type": draw(st.sampled_from(["worker", "", "nobody"]))}
    labels |= {
        "leaderworkerset.sigs.k8s.io/group-index": draw(st.sampled_from(["0", "1", "x"])),
        "scheduling.volcano.sh/queue-name": draw(st.sampled_from(["q", "Not_A_Name"])),
    }
    submitted = Submitted(f"uid-{name}", "ml", name, controller, labels, group=group) if controller or group else None
    return pod(name, submitted=submitted, labels=labels, created_at=draw(st.sampled_from([1.0, 2.0])))


def arrived(owners: list[Owner], pods: list[PodView], seed: int) -> dict[str, tuple[Any, ...]]:
    """Gangs by id after all objects arrived in this order; asserts that none is announced below its minimum on the way."""
    jobs = Jobs()
    things: list[Owner | PodView] = [*owners, *pods]
    random.Random(seed).shuffle(things)
    for at, thing in enumerate(things):
        if isinstance(thing, Owner):
            jobs.owner(thing, float(at))
        else:
            jobs.pod(thing, float(at))
        for one in jobs.take(float(at), WALL).pending:
            assert 1 <= one.min_member <= INT32_MAX
        jobs.validate()
    jobs.pods_listed(100.0)
    there = {(owner.namespace, owner.ref.kind, owner.ref.name): owner for owner in owners}
    while wanted := next((one for kind in list(jobs.owners.named) for one in jobs.owners.wanted(kind)), None):
        owner = there.get((wanted.namespace, wanted.ref.kind, wanted.ref.name))
        if owner is None or (wanted.ref.uid and owner.ref.uid != wanted.ref.uid):
            jobs.place_again(jobs.owners.unreadable(wanted, "it does not exist"), 100.0)
        if owner is not None:
            jobs.first_read(owner, 0, 100.0)
    jobs.take(200.0, WALL)
    jobs.validate()
    found: dict[str, tuple[Any, ...]] = {
        one.id: (
            one.name,
            one.queue,
            one.min_member,
            one.members,
            one.created_at,
            tuple(sorted(one.min_task_member.items())),
            one.problem,
        )
        for one in jobs.jobs()
    }
    for view in pods:
        jobs.pod_gone(view.uid, 300.0)
    for owner in owners:
        jobs.owner_gone(owner.ref.uid)
    jobs.take(400.0, WALL)
    jobs.validate()
    kept = [(key, one.ref, one.namespace, one.parent) for key, one in jobs.owners._owners.items()]
    assert not kept, (kept, jobs.owners._below, jobs.owners._gone, jobs.owners._parents)
    return found


@examples(100)
@given(world=worlds(), seed=st.integers(1, 2**32))
def test_hostile_owners_make_the_same_gangs_in_any_order(world: tuple[list[Owner], list[PodView]], seed: int) -> None:
    one, other = arrived(*world, seed=seed), arrived(*world, seed=0)
    assert {key: (one.get(key), other.get(key)) for key in one | other if one.get(key) != other.get(key)} == {}


@examples(30)
@given(seed=st.integers(0, 2**32), workers=st.integers(2, 6), upper=st.booleans())
def test_gang_is_never_announced_with_less_than_the_minimum_of_its_owner(seed: int, workers: int, upper: bool) -> None:
    """Neither as single pods nor as a smaller gang, whatever of its owners arrives first."""
    top, ref = OwnerRef(APIS["Workflow"], "Workflow", "w", "uid-w"), OwnerRef(APIS["PyTorchJob"], "PyTorchJob", "o", "uid-o")
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}
    things: list[Owner | PodView] = [read_owner(KINDS, written(ref, top if upper else None, "ml", spec, None))]
    if upper:
        things.append(read_owner(KINDS, written(top, None, "ml", {}, None)))
    things += [pod(f"p{n}", submitted=Submitted(f"uid-p{n}", "ml", f"p{n}", ref)) for n in range(workers)]
    random.Random(seed).shuffle(things)
    jobs = Jobs()
    for at, thing in enumerate(things):
        if isinstance(thing, Owner):
            jobs.owner(thing, float(at))
        else:
            jobs.pod(thing, float(at))
        for one in jobs.take(float(at) + 0.5, WALL).pending:
            assert one.problem or one.min_member == workers
    jobs.take(100.0, WALL)
    assert [(one.members, one.min_member) for one in jobs.jobs()] == [(workers, workers)]


@examples(10)
@given(length=st.integers(MAX_STEPS - 1, MAX_STEPS + 3), seed=st.integers(0, 2**32))
def test_chain_of_owners_is_followed_up_to_its_limit(length: int, seed: int) -> None:
    refs = [OwnerRef(APIS["Workflow"], "Workflow", f"o{n}", f"uid-o{n}") for n in range(length)]
    chain = [read_owner(KINDS, written(ref, refs[n - 1] if n else None, "ml", {}, None)) for n, ref in enumerate(refs)]
    top = replace(chain[0], declared=replace(chain[0].declared, queue="top"))
    view = pod("p", submitted=Submitted("uid-p", "ml", "p", refs[-1]))
    (found,) = arrived([top, *chain[1:]], [view], seed).values()
    assert found[1] == ("top" if length <= MAX_STEPS else "default")


def test_ten_thousand_roles_are_a_problem_and_no_more_than_the_limit_is_kept() -> None:
    spec = {"pytorchReplicaSpecs": {f"role-{n}": {"replicas": 1} for n in range(10_000)}}
    owner = read_owner(KINDS, written(OwnerRef(APIS["PyTorchJob"], "PyTorchJob", "o", "uid-o"), None, "ml", spec, None))
    assert len(owner.declared.roles) == ROLES
    assert "pytorchReplicaSpecs" in owner.problem
