"""What tenants write is shown, and obeyed by no terminal: in every table, line, message and log, through one place."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hbox_cli.exits import failure_text
from hbox_common.errors import InvalidRequest
from hbox_common.telemetry.logs import JsonFormatter, TextFormatter
from hbox_common.visible import visible, visible_lines

from .test_command import hbox

HOSTILE = "a\x1b[2Jb\x9b1mc\u202egnp\u2066d\x7fe\u2028f\rg\nfault: h"
UNSEEN = "\x1b\x9b\u202e\u2066\x7f\u2028\r"

#: Prints it in every form, by the command's own standard output and error.
PRINT = """
import sys
from hbox_cli.output import Colour, Column, Form, Output, put, notify
from hbox_cli.stdio import take_over
take_over()
text = sys.argv[2]
item = {"name": text, "message": text}
if sys.argv[1] == "put":
    put(text)
elif sys.argv[1] == "print":
    print(Output(colour=Colour.ALWAYS).coloured("ok", "32"), text)
elif sys.argv[1] == "say":
    notify(text)
else:
    Output(form=Form(sys.argv[1])).rows("Thing", [item], [Column("NAME", lambda i: i["name"]), Column("WHY", lambda i: i["message"])])
sys.stdout.flush()
"""


def printed(form: str, text: str = HOSTILE) -> str:
    done = subprocess.run([sys.executable, "-c", PRINT, form, text], capture_output=True, check=True, timeout=30)
    return (done.stdout + done.stderr).decode("utf-8", "strict")


@pytest.mark.parametrize("form", ["table", "wide", "name", "csv", "json", "ndjson", "yaml", "put", "print", "say"])
def test_no_form_shows_what_a_terminal_obeys(form: str) -> None:
    text = printed(form).replace("\x1b[32mok\x1b[0m", "")
    assert not set(text) & set(UNSEEN)
    if form not in ("yaml", "csv"):
        assert "\\u001b[2Jb" in text
    if form in ("table", "wide", "name", "put"):
        assert len(text.splitlines()) == (2 if form in ("table", "wide") else 1)


def test_machines_read_what_was_written() -> None:
    assert json.loads(printed("json"))["items"][0]["name"] == HOSTILE
    assert json.loads(printed("ndjson"))["name"] == HOSTILE
    assert yaml.safe_load(printed("yaml"))["items"][0]["name"] == HOSTILE


def test_colours_of_ours_stay_and_a_name_cannot_move_the_cursor() -> None:
    assert printed("print", "\x1b[1A\x1b[2K") == "\x1b[32mok\x1b[0m \\u001b[1A\\u001b[2K\n"


def test_plain_text_of_any_language_is_left_alone() -> None:
    text = "task-\u0444\u4efb\u52a1-\u05e9\U0001f680 100 %\tof it"
    assert visible_lines(f"{text}\n") == f"{text}\n"
    assert visible(text) == text.replace("\t", "\\t")


def test_half_a_character_is_shown_and_ends_no_command() -> None:
    assert visible("\ud800") == "\\ud800"


def test_an_error_is_three_lines_whatever_it_names() -> None:
    said = failure_text("hbox x", InvalidRequest(HOSTILE, hint=HOSTILE))
    assert len(said.split("\n")) == 3
    assert not set(said) & set(UNSEEN)


@pytest.mark.parametrize("formatter", [TextFormatter("s"), JsonFormatter("s")])
def test_a_log_record_is_one_line_and_moves_nothing(formatter: logging.Formatter) -> None:
    record = logging.makeLogRecord({"msg": "pod %s", "args": (HOSTILE,), "levelname": "WARNING", "name": "n", "pod": HOSTILE})
    line = formatter.format(record)
    assert not set(line) & set(UNSEEN + "\n")
    if isinstance(formatter, JsonFormatter):
        assert json.loads(line)["pod"] == HOSTILE


def test_a_saved_cluster_with_hostile_names_is_shown_safely(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": HOSTILE},
        "spec": {"schedulerName": "hbox", "containers": []},
    }
    file.write_text(json.dumps(pod))
    done = hbox("simulate", "cycle", str(file))
    text = done.stdout + done.stderr
    assert "\\u001b[2Jb" in text
    assert not set(text) & set(UNSEEN)
    assert "\nfault: h" not in text
