import json
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from hbox_common import kube
from hbox_common.model import (
    CardSlice,
    Match,
    MatchOperator,
    NodeTerm,
    PreferredTerm,
    Toleration,
    TolerationOperator,
    VolumeDemand,
)
from hbox_jobs.adapters.objects import MAX_SHAPES_BYTES, PodReader, group_view
from hbox_jobs.adapters.volumes import claim_view, reach_of, reach_of_class
from hbox_jobs.core.views import PodView
from hbox_jobs.core.volumes import ClaimView, VolumeUse


def read(reader: Any = None, *, meta: Any = None, spec: Any = None, status: Any = None) -> PodView:
    body = {
        "metadata": {
            "name": "a",
            "namespace": "ml",
            "uid": "u",
            "resourceVersion": "5",
            "creationTimestamp": "2026-11-21T13:00:00Z",
            **(meta or {}),
        },
        "spec": {
            "schedulerName": "hbox",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            **(spec or {}),
        },
        "status": {"phase": "Pending", **(status or {})},
    }
    return (reader or PodReader()).view(msgspec.json.decode(json.dumps(body), type=kube.Pod))


def test_a_pod_object_is_read_with_all_that_scheduling_needs() -> None:
    view = read(
        meta={
            "annotations": {
                "scheduling.k8s.io/group-name": "g",
                "hbox.io/cards": "0:30:1000,3:30:1000",
                "hbox.io/claim": "c1",
                "volcano.sh/task-spec": "worker",
            },
            "labels": {"scheduling.volcano.sh/queue-name": "q"},
        },
        spec={"nodeName": "n1", "priority": 9},
        status={"phase": "Running"},
    )
    assert (view.uid, view.namespace, view.name, view.resource_version, view.created_at) == ("u", "ml", "a", "5", 1795266000.0)
    assert (view.ours, view.group, view.queue, view.priority, view.node, view.role) == (True, "g", "q", 9, "n1", "worker")
    assert (view.slices, view.claim, view.key) == ((CardSlice(0, 30, 1000), CardSlice(3, 30, 1000)), "c1", "ml/g")
    assert view.shape.requests == {"cpu": 1000, "pods": 1}


@pytest.mark.parametrize("name", ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"])
def test_both_spellings_of_the_group_annotation_count(name: str) -> None:
    assert read(meta={"annotations": {name: "g"}}).group == "g"


@pytest.mark.parametrize(
    ("phase", "status"), [("", "Pending"), ("Unknown", "Running"), ("Running", "Running"), ("Failed", "Failed")]
)
def test_phases_are_read_and_an_unknown_one_holds_its_node(phase: Any, status: Any) -> None:
    assert read(status={"phase": phase}).status == status


def test_of_a_pod_that_is_being_deleted_it_is_known_when_it_was_to_end_and_who_has_to_let_go() -> None:
    finalizers = ["example.com/keep", "x" * 300, "c", "d"]
    view = read(meta={"deletionTimestamp": "2026-11-21T13:00:00Z", "finalizers": finalizers})
    assert view.ends_at == 1795266000.0
    assert view.finalizers[0] == "example.com/keep"
    assert [len(name.encode()) for name in view.finalizers] == [16, 128, 1]
    standing = read(meta={"finalizers": finalizers})
    assert (standing.ends_at, standing.finalizers) == (0.0, ())


def test_gates_deletion_and_conditions_are_seen() -> None:
    view = read(
        meta={"deletionTimestamp": "2026-11-21T13:00:00Z"},
        spec={"schedulingGates": [{"name": "wait"}]},
        status={"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]},
    )
    assert (view.deleting, view.gated, view.condition_message, view.live) == (True, True, "0/3 nodes", False)
    assert read(status={"conditions": [{"type": "PodScheduled", "status": "True"}]}).condition_message is None


@pytest.mark.parametrize(
    ("gates", "queue_gate"),
    [((), False), (("wait",), False), (("wait", "scheduling.volcano.sh/queue-allocation-gate"), True)],
)
def test_the_gate_of_volcanos_scheduler_is_known_among_others(gates: tuple[str, ...], queue_gate: bool) -> None:
    view = read(spec={"schedulingGates": [{"name": name} for name in gates]})
    assert (view.gated, view.queue_gate) == (bool(gates), queue_gate)


def test_a_malformed_card_annotation_is_ignored_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    reader = PodReader()
    for text in ("zero", "0:1", "0:a:b"):
        caplog.clear()
        body = {
            "metadata": {"name": "a", "namespace": "ml", "uid": "u", "annotations": {"hbox.io/cards": text}},
            "spec": {"nodeName": "n"},
        }
        pod = msgspec.json.decode(json.dumps(body), type=kube.Pod)
        first = reader.view(pod)
        assert first.slices == ()
        reader.view(pod, first)
        assert len(caplog.records) == 1


def test_affinity_selector_and_tolerations_become_the_models_own() -> None:
    shape = read(
        spec={
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, {"key": "k", "value": "v"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "t", "operator": "In", "values": ["x", "y"]}]},
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 5, "preference": {"matchExpressions": [{"key": "s", "operator": "Exists"}]}}
                    ],
                }
            },
        }
    ).shape
    assert shape.node_selector == {"zone": "a"}
    assert shape.tolerations == (
        Toleration("gpu", TolerationOperator.EXISTS, "", "NoSchedule"),
        Toleration("k", TolerationOperator.EQUAL, "v", ""),
    )
    assert shape.affinity == (
        NodeTerm((Match("t", MatchOperator.IN, ("x", "y")),)),
        NodeTerm((), (Match("metadata.name", MatchOperator.IN, ("n1",)),)),
    )
    assert shape.preferred == (PreferredTerm(5, NodeTerm((Match("s", MatchOperator.EXISTS),))),)
    assert shape.problem == ""


@pytest.mark.parametrize(
    ("meta", "spec", "problem"),
    [
        (
            {},
            {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]},
            "resourceClaims: gpu: HBox does not allocate ResourceClaims",
        ),
        ({}, {"tolerations": [{"key": "k", "operator": "Near"}]}, "'Near'.*not supported"),
        (
            {},
            {"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpumem": 10}}}]},
            "given without nvidia.com/gpu",
        ),
        (
            {"annotations": {"hami.io/device-scoring-weights": "slot=1"}},
            {"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
            "device-scoring-weights is 'slot=1'",
        ),
    ],
)
def test_what_cannot_be_honoured_is_a_problem_of_the_pod(meta: Any, spec: Any, problem: Any) -> None:
    shape = read(meta=meta, spec=spec).shape
    assert re.search(problem, shape.problem), shape.problem


def test_images_of_containers_are_known_by_their_whole_names() -> None:
    containers = [
        {"name": "a", "image": "nginx"},
        {"name": "b", "image": "nvcr.io/x/y@sha256:0"},
        {"name": "c", "image": "\u202e"},
        {"name": "d"},
    ]
    reader = PodReader()
    view = read(reader, spec={"containers": containers})
    assert view.shape.images == ("docker.io/library/nginx:latest", "nvcr.io/x/y@sha256:0")
    other = read(reader, spec={"containers": [{"name": "a", "image": "nginx:2"}, *containers[1:]]})
    assert other.shape.key != view.shape.key


def test_pods_that_write_the_same_share_one_shape() -> None:
    reader = PodReader()
    assert read(reader).shape is read(reader, meta={"name": "b", "uid": "v"}).shape
    assert read(reader).shape is not read(reader, spec={"nodeSelector": {"zone": "a"}}).shape


def test_a_podgroup_object_is_read_and_an_unknown_phase_counts_as_new() -> None:
    body = {
        "metadata": {"name": "g", "namespace": "ml", "uid": "u", "creationTimestamp": "nonsense"},
        "spec": {"minMember": 4, "queue": "q", "priorityClassName": "high"},
        "status": {"phase": "Odd", "running": 2, "conditions": [{"type": "T", "status": "True", "transitionID": "x"}]},
    }
    view = group_view(msgspec.json.decode(json.dumps(body), type=kube.PodGroup))
    assert (view.key, view.min_member, view.queue, view.priority_class, view.created_at) == ("ml/g", 4, "q", "high", 0.0)
    assert (view.status.phase, view.status.running, view.status.conditions[0].type) == ("", 2, "T")


@pytest.mark.parametrize("name", ["g" * 9000, "\U0001f600" * 253, "a\0b", "Upper", "a..b"])
def test_a_name_that_no_object_can_have_is_the_problem_of_who_writes_it(name: str) -> None:
    view = read(meta={"annotations": {"scheduling.k8s.io/group-name": name, "scheduling.volcano.sh/queue-name": name}})
    assert (view.group, view.queue, view.key) == ("", "", "u")
    assert "annotation scheduling.k8s.io/group-name" in view.shape.problem
    assert len(view.shape.problem.encode()) <= 1024
    assert read().shape.problem == ""


LONG = "x" * 70_000


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("volcano.sh/task-spec", LONG),
        ("volcano.sh/task-spec", "a\0b"),
        ("volcano.sh/revocable-zone", LONG),
        ("volcano.sh/task-topology-affinity", "\u202e"),
        ("nvidia.com/use-gputype", "a,b" * 30_000),
    ],
)
def test_an_annotation_beyond_its_bounds_is_not_carried_and_said(annotation: str, value: str) -> None:
    cards = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    view = read(meta={"annotations": {annotation: value}}, spec=cards)
    assert annotation in view.shape.problem
    assert (view.role, view.annotations) == ("", {})
    assert view.shape.requests["nvidia.com/gpu"] == 1


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'b' * 16}-01"),
        (f"00-{'0' * 32}-{'b' * 16}-01", ""),
        (f"00-{'A' * 32}-{'b' * 16}-01", ""),
        (f"00-{'a' * 32}-{'b' * 16}-01\n", ""),
        (f"00-{'a' * 32}-{'b' * 16}-01-more", ""),
        ("x" * 200_000, ""),
        ("", ""),
    ],
)
def test_a_submitters_trace_context_is_read_if_it_is_valid_and_ignored_otherwise(written: str, read_as: str) -> None:
    noted = {"annotations": {"hbox.io/traceparent": written}}
    found = read(meta=noted)
    assert (found.traceparent, found.shape.problem) == (read_as, "")
    group = {"metadata": {"name": "g", "namespace": "ml", "uid": "u", **noted}, "spec": {"minMember": 1}}
    seen = group_view(msgspec.convert(group, kube.PodGroup, strict=False))
    assert (seen.traceparent, seen.problem) == (read_as, "")


@pytest.mark.parametrize(
    "text", ["0:1:99999999999999999999999", "0:1:18446744073709551615", "0:1:2147483648", "-1:1:1", "0:101:1"]
)
def test_cards_that_cannot_be_are_not_believed(text: str) -> None:
    assert read(meta={"annotations": {"hbox.io/cards": text, "hbox.io/claim": LONG}}).slices == ()
    assert read(meta={"annotations": {"hbox.io/claim": LONG}}).claim == ""


@pytest.mark.parametrize(("count", "problem"), [(800, "803 are written, at most 64 are taken"), (8000, "192081 bytes")])
def test_a_pod_that_asks_for_too_many_resources_is_told_and_is_accounted_for_what_every_node_has(
    count: int, problem: str
) -> None:
    many = {f"example.com/r{n:04}": "1" for n in range(count)}
    view = read(spec={"containers": [{"name": "main", "resources": {"limits": {"cpu": "1", "memory": "1Gi", **many}}}]})
    assert problem in view.shape.problem
    assert (len(view.shape.requests), view.shape.requests["cpu"], view.shape.requests["memory"]) == (64, 1000, 2**30)


def test_where_a_pod_may_run_is_bounded_by_its_bytes() -> None:
    def excluding(hosts: int) -> PodView:
        names = [f"gpu-{n:05}.cluster.example" for n in range(hosts)]
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": names}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return read(spec={"affinity": {"nodeAffinity": required}})

    view = excluding(500)
    assert view.shape.problem == ""
    assert view.shape.affinity is not None
    assert len(view.shape.affinity[0].expressions[0].values) == 500
    view = excluding(20_000)
    assert "at most 98304 are taken" in view.shape.problem
    assert (view.shape.affinity, view.shape.requests["cpu"]) == (None, 1000)


def test_a_podgroup_beyond_its_bounds_has_a_problem_and_no_large_part_of_it_is_kept() -> None:
    def group_of(**spec: Any) -> Any:
        body = {"metadata": {"name": "g", "namespace": "ml", "uid": "u"}, "spec": spec}
        return group_view(msgspec.json.decode(json.dumps(body), type=kube.PodGroup))

    for spec in (
        {"queue": "\U0001f600" * 253},
        {"queue": "a\0b"},
        {"priorityClassName": LONG},
        {"minMember": 2**62},
        {"minTaskMember": {LONG: 1}},
        {"minTaskMember": {f"r{n}": 1 for n in range(5000)}},
        {"minResources": {LONG: "1"}},
        {"minResources": {f"r{n}": "1" for n in range(5000)}},
        {"networkTopology": {"mode": "hard", "highestTierName": LONG}},
        {"networkTopology": {"mode": LONG}},
        {"subGroupPolicy": [{"name": LONG}]},
        {"subGroupPolicy": [{"name": f"s{n}"} for n in range(5000)]},
    ):
        view = group_of(**spec)
        assert view.problem, spec
        assert len(msgspec.json.encode(view)) < 4096, spec


def test_host_ports_of_containers_and_sidecars_are_asked_for_and_those_of_init_containers_are_not() -> None:
    def ports(*numbers: int, **more: Any) -> Any:
        return {"name": "c", "ports": [{"containerPort": 80}, *({"containerPort": n, "hostPort": n, **more} for n in numbers)]}

    view = read(
        spec={
            "containers": [ports(80), ports(443, hostIP="10.0.0.1", protocol="UDP")],
            "initContainers": [ports(1), ports(9400) | {"restartPolicy": "Always"}],
        }
    )
    assert {name for name in view.shape.requests if "/" in name} == {
        "hostport/TCP/80", "hostport/TCP/9400", "hostport/UDP/443", "hostport/UDP/443/10.0.0.1",
    }  # fmt: skip
    assert read().shape.key != view.shape.key


def test_claims_of_a_pod_are_read_and_other_volumes_are_not() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "token", "projected": {"sources": []}},
    ]
    assert read(spec={"volumes": volumes}).volumes == (VolumeUse("shared"), VolumeUse("a-scratch", own=True))
    assert read().volumes == ()


CLAIMS: list[tuple[Any, Any, Any, ClaimView]] = [
    ({}, {}, {}, ClaimView()),
    ({}, {"storageClassName": "fast"}, {}, ClaimView(storage_class="fast")),
    (
        {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
        {"storageClassName": "fast"},
        {},
        ClaimView(storage_class="old"),
    ),
    ({}, {"volumeName": "v"}, {"phase": "Pending"}, ClaimView(volume="v")),
    (
        {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        {"volumeName": "v"},
        {"phase": "Bound"},
        ClaimView(volume="v", bound=True),
    ),
    (
        {"deletionTimestamp": "2026-11-21T13:00:00Z"},
        {"volumeName": "v"},
        {"phase": "Lost"},
        ClaimView(volume="v", lost=True, deleting=True),
    ),
    (
        {"ownerReferences": [{"kind": "Pod", "uid": "u", "controller": True}, {"kind": "Pod", "uid": "x"}]},
        {},
        {},
        ClaimView(owner="u"),
    ),
]


@pytest.mark.parametrize(("meta", "spec", "status", "view"), CLAIMS)
def test_a_claim_object_is_read(meta: Any, spec: Any, status: Any, view: ClaimView) -> None:
    body = {"metadata": {"name": "c", "uid": "c", **meta}, "spec": spec, "status": status}
    assert claim_view(msgspec.json.decode(json.dumps(body), type=kube.PersistentVolumeClaim)) == replace(
        view, uid="c", demand=None if view.volume else VolumeDemand()
    )


def test_a_volume_that_names_no_nodes_is_reached_from_all_and_one_that_cannot_be_read_from_none() -> None:
    def reach(spec: Any) -> Any:
        body = {"metadata": {"name": "v", "uid": "v"}, "spec": spec}
        return reach_of(msgspec.json.decode(json.dumps(body), type=kube.PersistentVolume))

    def on(operator: str) -> Any:
        expression = {"key": "zone", "operator": operator, "values": ["a"]}
        return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}

    assert reach({}) == ()
    assert reach(on("In")) == ((NodeTerm((Match("zone", MatchOperator.IN, ("a",)),)),),)
    assert reach(on("Near")) == ((),)


def test_a_class_says_from_where_its_volumes_can_be_reached() -> None:
    def reach(*terms: Any) -> Any:
        body = {"metadata": {"name": "c", "uid": "c"}, "provisioner": "p"} | ({"allowedTopologies": terms} if terms else {})
        return reach_of_class(msgspec.json.decode(json.dumps(body), type=kube.StorageClass))

    def term(*expressions: tuple[str, list[str]]) -> Any:
        return {"matchLabelExpressions": [{"key": key, "values": values} for key, values in expressions]}

    assert reach() == ()
    both = NodeTerm((Match("zone", MatchOperator.IN, ("x", "y")), Match("rack", MatchOperator.IN, ("1",))))
    assert reach(term(("zone", ["x", "y"]), ("rack", ["1"])), term()) == ((both, NodeTerm()),)
    assert reach(term(("k", ["v" * 100_000]))) == ((),), "more than a pod may say is reached from nowhere"


def test_a_pod_that_was_resized_in_place_asks_for_the_most_of_what_is_wanted_set_aside_and_running() -> None:
    reader = PodReader()
    bound = {"nodeName": "n", "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}

    def status(allocated: str, runs: str) -> dict[str, Any]:
        one = {"name": "main", "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": runs}}}
        return {"phase": "Running", "containerStatuses": [one]}

    assert read(reader, spec=bound, status=status("1", "7")).shape.requests["cpu"] == 7000
    assert read(reader, spec=bound, status=status("3", "1")).shape.requests["cpu"] == 3000
    usual = read(reader, spec=bound, status=status("1", "1"))
    assert usual.shape is read(reader, spec=bound).shape, "whoever is not resized shares its shape"
    assert read(reader, spec=bound, status=status("nonsense", "1")).shape.requests["cpu"] == 1000


def test_what_pods_say_counts_in_bytes_and_as_many_are_kept_for_pods_to_come() -> None:
    reader = PodReader()
    words = "x" * 10_000
    first = read(
        reader, spec={"nodeSelector": {"a": "b"}}, meta={"labels": {"app": "web"}, "annotations": {"example.com/n": words}}
    )
    assert 0 < first.shape.written < 1000, "what nobody reads counts for nothing"
    assert first.written == len("app" + "web")
    large = read(reader, spec={"nodeSelector": {"a": words}})
    assert large.shape.written > 10_000
    for number in range(MAX_SHAPES_BYTES // 80_000 + 10):
        read(reader, spec={"nodeSelector": {"a": 8 * words, "number": f"{number}"}})
    assert sum(shape.written for shape in reader._shapes.values()) == reader._bytes <= MAX_SHAPES_BYTES
    assert read(reader, spec={"nodeSelector": {"a": 10 * words}}).shape.written == 0, "what is too long is carried no further"


HAMI = {"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,12000,30:;", "hami.io/vgpu-node": "n1"}


@pytest.mark.parametrize(
    ("notes", "node", "found"),
    [
        pytest.param(HAMI, "n1", {"NVIDIA": "GPU-a,NVIDIA,12000,30:;"}, id="another scheduler's"),
        pytest.param(HAMI, "", {}, id="without a node"),
        pytest.param(HAMI | {"hbox.io/claim": "c1", "hbox.io/cards": "gpu:GPU-a:30:12000"}, "n1", {}, id="HBox's own"),
        pytest.param(HAMI | {"hbox.io/claim": "c1", "hbox.io/cards": "0:30:12000"}, "n1", {"NVIDIA": "GPU-a,NVIDIA,12000,30:;"}, id="an older binder's"),
        pytest.param({"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1,1:" * 5000}, "n1", {}, id="too long"),
        pytest.param({"hami.io/vgpu-devices-allocated": "GPU-a\x00,NVIDIA,1,1:;"}, "n1", {}, id="no text"),
        pytest.param({"hami.io/Ascend910B3-devices-allocated": "N-0,Ascend910B3,16384,0:;"}, "n1", {"Ascend910B3": "N-0,Ascend910B3,16384,0:;"}, id="Ascend"),
    ],
)  # fmt: skip
def test_card_annotations_of_another_scheduler_are_read(notes: dict[str, str], node: str, found: dict[str, str]) -> None:
    view = read(meta={"annotations": notes}, spec={"nodeName": node, "schedulerName": "hami-scheduler"})
    assert view.allocated == found


def test_misnamed_resource_gets_a_hint() -> None:
    limits = {"aliyun.com/gpu-mem": "8", "aliyun.com/gpu-core": "30"}
    view = read(spec={"containers": [{"name": "main", "resources": {"limits": limits}}]})
    assert "aliyun.com/gpu-core" in view.shape.problem
    assert "write aliyun.com/gpu-core.percentage" in view.shape.problem
