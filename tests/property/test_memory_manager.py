"""The mirror of the kubelet's memory manager against its rules as Go has them (`hbox_sandbox.kubelet`, written apart): pods come and go on random nodes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_agent.core.facts import zone_memory
from hbox_common.model import ContainerHolds, DeviceIds, HeldMemory, NodeDevices, NodeName, NodeNuma, NumaZone
from hbox_common.model.nodenuma import KubeletRules
from hbox_common.model.nodezones import NodeZones, zones_by_kubelet
from hbox_common.model.numa import admit
from hbox_common.model.resources import MIB
from hbox_sandbox.kubelet.topology import BOXES, NodeTopology

from ..searching import examples

GPU, HUGE = "nvidia.com/gpu", "hugepages-2Mi"
CPUS = 16


@st.composite
def containers(draw: st.DrawFn, *, most: int) -> dict[str, str]:
    """Limits of one container. CPUs are thousandths mostly: what comes of several zones is the kubelet's choice, and differs."""
    found = {"cpu": draw(st.sampled_from(("100m", "100m", "1", "2"))), "memory": f"{draw(st.integers(1, most))}Mi"}
    if draw(st.integers(0, 3)) == 0:
        found[HUGE] = f"{2 * draw(st.integers(1, 12))}Mi"
    if draw(st.integers(0, 4)) == 0:
        found[GPU] = str(draw(st.integers(1, 3)))
    return found


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    most = draw(st.sampled_from((20, 60, 200)))
    guaranteed = draw(st.integers(0, 5)) > 0
    own = [containers(most=most) for _ in range(draw(st.integers(1, 3)))]
    init = [containers(most=most) for _ in range(draw(st.sampled_from((0, 0, 1, 2))))]

    def body(name: str, limits: dict[str, str]) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": limits, "requests": limits}}

    return {
        "spec": {
            "containers": [body(f"c{i}", draw(one)) for i, one in enumerate(own)],
            "initContainers": [body(f"i{i}", draw(one)) for i, one in enumerate(init)],
        },
        "status": {"qosClass": "Guaranteed" if guaranteed else "Burstable"},
    }


steps = st.lists(st.one_of(pods(), st.integers(0, 7)), min_size=1, max_size=10)


@pytest.mark.hypothesis
@examples(1500, dear=True)
@given(
    st.sampled_from(sorted({count: box for box, (count, _) in BOXES.items() if count <= 4}.values())),
    st.sampled_from(("none", "best-effort", "restricted", "single-numa-node")),
    st.sampled_from(("container", "pod")),
    st.integers(0, 60),
    steps,
)
def test_the_mirror_says_of_each_pod_what_the_kubelet_does(
    box: str, policy: str, scope: str, reserved: int, came: list[dict[str, Any] | int]
) -> None:
    """A number takes the pod away that came as the so-manieth."""
    count = BOXES[box][0]
    numa = {"policy": policy, "scope": scope, "box": box, "memoryManager": "Static", "hugepages": "24Mi", "reservedMemory": f"{reserved}Mi"}  # fmt: skip
    kubelet = NodeTopology("n", CPUS, {GPU: 8}, numa, memory=100 * count * MIB)
    for number, step in enumerate(came):
        if isinstance(step, int):
            kubelet.leave(f"u{step}")
            continue
        node = told(kubelet).numa_node()
        asked = [
            {name: units(name, text) for name, text in one["resources"]["limits"].items()} for one in step["spec"]["containers"]
        ]
        init = [{name: units(name, text) for name, text in one["resources"]["limits"].items()} for one in step["spec"]["initContainers"]]  # fmt: skip
        guaranteed = step["status"]["qosClass"] == "Guaranteed"
        found = admit(node, asked, guaranteed=guaranteed, init=init)
        refusal = kubelet.admit(f"u{number}", step)
        if refusal is not None and "not enough" in refusal.message:
            return  # of CPUs or devices by their sums, which schedulers count apart
        if found.split and len(asked) + len(init) > 1:
            continue  # from which zone the first ones have a device is the kubelet's choice, and those behind them follow it
        assert (found.admitted, found.reason) == (refusal is None, refusal.reason if refusal is not None else ""), found
        if found.admitted and found.node is not None:
            after = told(kubelet).numa_node()
            for mirrored, real in zip(found.node.zones, after.zones, strict=True):
                assert (mirrored.assigned, mirrored.group) == (real.assigned, real.group)
                assert {kind: mirrored.free.get(kind, 0) for kind in ("memory", HUGE)} == {
                    kind: real.free.get(kind, 0) for kind in ("memory", HUGE)
                }


def test_that_a_container_follows_a_device_of_the_kubelets_choice_is_said() -> None:
    """The init container's card may be of either of its two zones, and what is behind it has that card, and memory beside it."""
    numa = {"policy": "best-effort", "scope": "container", "box": "snc", "memoryManager": "Static", "hugepages": "24Mi"}
    kubelet = NodeTopology("n", CPUS, {GPU: 8}, numa, memory=100 * BOXES["snc"][0] * MIB)
    found = admit(told(kubelet).numa_node(), [{GPU: 1, "memory": MIB}], guaranteed=True, init=[{GPU: 1, "memory": 77 * MIB}])
    assert (found.admitted, found.split) == (True, True)


def units(name: str, text: str) -> int:
    if text.endswith("Mi"):
        return int(text[:-2]) * MIB
    return int(text[:-1]) if text.endswith("m") else int(text) * (1000 if name == "cpu" else 1)


def told(kubelet: NodeTopology) -> NodeZones:
    """As node-agent and topology-collector tell of it, by what the kubelet's own files say; and what init containers have left, which no kubelet tells of."""
    assert kubelet.memory is not None
    memory = zone_memory(kubelet.memory.checkpoint().encode())
    rules = KubeletRules("static", {}, "Static", kubelet.policy, kubelet.scope)
    zones = tuple(NumaZone(i, f"{own[0]}-{own[-1]}", 1) for i, own in enumerate(kubelet.zones))
    holds = [
        ContainerHolds("ns", uid, container, (), ",".join(map(str, cpus))) for uid, given in kubelet.given.items() for container, cpus in given.cpus.items()
    ]  # fmt: skip
    holds += [
        ContainerHolds(
            "ns", uid, container, tuple(DeviceIds(resource, (id_,), (kubelet.devices[resource][id_],)) for id_ in ids)
        )
        for uid, given in kubelet.given.items()
        for (container, resource), ids in given.ids.items()
    ]
    holds += [
        ContainerHolds("ns", uid, container, memory=tuple(HeldMemory(one.kind, one.size, one.numa) for one in blocks))
        for (uid, container), blocks in kubelet.memory.blocks.items()
    ]
    for uid, own in kubelet.given.items():
        left = tuple(DeviceIds(r, (id_,), (kubelet.devices[r][id_],)) for r, ids in own.kept.ids.items() for id_ in ids)
        holds.append(ContainerHolds("ns", uid, "left", left, ",".join(map(str, own.kept.cpus))))
    allocatable = tuple(
        DeviceIds(resource, (id_,), (zone,)) for resource, ids in kubelet.devices.items() for id_, zone in ids.items()
    )
    devices = NodeDevices(NodeName("n"), 1.0, allocatable, f"0-{CPUS - 1}", tuple(holds), memory=memory)
    return zones_by_kubelet(NodeNuma(NodeName("n"), 1.0, zones, rules=rules), devices)
