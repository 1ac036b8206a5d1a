"""What is told of a node, and when."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_agent.core import Telling, holders, node_devices
from hbox_agent.core.facts import zone_memory
from hbox_agent.core.telling import PATIENCE_S, RESAY_S
from hbox_common.kubelet.podresources import (
    AllocatableResources,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    PodResources,
)
from hbox_common.model import ContainerHolds, DeviceIds, HeldMemory, NodeDevices, NodeName, ZoneMemory
from hbox_common.model.nodedevices import MAX_CONTAINERS, MAX_IDS
from hbox_common.model.nodezones import MAX_UNITS

N = NodeName("n1")
GPU = "nvidia.com/gpu"


def pod(name: str, *ids: str, numa: tuple[int, ...] = (0,), cpus: tuple[int, ...] = ()) -> PodResources:
    devices = tuple(ContainerDevices(GPU, (id_,), numa) for id_ in ids)
    return PodResources("team", name, (ContainerResources("main", devices, cpus),))


def told(*pods: PodResources, uids: dict[tuple[str, str], str] | None = None) -> NodeDevices:
    return node_devices(N, pods, AllocatableResources(), uids or {}, at=1.0)


def test_devices_of_one_place_are_one_value_and_the_order_is_ours() -> None:
    assert told(pod("b", "g3", "g1"), pod("a", "g2", cpus=(9, 8, 1))).holds == (
        ContainerHolds("team", "a", "main", (DeviceIds(GPU, ("g2",), (0,)),), "1,8-9"),
        ContainerHolds("team", "b", "main", (DeviceIds(GPU, ("g1", "g3"), (0,)),)),
    )


def test_who_has_nothing_of_its_own_is_not_in_it() -> None:
    assert told(PodResources("team", "web", (ContainerResources("main"),))).holds == ()


def test_memory_is_told_with_its_place() -> None:
    kept = ContainerResources("main", memory=(ContainerMemory("memory", 2**30, (1,)),))
    assert told(PodResources("team", "db", (kept,))).holds[0].memory == (HeldMemory("memory", 2**30, (1,)),)


def test_a_uid_stands_there_only_where_all_devices_agree_on_it() -> None:
    uids = {(GPU, "g1"): "u1", (GPU, "g2"): "u1", (GPU, "g3"): "u2"}
    assert told(pod("a", "g1", "g2"), uids=uids).holds[0].uid == "u1"
    assert told(pod("a", "g1", "g3"), uids=uids).holds[0].uid == ""
    assert told(pod("a", "g1", "g4"), uids=uids).holds[0].uid == ""


def test_what_no_message_takes_is_counted() -> None:
    many = [pod(f"p{i:04}", f"g{i}") for i in range(MAX_CONTAINERS + 3)]
    found = told(*many)
    assert (len(found.holds), found.left_out) == (MAX_CONTAINERS, 3)
    wide = told(pod("a", *(f"g{i}" for i in range(MAX_IDS + 1))))
    assert (wide.holds, wide.left_out) == ((), 1)


@pytest.mark.parametrize("name", ["x" * 300, "a\x1b[2J", "a\nb"])
def test_a_name_that_is_not_plain_is_left_out(name: str) -> None:
    assert told(pod(name, "g1")) == replace(told(), left_out=1)


def checkpoint(devices: Any) -> bytes:
    entry = {"PodUID": "u1", "ContainerName": "main", "ResourceName": GPU, "DeviceIDs": devices}
    return json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 0}).encode()


@pytest.mark.parametrize("devices", [{"0": ["g1"], "-1": ["g2"]}, ["g1", "g2"]])
def test_both_forms_of_the_checkpoint_are_read(devices: Any) -> None:
    assert holders(checkpoint(devices)) == {(GPU, "g1"): "u1", (GPU, "g2"): "u1"}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"Data": null}',
        b'{"Data": {"PodDeviceEntries": 3}}',
        b'{"Data": {"PodDeviceEntries": [3]}}',
    ],
)
def test_what_is_no_checkpoint_says_nothing(text: bytes) -> None:
    assert holders(text) == {}


@pytest.mark.hypothesis
@given(st.binary() | st.recursive(st.none() | st.text() | st.integers(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)))
def test_no_checkpoint_raises(content: Any) -> None:
    holders(content if isinstance(content, bytes) else json.dumps({"Data": {"PodDeviceEntries": content}}).encode())


def state(at: float, *pods: PodResources) -> NodeDevices:
    return replace(told(*pods), at=at)


def test_only_what_differs_is_said_and_everything_now_and_then() -> None:
    telling = Telling(N)
    assert telling.due(now=0.0) is None, "nothing is known"
    telling.answered(state(1.0))
    assert telling.due(now=1.0) == state(1.0), "that nobody holds anything is news"
    telling.said = state(1.0)
    telling.answered(state(9.0))
    assert telling.due(now=9.0) is None
    telling.answered(state(10.0, pod("a", "g1")))
    assert telling.due(now=10.0) == state(10.0, pod("a", "g1"))
    telling.said = state(10.0, pod("a", "g1"))
    telling.answered(state(10.0 + RESAY_S, pod("a", "g1")))
    assert telling.due(now=10.0 + RESAY_S) == state(10.0 + RESAY_S, pod("a", "g1"))


def test_what_the_stream_has_already_is_not_said_after_a_restart() -> None:
    telling = Telling(N, said=state(1.0, pod("a", "g1")))
    telling.answered(state(5.0, pod("a", "g1")))
    assert telling.due(now=5.0) is None


def test_a_kubelet_that_is_silent_for_long_is_told_with_its_last_words() -> None:
    telling = Telling(N)
    telling.answered(state(1.0, pod("a", "g1")))
    telling.said = state(1.0, pod("a", "g1"))
    telling.failed("no such file", now=2.0)
    assert (telling.due(now=2.0), telling.silent) == (None, False), "kubelets restart"
    telling.failed("no such file\x1b", now=2.0 + PATIENCE_S)
    due = telling.due(now=2.0 + PATIENCE_S)
    assert due is not None
    assert (due.problem, due.holds, due.at) == ("no such file�", state(1.0, pod("a", "g1")).holds, 1.0)
    assert telling.silent
    telling.said = due
    telling.answered(state(30.0, pod("a", "g1")))
    assert telling.due(now=30.0) == state(30.0, pod("a", "g1"))


def test_a_kubelet_that_never_answered_is_told() -> None:
    telling = Telling(N)
    telling.failed("refused", now=0.0)
    telling.failed("refused", now=PATIENCE_S)
    due = telling.due(now=PATIENCE_S)
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


@pytest.mark.parametrize(
    "free", [-5, 10**40, "many", None, [], 1e400, float("nan"), True, {}], ids=["negative", "huge", "text", "null", "list", "inf", "nan", "bool", "map"]
)  # fmt: skip
def test_amounts_that_no_numa_node_has_break_nothing(free: Any) -> None:
    state = {"0": {"numberOfAssignments": free, "memoryMap": {"memory": {"allocatable": 8, "free": free}}, "cells": [free]}}
    found = zone_memory(json.dumps({"policyName": "Static", "machineState": state}).encode())
    assert all(0 <= units <= MAX_UNITS for zone in found for units in zone.free.values())
    assert all(zone.assigned >= 0 for zone in found)


@pytest.mark.hypothesis
@given(st.binary() | st.recursive(st.none() | st.text() | st.integers(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)))
def test_no_state_of_a_memory_manager_raises(content: Any) -> None:
    zone_memory(
        content if isinstance(content, bytes) else json.dumps({"policyName": "Static", "machineState": content}).encode()
    )
