"""The judge of `make chaos` counts pods and nodes as they are: over-booking by a user's deed is no fault, what is given beside it is."""

from typing import Any

import pytest

from hbox_sandbox.trace import TraceNode, TracePod, node_manifest, pod_manifest

from ..chaos.observer import FORGER, STRANGERS, UNDER_WAY_S, Observer

NODE = node_manifest(TraceNode("n0", 8000, 65_536, 0, ""), now="2026-01-01T00:00:00Z")


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.observer = Observer({}, clock=lambda: self.now)
        self.observer.node_is(NODE)
        self.now = 100.0

    def pod(self, name: str, cpu: str = "", *, namespace: str = "chaos", forged: bool = False) -> None:
        """Bound; `cpu`: what its node gave it; `forged`: its tenant has named the node."""
        raw: dict[str, Any] = pod_manifest(TracePod(name, 1000, 1024), namespace=namespace)
        raw["metadata"] |= {"uid": name, "namespace": namespace}
        raw["spec"]["nodeName"] = "n0"
        if forged:
            raw["metadata"]["labels"] = {FORGER: "yes"}
        given = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}] if cpu else []
        raw["status"] = {"phase": "Running", "containerStatuses": given}
        self.observer.see(raw)


def test_a_pod_that_grew_leaves_no_room_to_others_until_it_is_small_again() -> None:
    world = World()
    world.pod("grows")
    world.pod("grows", "12")
    assert world.observer.violations == []
    world.pod("under-way")
    assert world.observer.violations == []
    world.now += UNDER_WAY_S + 1
    world.pod("given")
    [fault] = world.observer.violations
    assert "n0: 14000 of cpu given away, 8000 are there (base units), with pod chaos/given" in fault
    world.pod("grows", "1")
    world.now += UNDER_WAY_S + 1
    world.pod("fits")
    assert len(world.observer.violations) == 1
    for name in ("grows", "under-way", "given", "fits"):
        world.observer.gone(name)
    assert not any(world.observer._used["n0"].values())


def test_who_names_a_full_node_is_no_fault_and_who_is_given_a_place_there_later_is() -> None:
    world = World()
    for name in range(8):
        world.pod(f"given-{name}")
    world.pod("forged", forged=True)
    assert world.observer.violations == []
    world.now += UNDER_WAY_S + 1
    world.pod("given-8")
    [fault] = world.observer.violations
    assert "n0: 10000 of cpu given away, 8000 are there (base units), with pod chaos/given-8" in fault


@pytest.mark.parametrize("after_s", [1.0, UNDER_WAY_S + 1])
def test_nothing_is_given_on_a_node_that_shrank_but_what_was_under_way(after_s: float) -> None:
    world = World()
    world.observer.node_is(
        {**NODE, "status": {**NODE["status"], "allocatable": {"cpu": "50m", "memory": "64Gi", "pods": "110"}}}
    )
    world.now += after_s
    world.pod("given")
    assert bool(world.observer.violations) == (after_s > UNDER_WAY_S)
    world.observer.node_is(NODE)
    world.now += UNDER_WAY_S + 1
    known = len(world.observer.violations)
    world.pod("fits")
    assert len(world.observer.violations) == known


def test_strangers_take_room_and_are_not_judged() -> None:
    world = World()
    world.pod("nasty", "100", namespace=STRANGERS)
    assert world.observer.violations == []
    assert world.observer.waiting(made_before=world.now) == []
    world.now += UNDER_WAY_S + 1
    world.pod("given")
    assert len(world.observer.violations) == 1
    world.observer.gone("nasty")
    world.pod("fits")
    assert len(world.observer.violations) == 1
