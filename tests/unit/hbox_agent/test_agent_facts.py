"""Published facts of a node, and when they are due."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_agent.core import Publication, holders, node_devices
from hbox_agent.core.facts import zone_memory
from hbox_agent.core.publication import PATIENCE_S, REPUBLISH_S
from hbox_common.errors import InvalidRequest
from hbox_common.kubelet.podresources import (
    AllocatableResources,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    PodResources,
)
from hbox_common.kubelet.protobuf import text
from hbox_common.model import ContainerHolds, DeviceIds, HeldMemory, NodeDevices, NodeName, ZoneMemory
from hbox_common.model.nodedevices import MAX_CONTAINERS, MAX_IDS
from hbox_common.model.nodezones import MAX_UNITS

N = NodeName("n1")
GPU = "nvidia.com/gpu"


def pod(name: str, *ids: str, numa: tuple[int, ...] = (0,), cpus: tuple[int, ...] = ()) -> PodResources:
    devices = tuple(ContainerDevices(GPU, (id_,), numa) for id_ in ids)
    return PodResources("team", name, (ContainerResources("main", devices, cpus),))


def facts_of(*pods: PodResources, uids: dict[tuple[str, str], str] | None = None) -> NodeDevices:
    return node_devices(N, pods, AllocatableResources(), uids or {}, at=1.0)


def test_devices_of_one_place_are_one_value_and_the_order_is_ours() -> None:
    assert facts_of(pod("b", "g3", "g1"), pod("a", "g2", cpus=(9, 8, 1))).holds == (
        ContainerHolds("team", "a", "main", (DeviceIds(GPU, ("g2",), (0,)),), "1,8-9"),
        ContainerHolds("team", "b", "main", (DeviceIds(GPU, ("g1", "g3"), (0,)),)),
    )


def test_who_has_nothing_of_its_own_is_not_in_it() -> None:
    assert facts_of(PodResources("team", "web", (ContainerResources("main"),))).holds == ()


def test_memory_is_published_with_its_numa_node() -> None:
    kept = ContainerResources("main", memory=(ContainerMemory("memory", 2**30, (1,)),))
    assert facts_of(PodResources("team", "db", (kept,))).holds[0].memory == (HeldMemory("memory", 2**30, (1,)),)


def test_a_uid_stands_there_only_where_all_devices_agree_on_it() -> None:
    uids = {(GPU, "g1"): "u1", (GPU, "g2"): "u1", (GPU, "g3"): "u2"}
    assert facts_of(pod("a", "g1", "g2"), uids=uids).holds[0].uid == "u1"
    assert facts_of(pod("a", "g1", "g3"), uids=uids).holds[0].uid == ""
    assert facts_of(pod("a", "g1", "g4"), uids=uids).holds[0].uid == ""


def test_what_no_message_takes_is_counted() -> None:
    many = [pod(f"p{i:04}", f"g{i}") for i in range(MAX_CONTAINERS + 3)]
    found = facts_of(*many)
    assert (len(found.holds), found.left_out) == (MAX_CONTAINERS, 3)
    wide = facts_of(pod("a", *(f"g{i}" for i in range(MAX_IDS + 1))))
    assert (wide.holds, wide.left_out) == ((), 1)


@pytest.mark.parametrize("name", ["x" * 300, "a\x1b[2J", "a\nb"])
def test_a_name_that_is_not_plain_is_left_out(name: str) -> None:
    assert facts_of(pod(name, "g1")) == replace(facts_of(), left_out=1)


def checkpoint(devices: Any) -> bytes:
    entry = {"PodUID": "u1", "ContainerName": "main", "ResourceName": GPU, "DeviceIDs": devices}
    return json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 0}).encode()


@pytest.mark.parametrize("devices", [{"0": ["g1"], "-1": ["g2"]}, ["g1", "g2"]])
def test_both_forms_of_the_checkpoint_are_read(devices: Any) -> None:
    assert holders(checkpoint(devices)) == {(GPU, "g1"): "u1", (GPU, "g2"): "u1"}


@pytest.mark.parametrize("more", [{}, {"BootID": "b"}, {"Checksum": 10**40}], ids=["1.20", "1.37", "a sum that is none"])
def test_what_else_a_checkpoint_says_is_skipped(more: dict[str, Any]) -> None:
    assert holders(json.dumps(json.loads(checkpoint(["g1"])) | more).encode()) == {(GPU, "g1"): "u1"}
    assert holders(b'{"Data": {"PodDeviceEntries": null}}') == {}, "nobody holds anything"


NESTED = b"[" * 100_000


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"Data": null}',
        b'{"Data": {}}',
        b'{"Data": {"PodDeviceEntries": 3}}',
        b'{"Data": {"PodDeviceEntries": [3]}}',
        b'{"Data": {"PodDeviceEntries": [{"PodUID": 1e308, "ResourceName": "r"}]}}',
        b'{"Data": {"PodDeviceEntries": [{"PodUID": "u", "ResourceName": "r", "DeviceIDs": {"0": [1]}}]}}',
        b'{"Data": {"PodDeviceEntries": [], "RegisteredDevices": ' + NESTED + b"}}",
        b'{"Data": {"PodDeviceEntries": [' + b'{"PodUID":"u","ResourceName":"r"},' * 260_000 + b"{}]}}",
        checkpoint([f"g{i}" for i in range(100_001)]),
        NESTED,
    ],
    ids=range(15),
)
def test_what_is_no_checkpoint_is_said(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"^it "):
        holders(text)


def test_of_a_key_that_stands_twice_the_last_counts_as_in_go() -> None:
    assert holders(b'{"Data": {"PodDeviceEntries": 3}, "Data": {"PodDeviceEntries": []}}') == {}


NESTING = st.recursive(
    st.none() | st.text() | st.integers() | st.floats(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
)


@pytest.mark.hypothesis
@given(st.binary() | NESTING)
def test_no_checkpoint_does_anything_but_say_that_it_is_none(content: Any) -> None:
    with suppress(InvalidRequest):
        holders(content if isinstance(content, bytes) else json.dumps({"Data": {"PodDeviceEntries": content}}).encode())


def state(at: float, *pods: PodResources) -> NodeDevices:
    return replace(facts_of(*pods), at=at)


def test_facts_are_published_on_changes_and_after_republish_s() -> None:
    publication = Publication(N)
    assert publication.due(now=0.0) is None, "nothing is known"
    publication.answered(state(1.0))
    assert publication.due(now=1.0) == state(1.0), "a first answer without holders is published"
    publication.published = state(1.0)
    publication.answered(state(9.0))
    assert publication.due(now=9.0) is None
    publication.answered(state(10.0, pod("a", "g1")))
    assert publication.due(now=10.0) == state(10.0, pod("a", "g1"))
    publication.published = state(10.0, pod("a", "g1"))
    publication.answered(state(10.0 + REPUBLISH_S, pod("a", "g1")))
    assert publication.due(now=10.0 + REPUBLISH_S) == state(10.0 + REPUBLISH_S, pod("a", "g1"))


def test_facts_in_the_stream_are_not_published_again_after_a_restart() -> None:
    publication = Publication(N, published=state(1.0, pod("a", "g1")))
    publication.answered(state(5.0, pod("a", "g1")))
    assert publication.due(now=5.0) is None


def test_a_kubelet_that_is_silent_for_long_is_told_with_its_last_words() -> None:
    publication = Publication(N)
    publication.answered(state(1.0, pod("a", "g1")))
    publication.published = state(1.0, pod("a", "g1"))
    publication.failed("no such file", now=2.0)
    assert (publication.due(now=2.0), publication.silent) == (None, False), "kubelets restart"
    publication.failed("no such file\x1b", now=2.0 + PATIENCE_S)
    due = publication.due(now=2.0 + PATIENCE_S)
    assert due is not None
    assert (due.problem, due.holds, due.at) == ("no such file�", state(1.0, pod("a", "g1")).holds, 1.0)
    assert publication.silent
    publication.published = due
    publication.answered(state(30.0, pod("a", "g1")))
    assert publication.due(now=30.0) == state(30.0, pod("a", "g1"))


def test_a_kubelet_that_never_answered_is_told() -> None:
    publication = Publication(N)
    publication.failed("refused", now=0.0)
    publication.failed("refused", now=PATIENCE_S)
    due = publication.due(now=PATIENCE_S)
    assert due is not None
    assert (due.problem, due.holds) == ("refused", ())


STATE = {
    "policyName": "Static",
    "machineState": {
        "1": {
            "numberOfAssignments": 2,
            "memoryMap": {"memory": {"total": 9, "systemReserved": 1, "allocatable": 8, "reserved": 3, "free": 5}},
            "cells": [1, 0],
        },
        "0": {
            "numberOfAssignments": 2,
            "memoryMap": {"memory": {"allocatable": 8, "free": 1}, "hugepages-2Mi": {"allocatable": 4, "free": 4}, "other": {}},
            "cells": [0, 1],
        },
    },
    "entries": {},
    "checksum": 1,
}


def test_the_memory_managers_checkpoint_says_what_each_numa_node_gives() -> None:
    assert zone_memory(json.dumps(STATE).encode()) == (
        ZoneMemory(0, {"hugepages-2Mi": 4, "memory": 8}, {"hugepages-2Mi": 4, "memory": 1}, 2, (0, 1)),
        ZoneMemory(1, {"memory": 8}, {"memory": 5}, 2, (0, 1)),
    )
    assert zone_memory(json.dumps(STATE | {"policyName": "None"}).encode()) == ()


def memory_state(**own: Any) -> bytes:
    zone = {"numberOfAssignments": 1, "memoryMap": {"memory": {"allocatable": 8, "free": 8}}, "cells": [0]} | own
    return json.dumps({"policyName": "Static", "machineState": {"0": zone}}).encode()


@pytest.mark.parametrize("free", [-5, 2**63, 10**60, MAX_UNITS, 9])
def test_amounts_that_no_numa_node_has_are_those_that_it_may_have(free: int) -> None:
    [zone] = zone_memory(memory_state(numberOfAssignments=free, memoryMap={"memory": {"allocatable": 8, "free": free}}))
    assert 0 <= zone.free["memory"] <= 8
    assert zone.assigned >= 0


@pytest.mark.parametrize("free", [1e308, "many", None, [], 1e400, float("nan"), True, {}], ids=range(8))
def test_amounts_that_are_none_are_said(free: Any) -> None:
    with pytest.raises(InvalidRequest, match="no such checkpoint"):
        zone_memory(memory_state(memoryMap={"memory": {"allocatable": 8, "free": free}}))


@pytest.mark.parametrize("text", ["-1", "70000", "9" * 5000, "\u0661", "1_0", "", "a\x1bb"])
def test_a_numa_node_that_nobody_has_is_said(text: str) -> None:
    state = json.loads(memory_state())
    state["machineState"] = {text: state["machineState"]["0"]}
    with pytest.raises(InvalidRequest, match="it names a NUMA node"):
        zone_memory(json.dumps(state).encode())


@pytest.mark.parametrize(
    "zones",
    [{"0": {"memoryMap": {}}, "00": {"memoryMap": {}}}, {str(i): {"memoryMap": {}} for i in range(129)}],
    ids=["twice", "129"],
)
def test_numa_nodes_that_no_node_has_are_said(zones: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"twice|129 NUMA nodes"):
        zone_memory(json.dumps({"policyName": "Static", "machineState": zones}).encode())


@pytest.mark.hypothesis
@given(st.binary() | NESTING)
def test_no_state_of_a_memory_manager_does_anything_but_say_that_it_is_none(content: Any) -> None:
    with suppress(InvalidRequest):
        zone_memory(
            content if isinstance(content, bytes) else json.dumps({"policyName": "Static", "machineState": content}).encode()
        )


def test_a_name_or_id_that_is_no_utf_8_leaves_out_its_container_and_no_other() -> None:
    torn = text(b"g\xff1")
    assert facts_of(pod("a", "g1"), pod("b", torn)) == replace(facts_of(pod("a", "g1")), left_out=1)
    given = AllocatableResources((ContainerDevices(GPU, (torn, "g2"), (0,)), ContainerDevices(torn, ("x",), (0,))))
    found = node_devices(N, (), given, {}, at=1.0)
    assert ([part.ids for part in found.allocatable], found.left_out) == ([("g2",)], 2)


def test_places_without_end_are_left_out() -> None:
    """A message takes none of them: the broker closes the connection over one that is too large."""
    everywhere, odd = tuple(range(60_000)), tuple(range(0, 65_000, 2))
    kept = ContainerMemory("memory", 2**30, everywhere)
    wide = [
        PodResources("t", "m", (ContainerResources("c", memory=(kept,)),)),
        pod("d", "g1", numa=everywhere),
        pod("c", cpus=odd),
    ]
    given = AllocatableResources(tuple(ContainerDevices(f"r{i}", ("x",), everywhere) for i in range(9)))
    found = node_devices(N, [*wide, pod("z", "g2")], given, {}, at=1.0)
    assert (found.allocatable, found.left_out) == ((), 3 + 9)
    assert [one.pod for one in found.holds] == ["z"]
