"""`hbox simulate replay RECORD` with `--policy` and `--placed`, as its users meet it."""

import csv
import json
from pathlib import Path
from typing import Any

import click
import pytest

from hbox_cli.__main__ import cli
from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.model import SchedulerId
from hbox_scheduler.adapters.recorder import Recorder
from hbox_scheduler.core import Limits
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.record.record import Head
from hbox_scheduler.core.simulate import Simulation, job, node

PATIENT = """\
actions: "allocate"
tiers:
- plugins:
  - {name: predicates}
  - {name: binpack}
"""


def run(*words: str | Path) -> None:
    cli.main(["simulate", "replay", *map(str, words)], prog_name="hbox", standalone_mode=False)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """One node: a gang of low priority is there, and one of higher priority takes its place."""
    recorder = Recorder(tmp_path / "records", most_mib=8)
    head = Head("0.1.0", SchedulerId("simulation"), Limits(), default_conf(), 1_700_000_000.0)
    world = Simulation(
        policy_of(PolicyName.BINPACK), conf=default_conf(), attach=lambda scheduler: recorder.attach(scheduler, head)
    )
    world.put_nodes([node("n0", cards=8)])
    world.submit([job("low", pods=2, cards=4)])
    world.run()
    world.now = 10.0
    world.submit([job("top", pods=2, cards=4, priority=5, created_at=10.0)])
    world.run()
    world.now = 12.0
    world.leave()
    world.run()
    world.now = 100.0
    world.submit([job("tiny", cpu_milli=1, created_at=100.0)])
    world.run()
    recorder.close()
    assert recorder.path is not None
    return recorder.path


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    run("-o", "json", *words)
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_policy_without_preemption_leaves_who_is_there_and_says_who_waits(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "patient.conf"
    conf.write_text(PATIENT)
    found = told(capsys, record, "--policy", conf)
    assert found["kind"] == "ReplayComparison"
    assert found["jobs"] == {"byRecordAlone": ["default/top"], "byOtherAlone": []}
    assert found["evictions"] == {"recorded": 2, "other": 0}
    assert found["pods"] == {"alike": 3, "elsewhere": 0, "byRecordAlone": 2, "byOtherAlone": 0, "neither": 0}
    assert found["first"]["recorded"] == {"node": "n0", "seconds": 12.0}
    assert found["first"]["other"] is None
    waits = found["queues"]["default"]
    assert (waits["recorded"]["waiting"], waits["other"]["waiting"]) == (0, 1)
    assert (waits["recorded"]["longestSeconds"], waits["other"]["longestSeconds"]) == (2.0, 90.0)
    assert found["assumed"]["cutShort"] == 2
    assert "run until the record ends" in found["warnings"][0]


def test_people_are_told_the_same_in_lines(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "patient.conf"
    conf.write_text(PATIENT)
    run(record, "--policy", conf)
    lines = capsys.readouterr().out
    assert "3 on the same node, 0 elsewhere, 2 placed on record alone" in lines
    assert "on record alone: 1: default/top" in lines
    assert "evictions    2 -> 0" in lines
    assert "2.0s -> 90.0s" not in lines, "the longest wait is for -o wide"
    run("-o", "wide", record, "--policy", conf)
    assert "2.0s -> 90.0s" in capsys.readouterr().out


def test_the_records_own_policy_decides_alike(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, record, "--policy", "recorded")
    assert found["pods"]["alike"] == 5
    assert found["evictions"]["other"] == 2


@pytest.mark.parametrize("text", ["actions: allocate\ntiers: [{plugins: [{name: nobody}]}]\n", None])
def test_a_policy_that_is_none_is_refused_by_its_name(record: Path, tmp_path: Path, text: str | None) -> None:
    conf = tmp_path / "wrong.conf"
    if text is not None:
        conf.write_text(text)
    with pytest.raises(InvalidRequest, match=r"wrong\.conf"):
        run(record, "--policy", conf)


def test_a_place_on_record_is_explained_by_the_name_of_job_or_pod(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, record, "--placed", "default/low")
    assert (found["kind"], found["name"]) == ("PlacementExplanation", "default/low")
    [decision] = found["decisions"]
    assert decision["policy"] == default_conf().summary
    [on] = decision["nodes"]
    assert (on["node"], on["pods"], on["runner_up"]) == ("n0", ["low-0", "low-1"], None)
    assert on["why"] == "no other node was allowed and had room"
    assert told(capsys, record, "--placed", "low-1")["decisions"] == [decision]
    run(record, "--placed", "top")
    lines = capsys.readouterr().out
    assert "2 pods were evicted for it, by plan " in lines
    assert "n0: top-0, top-1" in lines


def test_a_job_without_a_place_on_record_is_not_found(record: Path) -> None:
    with pytest.raises(NotFound, match="gives no job nobody a place"):
        run(record, "--placed", "nobody")


def test_two_questions_at_once_are_refused(record: Path) -> None:
    with pytest.raises(click.UsageError, match="one at a time"):
        run(record, "--placed", "low", "--policy", "recorded")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {"CYCLES": "8", "DIFFERENCES": "0"}),
        (("--policy", "recorded"), {"QUEUE": "default", "JOBS": "3"}),
        (("--placed", "low"), {"POD": "low-0", "NODE": "n0", "RUNNER-UP": ""}),
    ],
)
def test_every_answer_has_rows_of_csv(
    record: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: dict[str, str]
) -> None:
    run("-o", "csv", record, *arguments)
    row = next(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {title: row.get(title) for title in expected} == expected
