"""The command as a user meets it: help, statuses, three-line errors, one place for global options."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hbox_cli import exits
from hbox_cli.aio import Interrupted
from hbox_cli.exits import Exit, failure_text, leaf, status_of
from hbox_cli.output import Column, Form, Output, duration
from hbox_common.errors import Bug, Conflict, InvalidRequest, NotFound, Unavailable

from ... import forked


def hbox(*words: str, state: Path | None = None) -> subprocess.CompletedProcess[str]:
    return forked.run(*([] if state is None else ["--state", str(state)]), *words, timeout_s=60, env=os.environ)


def test_help_names_all_commands_and_statuses() -> None:
    done = hbox("--help")
    assert done.returncode == 0
    for word in (
        "up",
        "replay",
        "check",
        "audit",
        "jobs",
        "why",
        "reason",
        "nodes",
        "queue",
        "quota",
        "usage",
        "events",
        "exit statuses",
    ):
        assert word in done.stdout


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "hbox_cli", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not loaded & {
        "pydantic",
        "aiohttp",
        "nats",
        "kubernetes",
        "rich",
        "yaml",
        "msgpack",
        "sqlalchemy",
        "numpy",
        "asyncio",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("jbos",), "Did you mean jobs?"),
        (("jobs", "--colour"), "No such option"),
        (("replay", "--trace", "x.csv"), "--trace and --nodes go together"),
        (("up", "--policy", "best"), "best"),
        (("why",), "JOB"),
    ],
)
def test_a_wrong_command_line_is_told_in_three_lines_with_status_2(words: tuple[str, ...], said: str) -> None:
    done = hbox(*words)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == Exit.USAGE
    assert (len(lines), done.stdout) == (3, "")
    assert said in lines[1]


@pytest.mark.parametrize(
    "command",
    [("jobs",), ("nodes",), ("queue", "ls"), ("quota", "ls"), ("why", "x"), ("usage",), ("events",), ("audit",), ("check",)],
)
def test_without_a_platform_every_command_says_so_with_status_3(command: tuple[str, ...], tmp_path: Path) -> None:
    done = hbox(*command, state=tmp_path)
    assert done.returncode == Exit.NOT_FOUND
    assert f"no platform runs in {tmp_path}" in done.stderr
    assert "hbox up" in done.stderr.splitlines()[2]
    assert "Traceback" not in done.stderr


def test_global_options_may_stand_before_and_after_the_command(tmp_path: Path) -> None:
    for words in (("--state", str(tmp_path), "jobs"), ("jobs", "--state", str(tmp_path))):
        assert str(tmp_path) in hbox(*words).stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    assert "Traceback" in hbox("jobs", "--debug", state=tmp_path).stderr


def test_a_broken_trace_is_told_with_status_5(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,8,G2\n")
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,eight,1000\n")
    done = hbox("replay", "--trace", str(pods), "--nodes", str(nodes), state=tmp_path / "state")
    assert done.returncode == Exit.INVALID
    assert f"{pods} line 2: num_gpu = 'eight' is not a whole number" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 3


def test_errors_have_the_documented_statuses() -> None:
    assert status_of(NotFound("x")) == Exit.NOT_FOUND
    assert status_of(InvalidRequest("x")) == status_of(Conflict("x")) == Exit.INVALID
    assert status_of(InvalidRequest("Kubernetes API, GET /x: no (HTTP 403, Forbidden)")) == Exit.NOT_ALLOWED
    assert status_of(Unavailable("x")) == Exit.UNAVAILABLE
    assert status_of(TimeoutError()) == Exit.TIMED_OUT
    assert status_of(KeyboardInterrupt()) == status_of(Interrupted()) == Exit.INTERRUPTED
    assert status_of(Bug("x")) == status_of(exits.Faulty("x")) == status_of(ValueError("x")) == Exit.FAILED


def test_an_error_is_three_lines_whatever_is_in_it() -> None:
    text = failure_text("hbox jobs", PermissionError(13, "Permission denied", "/home/alice/.kube/config"))
    assert text.splitlines()[:2] == [
        "hbox jobs did not succeed (invalid, exit status 5)",
        "  why   /home/alice/.kube/config: Permission denied",
    ]
    text = failure_text("hbox nodes", Unavailable("two\nlines", hint="do\nthis"))
    assert text.splitlines() == [
        "hbox nodes did not succeed (unavailable, exit status 6)",
        "  why   two lines",
        "  next  do this",
    ]


def test_of_a_group_the_error_raised_on_purpose_is_told() -> None:
    wanted = Unavailable("x")
    assert leaf(ExceptionGroup("", [ValueError(), ExceptionGroup("", [wanted])])) is wanted


COLUMNS = (Column("NAME", lambda i: i["name"]), Column("WHY", lambda i: i["why"]), Column("ID", lambda i: i["id"], wide=True))
ITEMS = [{"name": "a", "why": "", "id": "1"}, {"name": "long-name", "why": "busy", "id": "2"}]


def test_tables_align_and_wide_shows_more(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows("Job", ITEMS, COLUMNS)
    assert capsys.readouterr().out == "NAME       WHY\na          -\nlong-name  busy\n"
    Output(Form.WIDE, headers=False).rows("Job", ITEMS, COLUMNS)
    assert capsys.readouterr().out == "a          -     1\nlong-name  busy  2\n"


def test_machine_forms_carry_version_and_kind(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Form.JSON).rows("Job", ITEMS, COLUMNS)
    assert json.loads(capsys.readouterr().out) == {"apiVersion": "hbox.io/v1", "kind": "JobList", "items": ITEMS}
    Output(Form.YAML).rows("Job", ITEMS[:1], COLUMNS)
    assert capsys.readouterr().out.startswith("apiVersion: hbox.io/v1\nkind: JobList\n")
    Output(Form.NAME).rows("Job", ITEMS, COLUMNS)
    assert capsys.readouterr().out == "job/a\njob/long-name\n"


def test_an_empty_table_is_its_headers(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows("Job", [], COLUMNS)
    assert capsys.readouterr().out == "NAME  WHY\n"


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0s"), (119, "119s"), (125, "2m"), (7260, "2h01m"), (200_000, "2d")])
def test_durations_are_short(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
