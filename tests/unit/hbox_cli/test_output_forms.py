"""What each form of output contains, and the order of data and messages."""

import csv
import json
import os
import subprocess
import sys

import pytest
import yaml

from hbox_cli.commands.events import COLUMNS as EVENT_COLUMNS
from hbox_cli.commands.events import put_event
from hbox_cli.commands.nodes import COLUMNS
from hbox_cli.commands.up import without_cards
from hbox_cli.exits import failure_text
from hbox_cli.output import Form, Output
from hbox_common.errors import Unavailable
from hbox_common.eventexamples import EXAMPLES as PUBLIC_EXAMPLES
from hbox_common.events import CloudEvent, HealthChanged, JobPhase, JobPhaseChanged
from hbox_common.model import Generation, JobId, NodeName, NodeState, QueueName
from hbox_common.views.events import has_successor
from hbox_common.views.nodes import node_items
from hbox_sandbox.trace import machines

from ... import forked

WAITING = JobPhaseChanged(
    job=JobId("j"), namespace="ml", name="train", queue=QueueName("q"), phase=JobPhase.WAITING, bound=0, members=2, at=86_400.0
)
SICK = HealthChanged(node=NodeName("n1"), healthy=False, bad_cards=(2,), reason="XID 79", at=86_401.0)


def test_memory_of_nodes_is_shown_in_gib(capsys: pytest.CaptureFixture[str]) -> None:
    node = NodeState(NodeName("n"), "u", Generation(1), True, allocatable={"cpu": 8000, "memory": 2 * 2**40})
    Output(Form.CSV).rows("Node", node_items([node], {}, []), COLUMNS)
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (row["CPU"], row["MEM-GIB"]) == ("0/8", "0/2048")


def test_events_have_a_row_of_csv_each(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Form.CSV).rows("Event", [], EVENT_COLUMNS)
    for event in (WAITING, SICK):
        put_event(Output(Form.CSV), event)
    first, second = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (first["TIME"], first["KIND"], first["NAME"]) == ("1970-01-02T00:00:00+00:00", "job", "ml/train")
    assert (second["KIND"], second["NAME"], second["TEXT"]) == ("node", "n1", "n1  unhealthy cards [2]  XID 79")


def test_events_are_documents_of_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    for event in (WAITING, SICK):
        put_event(Output(Form.YAML), event)
    shown = capsys.readouterr().out
    assert "{" not in shown
    assert [one["type"] for one in yaml.safe_load_all(shown)] == [WAITING.ce_type(), SICK.ce_type()]


def test_events_have_a_name_each(capsys: pytest.CaptureFixture[str]) -> None:
    for event in (WAITING, SICK):
        put_event(Output(Form.NAME), event)
    assert capsys.readouterr().out == "job/ml/train\nnode/n1\n"


@pytest.mark.parametrize("event", PUBLIC_EXAMPLES, ids=lambda event: event.kind)
def test_a_public_event_is_printed_in_each_form(event: CloudEvent, capsys: pytest.CaptureFixture[str]) -> None:
    put_event(Output(Form.JSON), event)
    assert json.loads(capsys.readouterr().out) == event.attributes()
    put_event(Output(Form.CSV), event)
    [(time, kind, name, text)] = csv.reader(capsys.readouterr().out.splitlines())
    assert (time, kind) == ("2026-01-01T00:00:00+00:00", event.kind.split(".")[0])
    assert name in ("team-a/train", "team-a/train-0", "research", "node-0001")
    assert event.kind.split(".")[1].partition("_")[0] in text


def test_an_old_message_with_a_public_event_is_not_shown_twice() -> None:
    bound = WAITING.model_copy(update={"phase": JobPhase.BOUND})
    assert [has_successor(event) for event in (WAITING, SICK, bound)] == [False, False, True]


def test_event_times_have_a_date(capsys: pytest.CaptureFixture[str]) -> None:
    put_event(Output(), SICK)
    assert capsys.readouterr().out.startswith("1970-01-0")


def test_a_document_has_a_name_and_a_row_of_its_plain_fields(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"name": "ml/train", "state": "WAITING", "pods": {"bound": 0}, "waiting": ["a", "b"], "decisions": [{"node": "n"}]}
    Output(Form.NAME).document("Job", found)
    Output(Form.CSV).document("Job", found)
    assert capsys.readouterr().out == "job/ml/train\nNAME,STATE,WAITING\nml/train,WAITING,a; b\n"


def test_a_list_of_kubernetes_objects_has_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Form.NAME).document("HyperNodeList", {"items": [{"kind": "HyperNode", "metadata": {"name": "leaf-0"}}]})
    assert capsys.readouterr().out == "hypernode/leaf-0\n"


@pytest.mark.parametrize("arguments", [(), ("queue",), ("simulate",)])
def test_a_command_group_alone_prints_its_help(arguments: tuple[str, ...]) -> None:
    done = forked.run(*arguments, timeout_s=60, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: hbox")


def test_messages_follow_the_data_in_a_shared_pipe() -> None:
    code = "from hbox_cli import stdio; stdio.take_over()\nfrom hbox_cli.output import notify\nprint('data'); notify('message')"
    both = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, timeout=60
    )
    assert both.stdout == b"data\nmessage\n"


def test_errors_follow_the_data_in_a_shared_pipe() -> None:
    code = (
        "import sys, click, hbox_cli.__main__ as m\n"
        "from hbox_common.errors import Unavailable\n"
        "def fail(**_): print('data'); raise Unavailable('gone')\n"
        "m.cli.main = fail; m.main()"
    )
    both = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60
    )
    assert both.returncode == 6
    assert both.stdout.startswith(b"data\nhbox")


def test_hbox_check_does_not_name_itself_as_the_fix() -> None:
    assert "next  hbox check" in failure_text("hbox jobs", TimeoutError())
    assert "next  hbox check" not in failure_text("hbox check", TimeoutError())
    assert "next  hbox check" not in failure_text("hbox check", Unavailable("the broker is silent", hint="run `hbox check`"))


def test_nodes_without_cards_get_a_hint() -> None:
    assert without_cards(machines(["3"])) == "the nodes have no cards; --nodes 3x8 creates each with 8"
    assert without_cards(machines(["2", "1x8"])) == ""


def test_a_service_prints_its_settings_for_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hbox_scheduler", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "HBOX_NATS_URL [nats://127.0.0.1:4222]" in done.stdout


@pytest.mark.parametrize(("words", "status"), [(("nonsense",), 2), (("--help",), 0)])
def test_commands_end_without_a_traceback_where_standard_output_is_closed(words: tuple[str, ...], status: int) -> None:
    command = f"{sys.executable} -m hbox_cli {' '.join(words)} >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == status
