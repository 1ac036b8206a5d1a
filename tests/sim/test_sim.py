"""Seeds in virtual time: the same digest twice and under another order of hashes, no broken promise, and the doors themselves."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, aclosing
from random import Random
from typing import Any, cast

import pytest

from hbox_common.clock import monotonic_s, new_id, wall_s
from hbox_common.kube import NODES as NODE_OBJECTS
from hbox_sandbox.trace import TraceNode, node_manifest

from .api import SimApi, Trouble
from .broker import Broker, Consumer, StreamState, matches
from .faults import KINDS, QUIET_S, WIDE, Fault, drawn, last_end, parse
from .loop import EPOCH_S, PROCESS, Process, VirtualLoop, virtual
from .run import Outcome, Violation, minimised
from .world import Plan

SECONDS, NODES, PODS = 75.0, 6, 2.0


def _sim(*parts: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-m", "tests.sim", *parts], capture_output=True, text=True, check=False, timeout=500, env=environment
    )


def _virtual(main: Callable[[VirtualLoop], Any]) -> Any:
    """What a coroutine returns in virtual time."""
    loop = VirtualLoop()
    with virtual(loop, Random(1)):
        try:
            return loop.run_until_complete(main(loop))
        finally:
            loop.close()


def test_seeds_break_no_promise_and_give_the_same_digest_under_another_order_of_hashes() -> None:
    parts = ("--seconds", f"{SECONDS:g}", "--nodes", str(NODES), "--pods", f"{PODS:g}")
    many = _sim("--seed", "1", "--seeds", "10", *parts, hash_seed="1")
    assert many.returncode == 0, many.stdout + many.stderr
    digests = re.findall(r"^seed (\d+): digest ([0-9a-f]{32}), (\d+) pods bound", many.stdout, re.MULTILINE)
    assert [int(seed) for seed, _, _ in digests] == [*range(1, 11)]
    assert len({digest for _, digest, _ in digests}) == 10
    assert all(int(bound) > 10 for _, _, bound in digests)
    again = _sim("--seed", "3", *parts, hash_seed="2")
    assert f"seed 3: digest {digests[2][1]}," in again.stdout, again.stdout + again.stderr


def test_ten_minutes_pass_without_waiting() -> None:
    async def main(loop: VirtualLoop) -> tuple[float, float, float]:
        began, wall = monotonic_s(), wall_s()
        await asyncio.sleep(600)
        return monotonic_s() - began, wall_s() - wall, wall

    waited, by_wall, wall = _virtual(main)
    assert waited == pytest.approx(600, abs=0.01)
    assert by_wall == pytest.approx(600, abs=0.01)
    assert wall == pytest.approx(EPOCH_S, abs=0.01)


def test_ids_are_those_of_the_seed() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        return [new_id(), new_id()]

    assert _virtual(main) == _virtual(main)
    assert len(set(_virtual(main))) == 2


def test_a_killed_process_runs_no_clean_up_and_a_paused_one_continues() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        done: list[str] = []

        async def work(name: str) -> None:
            try:
                await asyncio.sleep(1)
                done.append(f"{name} worked")
            finally:
                done.append(f"{name} cleaned up")

        tasks, processes = [], []
        for name in ("killed", "paused"):
            process = Process(name, name)
            token = PROCESS.set(process)
            tasks.append(asyncio.create_task(work(name)))
            PROCESS.reset(token)
            processes.append(process)
        await asyncio.sleep(0.5)
        processes[0].alive, processes[1].paused = False, True
        await asyncio.sleep(10)
        assert done == []
        loop.resume(processes[1])
        await tasks[1]
        processes[0].alive = True
        await asyncio.gather(tasks[0], return_exceptions=True) if tasks[0].done() else tasks[0].cancel()
        return done

    assert _virtual(main)[:2] == ["paused worked", "paused cleaned up"]


def test_the_wall_clock_of_a_service_is_its_own() -> None:
    async def main(loop: VirtualLoop) -> float:
        before = wall_s()
        PROCESS.set(Process("binder", "binder-1", skew_s=20.0))
        return wall_s() - before

    assert _virtual(main) == pytest.approx(20.0)


class _Nothing:
    def add(self, *parts: object) -> None:
        pass


def _stream(**config: Any) -> StreamState:
    return StreamState({"name": "S", "subjects": ["a.>"], **config}, "2027-01-01T00:00:00+00:00")


def test_a_message_id_is_stored_once() -> None:
    loop = VirtualLoop()
    broker = Broker(loop, Random(1), _Nothing())
    loop.close()
    stream = _stream()
    first = broker._store(stream, "a.b", {"Nats-Msg-Id": "x"}, b"1")
    assert broker._store(stream, "a.b", {"Nats-Msg-Id": "x"}, b"1") == first | {"duplicate": True}
    assert broker._store(stream, "a.b", {"Nats-Msg-Id": "y"}, b"1")["seq"] == 2


@pytest.mark.parametrize("call", ["INFO", "STREAM.PURGE.S", "CONSUMER.LEADER.STEPDOWN.S.c"])
def test_a_call_that_the_broker_does_not_know_is_not_answered(call: str) -> None:
    loop = VirtualLoop()
    broker = Broker(loop, Random(1), _Nothing())
    loop.close()
    assert broker._call("STREAM.CREATE.S", b'{"name": "S", "subjects": ["a"]}') is not None
    assert broker._call(call, b"") is None
    assert (broker._call("STREAM.INFO.T", b"") or {})["error"]["code"] == 404


def test_a_stream_of_last_values_keeps_one_message_of_each_subject() -> None:
    stream = _stream(max_msgs_per_subject=1)
    for body in (b"1", b"2"):
        stream.store("a.b", {}, body, 1)
    stream.store("a.c", {}, b"3", 1)
    assert [(one.subject, one.body) for one in stream.messages.values()] == [("a.b", b"2"), ("a.c", b"3")]
    reader = Consumer(stream, "r", {"deliver_policy": "last_per_subject", "filter_subject": "a.*"}, 0.0)
    assert reader.pending == 2
    taken = [reader.take(), reader.take()]
    assert [one.body for one in taken if one is not None] == [b"2", b"3"]
    assert reader.take() is None
    assert reader.pending == 0


def test_a_broker_that_forgets_gives_the_lost_sequences_again() -> None:
    stream = _stream()
    for at in (10, 20, 30):
        stream.store("a.b", {"Nats-Msg-Id": str(at)}, b"", at)
        stream.ids[str(at)] = stream.last, at
    reader = Consumer(stream, "r", {}, 0.0)
    stream.consumers["r"] = reader
    while reader.take() is not None:
        pass
    assert stream.truncate(20) == 2
    assert stream.last == 1
    assert set(stream.ids) == {"10"}
    stream.store("a.b", {}, b"new", 40)
    found = reader.take()
    assert found is not None
    assert found.body == b"new"
    assert found.sequence == 2


@pytest.mark.parametrize("silent", [False, True])
def test_a_watch_that_was_silent_until_its_end_sends_no_bookmark_beyond_its_events(silent: bool) -> None:
    stack = ExitStack()

    async def main(loop: VirtualLoop) -> tuple[list[dict[str, Any]], int]:
        api = SimApi(loop, Random(1), _Nothing())
        PROCESS.set(Process("binder", "binder-1"))
        trouble = Trouble()
        api.trouble["binder"] = trouble
        client, lines = api.client("test"), list[bytes]()
        stack.enter_context(api.installed())

        async def read() -> None:
            wanted = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "5"}
            async with aclosing(cast(Any, api.watch(cast(Any, client)._sim, NODE_OBJECTS.path(), wanted, 60.0))) as watching:
                async for some in watching:
                    lines.extend(some)

        reading = asyncio.create_task(read())
        await asyncio.sleep(1)
        trouble.silent = silent
        before = api.store.revision
        manifest = node_manifest(TraceNode("n0", 1000, 1000, 1, "H100"), now="2027-01-01T00:00:00Z")
        await client.json("POST", NODE_OBJECTS.path(), body=manifest)
        await asyncio.sleep(6)
        trouble.silent = False
        await reading
        return [json.loads(line) for line in lines], before

    with stack:
        events, before = _virtual(main)
    added = [one for one in events if one["type"] == "ADDED"]
    beyond = [one for one in events if one["type"] == "BOOKMARK" and int(one["object"]["metadata"]["resourceVersion"]) > before]
    assert bool(added) is not silent
    assert bool(beyond) is not silent


@pytest.mark.parametrize(
    ("wanted", "subject", "is_matched"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("*.b", "a.b", True),
        ("a.b", "a.bc", False),
        ("a.b", "axb", False),
    ],
)
def test_subjects_match_as_in_nats(wanted: str, subject: str, is_matched: bool) -> None:
    assert matches(wanted, subject) is is_matched


def test_faults_are_those_of_the_seed_and_end_before_the_quiet_time() -> None:
    for seed in range(200):
        faults = drawn(seed, 120.0)
        assert faults == drawn(seed, 120.0)
        assert last_end(faults) <= 120.0 - QUIET_S + 1e-6
        assert [parse(str(fault)) for fault in faults] == faults
        assert last_end(drawn(seed, 120.0, wide=True)) <= 120.0 - QUIET_S + 1e-6
    assert {fault.kind for seed in range(200) for fault in drawn(seed, 120.0)} == set(KINDS) - WIDE
    assert {fault.kind for seed in range(200) for fault in drawn(seed, 120.0, wide=True)} == set(KINDS)


def test_delta_debugging_keeps_the_two_faults_that_matter() -> None:
    faults = tuple(Fault(float(i), "kill", "binder", 1.0) for i in range(12))
    tries = 0

    def attempt(chosen: Sequence[Fault]) -> Outcome:
        nonlocal tries
        tries += 1
        broken = {faults[3], faults[9]} <= set(chosen)
        violations = [Violation("rule", 1.0, "")] if broken else []
        return Outcome(Plan(1), tuple(chosen), "", 0, 0, violations, 0.0, 0.0)

    assert minimised(attempt(faults), attempt).faults == (faults[3], faults[9])
    assert tries < 25
    assert len(minimised(attempt(faults), attempt, most=3).faults) == 9
