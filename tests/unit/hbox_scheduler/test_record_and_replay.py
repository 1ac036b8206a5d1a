"""What a scheduler is told, written down and told again: the same decisions, and plain words where there is something wrong with the record."""

import errno
import inspect
import io
import os
import threading
import time
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.model import SchedulerId
from hbox_scheduler.adapters.recorder import WRITE_EVERY_S, Recorder
from hbox_scheduler.core import Limits, Scheduler
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.framework.webhooks import Question
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.record.record import INPUTS, Call, Decided, Encoder, Framer, Head, Reader
from hbox_scheduler.core.record.replay import Replay
from hbox_scheduler.core.simulate import Simulation, job, node

#: Methods that change nothing a decision hangs on.
READS = {"mark", "advance"}  # advance: work that the next cycle has to do otherwise


def head(policy: PolicyName = PolicyName.BINPACK) -> Head:
    return Head("0.1.0", SchedulerId("simulation"), Limits(), default_conf(policy), 1_700_000_000.0)


def recorded(folder: Path, work: Callable[[Simulation], None], *, most_mib: int = 64) -> Path:
    """A file in which a simulation's scheduler was recorded while `work` ran."""
    recorder = Recorder(folder, most_mib=most_mib)
    simulation = Simulation(
        policy_of(PolicyName.BINPACK), conf=default_conf(), attach=lambda scheduler: recorder.attach(scheduler, head())
    )
    work(simulation)
    recorder.close()
    assert recorder.path is not None
    return recorder.path


def replayed(data: bytes) -> tuple[Reader, Replay]:
    reader = Reader(io.BytesIO(data), "the record")
    replay = Replay(reader.head)
    for call in reader.calls():
        replay.run(call)
    return reader, replay


def some_work(simulation: Simulation) -> None:
    simulation.put_nodes([node(f"n{i}", cards=8) for i in range(4)])
    simulation.submit([job("a", pods=4, cards=4), job("b", cards=2), job("c", pods=9, cards=8)])
    simulation.run()
    simulation.finish(["b-0"])  # type: ignore[list-item]
    simulation.now = 5.0
    simulation.run()


def test_a_record_replays_to_the_same_decisions(tmp_path: Path) -> None:
    reader, replay = replayed(recorded(tmp_path, some_work).read_bytes())
    assert (replay.differences, replay.placements, replay.plans) == (0, 5, 2)
    assert replay.verdicts > 0
    assert (reader.end, reader.torn) == ("the service was stopped", 0)


def test_who_asks_what_would_be_moved_changes_no_decision(tmp_path: Path) -> None:
    """The record does not know that somebody asked."""

    def asked(simulation: Simulation) -> None:
        simulation.put_nodes([node(f"n{i}", cards=8) for i in range(3)])
        for number in range(3):
            simulation.submit([job(f"s{number}", cards=1), job(f"filler{number}", cards=7)])
            simulation.run()
        simulation.finish([f"filler{number}-0" for number in range(3)])  # type: ignore[misc]
        simulation.submit([job("wide", pods=2, cards=8, min_member=2)])
        for moment in (10.0, 20.0):
            simulation.now = moment
            simulation.run()
            preview = simulation.scheduler.reports.preview_moves()
            while preview.advance(1_700_000_000.0 + moment):
                pass
            assert [len(one.found.moves) for one in preview.proposals] == [2]
        simulation.submit([job("small", cards=2), job("larger", cards=6)])
        simulation.now = 30.0
        simulation.run()

    reader, replay = replayed(recorded(tmp_path, asked).read_bytes())
    assert (replay.differences, reader.torn) == (0, 0)
    assert replay.plans > 0


def test_every_public_method_is_recorded_or_known_to_change_nothing() -> None:
    """Who adds an input has to add it to INPUTS, else replays would go wrong without a word."""
    methods = {name for name, _ in inspect.getmembers(Scheduler, inspect.isfunction) if not name.startswith("_")}
    assert methods - READS == set(INPUTS)


def test_the_first_decision_that_differs_is_named_whole(tmp_path: Path) -> None:
    """A replay with another queue limit: what it does not place is said with what the record placed."""
    reader = Reader(io.BytesIO(recorded(tmp_path, some_work).read_bytes()), "the record")
    replay = Replay(reader.head)
    for call in reader.calls():
        if call.name != "on_node":
            replay.run(call)
    assert replay.differences > 0
    assert replay.first is not None
    assert (replay.first.cycle, replay.first.call, replay.first.what) == (1, "cycle", "plans[0]")
    assert replay.first.recorded.job == "a"
    assert replay.first.replayed is None


@pytest.mark.parametrize("lost", [1, 5, 40])
def test_a_torn_end_is_said_and_the_rest_replays(tmp_path: Path, lost: int) -> None:
    def work(simulation: Simulation) -> None:
        some_work(simulation)
        time.sleep(2 * WRITE_EVERY_S)  # a frame of its own for what comes now
        simulation.submit([job("late", cards=1)])
        simulation.run()

    whole = recorded(tmp_path, work).read_bytes()
    reader, replay = replayed(whole[:-lost])
    assert reader.torn > 0
    assert reader.end == ""
    assert replay.differences == 0
    assert replay.placements == 5


def test_what_is_no_record_is_refused_in_words(tmp_path: Path) -> None:
    whole = recorded(tmp_path, some_work).read_bytes()
    bad = bytearray(whole)
    bad[-20] ^= 1
    faults = {
        b"": "is no record of scheduler-core",
        b"actions: allocate\n": "is no record of scheduler-core",
        whole.replace(b"format 1\n", b"format 7\n"): "has format 7, and this HBox reads format 1",
        whole[:60]: "ends before its head",
        bytes(bad): "is damaged at byte",
    }
    for data, words in faults.items():
        with pytest.raises(InvalidRequest, match=words):
            replayed(data)


def test_a_record_that_begins_in_the_middle_is_refused(tmp_path: Path) -> None:
    reader = Reader(io.BytesIO(recorded(tmp_path, some_work).read_bytes()), "the record")
    replay = Replay(reader.head)
    calls = [call for call in reader.calls() if call.name != "on_claims_snapshot"]
    before = next(number for number, call in enumerate(calls) if call.name == "cycle")
    for call in calls[:before]:
        replay.run(call)
    with pytest.raises(InvalidRequest, match="begins in the middle"):
        replay.run(calls[before])


def test_at_its_bound_a_record_ends_and_scheduling_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def work(simulation: Simulation) -> None:
        simulation.put_nodes([node("n", labels={f"l{i}": os.urandom(30_000).hex() for i in range(100)})])
        time.sleep(3 * WRITE_EVERY_S)
        simulation.put_nodes([node("m")])
        simulation.submit([job("a")])
        assert len(simulation.run()) == 1

    record = recorded(tmp_path, work, most_mib=2)
    assert caplog.text.count("scheduling continues") == 1
    reader = Reader(record.open("rb"), "the record")
    names = [call.name for call in reader.calls()]
    assert "on_node" in names
    assert "cycle" not in names
    assert "half of HBOX_RECORD_MOST_MIB" in reader.end
    reader.file.close()


def test_the_oldest_records_go_until_a_new_one_has_room(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"2020010{number}T000000Z-x.hboxrecord").write_bytes(bytes(2**19 + 1))
    (tmp_path / "notes.txt").write_bytes(bytes(2**21))
    kept = recorded(tmp_path, some_work, most_mib=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["20200102T000000Z-x.hboxrecord", kept.name, "notes.txt"]


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    placed: list[int] = []

    def work(simulation: Simulation) -> None:
        some_work(simulation)
        placed.append(len(simulation.claims))

    recorded(tmp_path / "file", work)
    assert placed == [5 - 1]
    assert caplog.text.count("scheduling continues") == 1


def test_a_full_disk_stops_the_record_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write takes part of what it is given, and the next says ENOSPC, as a disk does that runs full."""
    real, left = os.write, [700]

    def write(file: int, data: memoryview) -> int:
        if threading.current_thread().name != "recorder":
            return real(file, data)
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real(file, data[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(os, "write", write)
    record = recorded(tmp_path, some_work)
    assert caplog.text.count("No space left on device; scheduling continues") == 1
    with pytest.raises(InvalidRequest, match="ends before its head"):
        replayed(record.read_bytes())


def test_answers_of_web_services_are_part_of_a_record(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, most_mib=8)

    def ask(question: Question, /) -> Mapping[str, Any]:
        if "down" in question.url:
            raise Unavailable("nobody is there")
        return {"answer": 7}

    asking = recorder.asking(ask)

    class Asking(Scheduler):
        def on_held(self, reason: str) -> None:
            asking(Question(reason, "{}", 1.0))

    scheduler = Asking(id=SchedulerId("s"), policy=policy_of(PolicyName.BINPACK))
    recorder.attach(scheduler, head())
    scheduler.on_held("http://up")
    with pytest.raises(Unavailable):
        scheduler.on_held("http://down")
    recorder.close()
    assert recorder.path is not None
    with recorder.path.open("rb") as file:
        calls = list(Reader(file, "the record").calls())
    assert [(call.asked[0].answer, call.asked[0].error) for call in calls] == [({"answer": 7}, ""), (None, "nobody is there")]
    assert calls[1].error.startswith("Unavailable: ")


def test_a_policy_with_all_that_one_may_say_comes_back_as_it_was() -> None:
    text = """\
actions: "allocate, preempt"
tiers:
- plugins:
  - {name: drf, enableHierarchy: true, enablePreemptable: false}
  - {name: binpack, arguments: {binpack.weight: 3, nested: {a: [1, 2.5, null, true]}}}
configurations:
- {name: allocate, arguments: {enablePredicateErrorCache: true}}
"""
    conf = parse_conf(text, plugins=list(PLUGINS))
    data = Framer.opening() + (framer := Framer()).frame(Encoder().head(replace(head(), conf=conf)))
    data += framer.frame(Encoder().call(Call("follow", {"conf": conf})))
    reader = Reader(io.BytesIO(data), "the record")
    assert reader.head.conf == conf
    assert [call.arguments for call in reader.calls()] == [{"conf": conf}]


def full(hint: Any) -> Any:
    """A value of this type in which nothing is as it is by default."""
    origin, inner = typing.get_origin(hint), [one for one in typing.get_args(hint) if one is not type(None)]
    if origin is typing.Annotated or origin in (typing.Union, types.UnionType):
        return full(inner[0])
    if origin is tuple:
        return tuple(full(one) for one in inner if one is not Ellipsis)
    if origin in (Iterable, Sequence, Set):
        return (full(inner[0]),)
    if origin in (dict, Mapping):
        return {full(inner[0]): full(inner[1])}
    hint = made = getattr(hint, "__supertype__", hint)
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        return made(**{one.name: full(hints[one.name]) for one in fields(hint) if one.init})
    if issubclass(hint, BaseModel):
        hints = typing.get_type_hints(hint, include_extras=True)
        return hint.model_validate({name: full(hints[name]) for name in hint.model_fields}, by_name=True, by_alias=True)
    if issubclass(hint, Enum):
        return list(hint)[-1]
    return {str: "x", int: 7, float: 1.5, bool: True}[hint]


@pytest.mark.parametrize("name", [name for name in INPUTS if name != "follow"])
def test_what_an_input_says_comes_back_whole(name: str) -> None:
    hints = typing.get_type_hints(getattr(Scheduler, name), include_extras=True)
    told = {parameter: full(hint) for parameter, hint in hints.items() if parameter != "return"}
    data = Framer.opening() + (framer := Framer()).frame(Encoder().head(head()))
    result = None if hints["return"] is type(None) else full(Decided if name == "cycle" else hints["return"])
    data += framer.frame(Encoder().call(Call(name, told, result)))
    assert [(call.arguments, call.result) for call in Reader(io.BytesIO(data), "the record").calls()] == [(told, result)]
