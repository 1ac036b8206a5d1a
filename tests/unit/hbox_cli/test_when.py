"""`hbox when`: the interval of an explanation, or that there is none."""

import json
from typing import Any

import pytest

from hbox_cli.__main__ import cli
from hbox_cli.commands import when

ITEM = {"name": "ml/train", "id": "u", "state": "WAITING", "queue": "research", "waiting": ["train-0"]}
START = {
    "p50Seconds": 720.0,
    "p90Seconds": 5400.0,
    "method": "ends of running jobs",
    "driver": "jobs of queue q end on 8 cards",
}


class Source:
    def __init__(self, item: dict[str, Any]) -> None:
        self._item = item

    def why(self, job: str) -> dict[str, Any]:
        assert job == "train"
        return self._item


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], item: dict[str, Any], *options: str) -> str:
    monkeypatch.setattr(when, "source_of", lambda _: Source(item))
    cli.main([*options, "when", "train"], prog_name="hbox", standalone_mode=False)
    return capsys.readouterr().out


def test_an_estimate_has_times_spans_method_and_driver(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    item = {**ITEM, "explanation": {"at": 0.0, "start": START}}
    lines = shown(monkeypatch, capsys, item).splitlines()
    assert lines[0] == "ml/train  WAITING  queue research"
    assert lines[1].startswith("  starts 1970-01-01 ")
    assert lines[2] == "  in 12m (median) to 1h30m (90th percentile), by ends of running jobs"
    assert lines[3] == "  depends on: jobs of queue q end on 8 cards"
    document = json.loads(shown(monkeypatch, capsys, item, "-o", "json"))
    assert (document["kind"], document["at"], document["p90Seconds"]) == ("StartEstimate", 0.0, 5400.0)


@pytest.mark.parametrize("explanation", [None, {"at": 0.0, "start": None}])
def test_without_an_estimate_the_command_names_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], explanation: Any
) -> None:
    item = {**ITEM, "explanation": explanation}
    assert "`hbox why ml/train` shows why it waits" in shown(monkeypatch, capsys, item)
    document = json.loads(shown(monkeypatch, capsys, item, "-o", "json"))
    assert (document["at"], document["p50Seconds"]) == (None, None)


def test_job_that_no_wait_helps_gets_the_code_instead_of_an_estimate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    item = {**ITEM, "explanation": {"at": 0.0, "start": None, "verdict": "change", "code": "GangTooLarge"}}
    assert "waiting does not help (GangTooLarge)" in shown(monkeypatch, capsys, item)


def test_a_job_with_nodes_waits_for_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "waits for nothing" in shown(monkeypatch, capsys, {**ITEM, "waiting": [], "explanation": None})
