"""Kubelets, plugins and whoever writes in the kubelet's folder that mean harm: what was known stands, the reason is told, and nothing waits."""

import asyncio
import itertools
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from hbox_agent import metrics
from hbox_common.clock import monotonic_s, processor_s
from hbox_common.events import NodeNumaChanged
from hbox_common.kubelet import ALLOCATABLE, LIST, listening
from hbox_common.model import NodeDevices, NodeNuma, ZoneMemory

from ...waiting import until
from .agent_world import GPU, AgentWorld

Answer = Callable[[H2Connection, int], bytes]

HEADERS = [(":status", "200"), ("content-type", "application/grpc")]


def answered(body: bytes) -> Answer:
    def answer(connection: H2Connection, stream: int) -> bytes:
        connection.send_headers(stream, HEADERS)
        connection.send_data(stream, b"\0" + len(body).to_bytes(4) + body)
        connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)
        return connection.data_to_send()

    return answer


def midway(connection: H2Connection, stream: int) -> bytes:
    return answered(b"\x0a\x00" * 8_000)(connection, stream)[:10_000]


#: Bounds of an answer of small parts, in these tests: as many as there may be are seconds of a processor.
MAX_FIELDS, MOST_MIB = 200_000, 1


def frames(frame: bytes) -> Answer:
    """So many of them as fit into half as much again as an answer may have."""

    def answer(connection: H2Connection, stream: int) -> bytes:
        connection.send_headers(stream, HEADERS)
        one = frame.replace(b"SSSS", stream.to_bytes(4))
        return connection.data_to_send() + one * (3 * MOST_MIB * 2**19 // len(one))

    return answer


def silence(_: H2Connection, __: int) -> bytes:
    return b""


HOSTILE: dict[str, tuple[Answer | bytes, str]] = {
    "pods without end, each of two bytes": (b"\x0a\x00" * (MAX_FIELDS + 1), f"more than {MAX_FIELDS} fields"),
    "more than an answer may have": (b"\0" * 17 * 2**20, "more than 16 MiB"),
    "empty frames without end": (frames(b"\0\0\0\0\0SSSS"), f"more than {MOST_MIB} MiB"),
    "pings without end": (frames(b"\0\0\x08\x06\0\0\0\0\0--------"), f"more than {MOST_MIB} MiB"),
    "an end midway": (midway, "the connection ended before|Broken pipe|reset"),
    "no answer at all": (silence, "no answer"),
    "a number of eleven bytes": (answered(b"\x08" + b"\xff" * 10 + b"\x01"), "more than 64 bits"),
    "a CPU that no node has": (answered(b"\x0a\x0d\x1a\x0b\x18" + b"\xff" * 9 + b"\x01"), "a CPU that no node has"),
    "a message that ends within a field": (answered(b"\x0a\xff\xff\xff\x7f"), "ends within a field"),
}


@asynccontextmanager
async def hostile(world: AgentWorld, answer: Answer | bytes) -> AsyncIterator[None]:
    """Answers so to everybody; with bytes as a server does that keeps to its caller's window."""
    if isinstance(answer, bytes):

        async def long(_: bytes) -> bytes:
            return answer

        async with listening(world.root / "pod-resources" / "kubelet.sock", {LIST: long}):
            yield
        return
    callers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            callers.add(task)
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        try:
            connection.receive_data(await reader.read(65_536))
            writer.write(connection.data_to_send() + answer(connection, 1))
            if answer is not midway:
                await reader.read()
        except (OSError, asyncio.CancelledError):
            pass  # Python 3.11 logs an error for each connection whose task ends as cancelled
        finally:
            writer.close() if answer is midway else writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    path = world.root / "pod-resources" / "kubelet.sock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        await asyncio.sleep(0.01)  # tasks of connections that were just accepted begin, and close them
        for task in callers:
            task.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("name", HOSTILE)
async def test_an_answer_that_means_harm_leaves_what_was_known_and_the_loop_free(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("hbox_agent.core.publication.PATIENCE_S", 0.0)
    answer, problem = HOSTILE[name]
    endless = not isinstance(answer, bytes) and problem.startswith("more than")  # a busy machine takes its time to read so much
    monkeypatch.setattr("hbox_agent.adapters.kubelet.ANSWER_S", 20.0 if endless else 3.0)
    monkeypatch.setattr("hbox_common.kubelet.podresources.MAX_FIELDS", MAX_FIELDS)
    if not isinstance(answer, bytes):
        monkeypatch.setattr("hbox_common.kubelet.grpc.MOST_BYTES", MOST_MIB * 2**20)
    world.give("train-0", "g0")
    async with world.agent(resync_s=1.0):
        async with world.kubelet():
            before = await world.hears("train-0")
        async with hostile(world, answer):
            watch = asyncio.create_task(_longest_stop())

            async def with_the_problem() -> NodeDevices | None:
                said = await world.said()
                return said if said is not None and re.search(problem, said.problem) else None

            said = await until(with_the_problem, problem, timeout_s=60)
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            assert said.holds == before.holds
        async with world.kubelet():
            await world.hears("train-0")


async def _longest_stop() -> None:
    """Fails where the loop stood still for long: seconds, where answers are read on it."""
    while True:
        before = monotonic_s()
        await asyncio.sleep(0.01)
        assert monotonic_s() - before < 5.0, "the loop stood still"


async def test_a_kubelet_that_means_harm_has_a_quarter_of_a_processor_and_one_that_hangs_is_asked_again_at_once(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_common.kubelet.podresources.MAX_FIELDS", 200_000)
    calls: list[float] = []

    async def costly(_: bytes) -> bytes:
        calls.append(monotonic_s())
        return b"\x0a\x00" * 200_001

    def hung(_: H2Connection, __: int) -> bytes:
        calls.append(monotonic_s())
        return b""

    world.give("train-0", "g0")
    async with listening(world.root / "pod-resources" / "kubelet.sock", {LIST: costly}), world.agent():
        await until(lambda: len(calls) >= 2)
        before, spent = calls[-1], processor_s()
        await until(lambda: calls[-1] > before)
        assert calls[-1] - before >= 2 * (processor_s() - spent), "what an answer costs, here with the kubelet's own part"
    calls.clear()
    monkeypatch.setattr("hbox_agent.adapters.kubelet.ANSWER_S", 0.4)
    async with hostile(world, hung), world.agent():
        await until(lambda: len(calls) >= 4)
    assert max(after - before for before, after in itertools.pairwise(calls)) < 5.0, "no rest for what cost nothing"


@pytest.mark.parametrize("answer", [b"\x0a\x00" * 10_001, b"\0" * (2**18 + 1)], ids=["fields", "bytes"])
async def test_more_devices_than_are_read_leave_what_could_be_given_out_and_pods_are_told(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    """Of one plugin a kubelet takes 4 MiB; several together may pass our bounds, which are low here."""
    monkeypatch.setattr("hbox_common.kubelet.podresources.MAX_FIELDS", 10_000)
    monkeypatch.setattr("hbox_common.kubelet.grpc.MOST_BYTES", 2**18)
    world.give("train-0", "g0")
    socket = world.root / "pod-resources" / "kubelet.sock"

    async def beyond(_: bytes) -> bytes:
        return answer

    async def with_the_problem() -> NodeDevices | None:
        said = await world.said()
        return said if said is not None and said.problems else None

    async with world.agent(resync_s=0.3), listening(socket, {LIST: world.list_pods, ALLOCATABLE: beyond}):
        said = await until(with_the_problem)
        assert ([one.pod for one in said.holds], said.problem) == (["train-0"], "")
        assert said.problems[0].startswith("GetAllocatableResources: ")
        assert (said.allocatable, said.left_out) == ((), 1), "of a node of which nothing was known"
    async with world.agent(resync_s=0.3):
        async with world.kubelet():
            good = await world.hears("train-0")
            while good.problems:
                good = await world.hears("train-0")
        assert good.allocatable
        async with listening(socket, {LIST: world.list_pods, ALLOCATABLE: beyond}):
            said = await until(with_the_problem)
            assert (said.allocatable, said.left_out) == (good.allocatable, 0)


CHECKPOINT, MEMORY = "device-plugins/kubelet_internal_checkpoint", "memory_manager_state"
STATE = {"policyName": "Static", "machineState": {"0": {"memoryMap": {"memory": {"allocatable": 8, "free": 5}}, "cells": [0]}}}
ENTRY = b'{"PodUID":"u","ResourceName":"r"},'


async def test_checkpoints_that_mean_harm_are_named_once_and_good_ones_count_again(
    world: AgentWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "hbox_agent")
    world.write(MEMORY, json.dumps(STATE))
    world.give("train-0", "g0")
    async with world.kubelet(), world.agent(resync_s=0.2):
        good = await world.hears("train-0")
        assert ([one.uid for one in good.holds], good.problems) == (["uid-train-0"], ())
        assert good.memory == (ZoneMemory(0, {"memory": 8}, {"memory": 5}, 0, (0,)),)
        for bad in (b'{"Data": {"PodDeviceEntries": [' + ENTRY * 300_000, b"[" * 2**20, b"\xff", b"x" * (65 * 2**20)):
            world.write(CHECKPOINT, bad)
            world.write(MEMORY, bad)
            watch = asyncio.create_task(_longest_stop())

            async def named() -> NodeDevices | None:
                said = await world.said()
                return said if said is not None and len(said.problems) == 2 else None

            said = await until(named)
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            assert [one.partition(": it ")[0] for one in said.problems] == ["kubelet_internal_checkpoint", MEMORY]
            assert (said.memory, said.problem) == (good.memory, ""), "what the memory manager had stands"
            assert [(one.pod, one.uid) for one in said.holds] == [("train-0", "")], "a name alone may be another pod's"
            await until(lambda: metrics.UNREAD._value.get() >= 2)
        await asyncio.sleep(0.6)
        warned = len(caplog.records)
        await asyncio.sleep(0.6)
        assert len(caplog.records) == warned, "once, and not at each look"
        world.write(MEMORY, json.dumps(STATE))
        world.give("train-0", "g0")

        async def mended() -> NodeDevices | None:
            said = await world.said()
            return said if said is not None and not said.problems else None

        said = await until(mended)
        assert replace(said, at=good.at) == good


async def test_a_configuration_that_breaks_leaves_the_rules_by_which_the_kubelet_started(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def numa(problem: str, policy: str = "restricted") -> NodeNuma:
        async def with_the_rules() -> NodeNuma | None:
            for one in await world.bus.last(NodeNumaChanged, [("n1",)]):
                if isinstance(one.event, NodeNumaChanged) and problem in "; ".join((found := one.event.numa).problems):
                    return found if found.rules is not None and found.rules.topology_manager == policy else None
            return None

        found: NodeNuma = await until(with_the_rules, problem)
        return found

    monkeypatch.setattr("hbox_agent.app.MACHINE_S", 0.2)
    world.write("config.yaml", "topologyManagerPolicy: restricted")
    async with world.kubelet(), world.agent():
        await world.hears()
        assert "configuration" not in "; ".join((await numa("")).problems)
        for bad, why in {
            "a: &a [x, x]\ntopologyManagerPolicy: [*a]": "holds a list or map",
            "[" * 10_000: "nested too deep",
            "#" * 2**19: "256 KiB",
        }.items():
            world.write("config.yaml", bad)
            await numa(why)
        world.write("config.yaml", "topologyManagerPolicy: best-effort")
        assert "configuration" not in "; ".join((await numa("", "best-effort")).problems)


async def test_a_device_id_that_is_no_utf_8_hides_no_other_container(world: AgentWorld) -> None:
    """Go's plugins hand the kubelet bytes, and it passes them on."""
    world.give("a", "g0")
    body = (await world.list_pods(b"")).replace(b"g0", b"g\xff")
    world.give("b", "g1")

    async def torn(_: bytes) -> bytes:
        return body + await AgentWorld.list_pods(world, b"")

    del world.held["a"]
    world.list_pods = torn  # type: ignore[method-assign]
    async with world.kubelet(), world.agent():
        said = await world.hears("b")
        assert (said.left_out, [part.ids for part in said.holds[0].devices]) == (1, [("g1",)])
        assert said.holds[0].devices[0].resource == GPU
