"""The scheduler beside kubelets whose rules are written apart from the mirror: whoever comes in whatever order, nobody whom it places is refused."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import NodeName, NodeZones, PodZones, ZoneAmounts
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.numa import NumaPolicy, NumaScope
from hbox_sandbox.kubelet.topology import NodeTopology
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ..searching import examples

CPUS = 32


def zones_published(kubelet: NodeTopology, at: float) -> NodeZones:
    """As node-agent and topology-collector tell it."""

    def amounts(cpus: Any, ids: Any) -> tuple[dict[str, int], ...]:
        return tuple(
            {"cpu": sum(cpu in cpus for cpu in own), GPU: sum(kubelet.devices[GPU][id_] == zone for id_ in ids)}
            for zone, own in enumerate(kubelet.zones)
        )

    total = amounts(range(CPUS), kubelet.devices[GPU])
    most = amounts(kubelet.cpus, kubelet.devices[GPU])
    free = amounts(kubelet.free_cpus, kubelet.free_ids[GPU])
    pods = tuple(
        PodZones(
            "default",
            uid,
            "",
            amounts([cpu for own in given.cpus.values() for cpu in own], [id_ for own in given.ids.values() for id_ in own]),
        )
        for uid, given in kubelet.given.items()
    )
    zones = tuple(ZoneAmounts(i, total[i], most[i], free[i]) for i in range(kubelet.count))
    return NodeZones(
        NodeName("n0"), at, NumaPolicy(kubelet.policy), NumaScope(kubelet.scope), zones, ("cpu", GPU), pods=pods, by_pod=True,
        align_by_socket=kubelet.by_socket, sockets=tuple(kubelet.sockets),
    )  # fmt: skip


def manifest(asked: list[tuple[int, int]], init: list[tuple[int, int]]) -> dict[str, Any]:
    every = [
        {"name": f"c{i}", "resources": {"limits": {"cpu": str(cpu), GPU: str(cards)}}}
        for i, (cpu, cards) in enumerate([*init, *asked])
    ]
    spec = {"initContainers": every[: len(init)], "containers": every[len(init) :]}
    return {"spec": spec, "status": {"qosClass": "Guaranteed"}}


@pytest.mark.hypothesis
@examples(60, dear=True)
@given(
    policy=st.sampled_from(["restricted", "single-numa-node"]),
    scope=st.sampled_from(["container", "pod"]),
    box=st.sampled_from(["h100", "snc", "b300", "mi250x"]),
    by_socket=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_nobody_who_is_placed_is_refused(policy: str, scope: str, box: str, by_socket: bool, seed: int) -> None:
    """By socket: a kubelet of single-numa-node does not start so. An init container asks for no more than the first container, so that it leaves nothing."""
    random = Random(seed)
    numa: dict[str, Any] = {"policy": policy, "scope": scope, "box": box, "reserved": random.choice((0, 2))}
    if by_socket and policy == "restricted":
        numa["options"] = {"align-by-socket": "true"}
    kubelet = NodeTopology("n0", CPUS, {GPU: 8}, numa)
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    simulation.put_nodes([node("n0", cards=8, cpu=CPUS)])
    simulation.scheduler.on_zones(zones_published(kubelet, 0.0))
    asked: dict[str, list[tuple[int, int]]] = {}
    first: dict[str, list[tuple[int, int]]] = {}
    underway: list[str] = []
    known: set[str] = set()
    for turn in range(12):
        for _ in range(random.randint(0, 4)):
            name = f"p{len(asked)}"
            asked[f"{name}-0"] = [
                (random.choice((1, 2, 2, 3, 4, 6, 8, 12)), random.choice((0, 0, 1, 1, 2, 3, 5)))
                for _ in range(random.choice((1, 1, 2)))
            ]
            cpu, cards = asked[f"{name}-0"][0]
            first[f"{name}-0"] = [(random.randint(1, cpu), random.randint(0, cards))] if random.random() < 0.3 else []
            containers, init = (
                tuple({"cpu": 1000 * cpu, GPU: cards} for cpu, cards in some[f"{name}-0"]) for some in (asked, first)
            )
            cpu, cards = (sum(column) for column in zip(*asked[f"{name}-0"], strict=True))
            made = job(name, cpu_milli=1000 * cpu, memory_mib=1, cards=cards, created_at=float(turn))
            tasks = tuple(replace(task, guaranteed=True, containers=containers, init_containers=init) for task in made.tasks)
            simulation.submit([replace(made, tasks=tasks)])
        simulation.now += 5.0
        simulation.run()
        here = {str(claim.pod) for claim in simulation.claims.values()}
        underway += sorted(here - known)
        known |= here
        random.shuffle(underway)
        for _ in range(random.randint(0, len(underway))):
            pod = underway.pop()
            assert kubelet.admit(pod, manifest(asked[pod], first[pod])) is None, f"{pod} {asked[pod]} {first[pod]}"
        if random.random() < 0.6:
            simulation.scheduler.on_zones(zones_published(kubelet, float(turn)))
        for claim in list(simulation.claims.values()):
            if str(claim.pod) in kubelet.given and random.random() < 0.2:
                simulation.finish([claim.pod_uid])
                kubelet.leave(str(claim.pod))
