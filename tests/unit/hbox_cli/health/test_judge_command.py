"""`hbox health judge`: files by kind and by content, one JSON object for each, and invalid files by name and line."""

import json
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner

from hbox_cli.commands.health import command
from hbox_cli.exits import Exit, status_of
from hbox_cli.health.cases import read_case
from hbox_cli.health.judging import judged
from hbox_common.errors import HBoxError, InvalidRequest

XID = "NVRM: Xid (PCI:0000:3a:00): 79, pid=7, name=python3, GPU has fallen off the bus."
CASE = "id: one\nkind: xid-line\ncontext: {box: l20}\ninput:\n  kmsg: |\n    NVRM: Xid (PCI:0000:3a:00): 94, pid=7, Contained\n"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_each_file_gives_one_object_on_one_line(tmp_path: Path) -> None:
    files = [written(tmp_path, "a.yaml", CASE), written(tmp_path, "b.log", f"[12.5] {XID}\n")]
    result = CliRunner().invoke(command, ["judge", *map(str, files)], catch_exceptions=False)
    first, second = (json.loads(line) for line in result.output.splitlines())
    assert (first["id"], first["severity"], first["action"]) == ("one", "fatal-gpu", "reset")
    assert (second["id"], second["severity"], second["action"]) == (str(files[1]), "fatal-node", "reboot")


def test_context_of_a_plain_file_comes_from_options(tmp_path: Path) -> None:
    path = written(tmp_path, "node.log", "NVRM: Xid (PCI:0000:3a:00): 94, pid=7, Contained\n")
    actions = [
        json.loads(CliRunner().invoke(command, ["judge", str(path), "--box", box]).output)["action"] for box in ("H100", "L20")
    ]
    assert actions == ["tell-owner", "reset"]


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("dmesg", f"[    0.000000] Linux version 5.15\n[   12.5] {XID}\n", "xid-line"),
        ("kmsg", f"4,812,12500000,-;{XID}\n SUBSYSTEM=pci\n", "xid-line"),
        ("syslog", f"May 19 07:08:57 h1 kernel: {XID}\n", "xid-line"),
        ("quiet", "[    0.000000] Linux version 5.15\n", "xid-line"),
        ("journal.json", json.dumps({"_TRANSPORT": "kernel", "MESSAGE": XID}), "xid-line"),
        ("fm.log", "[Feb 27 2025 15:10:02] [INFO] [tid 12727] Connected to 1 node.\n", "sxid-line"),
        ("metrics", '# HELP DCGM_FI_DEV_GPU_TEMP x\nDCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0"} 41\n', "dcgm"),
        ("out.txt", "# nThread 1 nGpus 8 minBytes 8\n", "nccl"),
        ("pairs.csv", "round,node_a,node_b,busbw_gbs,status\n1,a,b,380,ok\n", "nccl"),
        ("node.json", '{"box": "h100", "gpus": []}', "nvml"),
    ],
)
def test_a_plain_file_is_known_by_its_content(tmp_path: Path, name: str, text: str, kind: str) -> None:
    case = read_case(written(tmp_path, name, text))
    assert case.kind == kind
    assert "action" in judged(case)


def test_a_kind_that_is_named_is_not_guessed(tmp_path: Path) -> None:
    path = written(tmp_path, "x.log", "nothing to see\n")
    assert read_case(path, kind="kmsg").kind == "xid-line"
    with pytest.raises(InvalidRequest, match="--kind"):
        read_case(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "kind: xid-line\ninput: {kmsg: [\n", "a.yaml, line 3: invalid YAML"),
        ("a.yaml", "id: x\nkind: other\ninput: {}\n", "a.yaml, line 2: kind: other is not one of"),
        ("a.yaml", "id: x\nkind: nvml\ninput: 7\n", "a.yaml, line 3: input: a mapping"),
        ("a.yaml", "id: x\nkind: nvml\ncontext: 1\ninput: {}\n", "a.yaml, line 3: context: a mapping"),
        ("a.yaml", "- 1\n", "a.yaml, line 1: not a case"),
        ("a.yaml", "kind: xid-line\ninput: {}\n", "input: one of kmsg"),
        ("a.yaml", "kind: xid-line\ninput: {kmsg: 7}\n", "input: kmsg: text is expected"),
        ("a.yaml", "kind: nvml\ninput: {cards: 7}\n", "cards: a mapping is expected"),
        ("a.yaml", "kind: nvml\ninput: {init: x}\n", "init: a whole number is expected"),
        ("a.yaml", "kind: nvml\ninput: {cards: {1: 7}}\n", "cards: 1: a mapping is expected"),
        ("a.yaml", "kind: nvml\ninput: {cards: {99999: {}}}\n", "more than 64"),
        (
            "a.yaml",
            "kind: nvml\ninput: {cards: {1: {recovery_action: one}}}\n",
            "a.yaml: input: cards: 1: recovery_action: a number",
        ),
        (
            "a.yaml",
            "kind: nvml\ninput: {cards: {1: {remapped_rows: {pending: x}}}}\n",
            "remapped_rows: pending: a number or true",
        ),
        ("a.yaml", "kind: nvml\ninput: {all_cards: {fabric: {status: x}}}\n", "all_cards: fabric: status: a number"),
        ("a.yaml", "kind: nvml\ninput: {inventory: [1], listed: []}\n", "inventory: text is expected"),
        ("a.yaml", "kind: nvml\ninput: {uptime_s: soon}\n", "uptime_s: a number is expected"),
        ("a.yaml", "kind: nvml\ninput: {node: 7}\n", "node: a mapping is expected"),
        ("a.yaml", "kind: nvml\ncontext: {box: [1]}\ninput: {}\n", "context: box: text is expected"),
        ("a.yaml", "kind: story\ninput: {}\n", "events: a list of mappings with t"),
        ("a.yaml", "kind: story\ninput: {events: [{t: x}]}\n", "events: a list of mappings with t"),
        ("a.yaml", "kind: dcgm\ninput: {}\n", "metrics: text is expected"),
        ("a.yaml", "kind: ib\ncontext: {rate: fast}\ninput: {polls: []}\n", "compute_ports and rate: numbers"),
        ("a.yaml", "kind: ib\ninput: {polls: [{t: 0, ports: {a: {rate: 400}}}]}\n", "polls: a list of readings"),
        ("a.yaml", "kind: ib\ninput: {polls: 7}\n", "polls: a list of readings"),
        ("a.yaml", "kind: ib\ninput: {polls: [{t: x, ports: {}}]}\n", "polls: a list of readings"),
        ("a.yaml", "kind: ib\ninput: {polls: [{t: 0, ports: {a: 7}}]}\n", "polls: a list of readings"),
        ("a.yaml", "kind: dcgm\ninput: {metrics: x, inventory: x}\n", "inventory: a number of cards"),
        ("a.yaml", "kind: dcgm\ninput: {metrics: x, nvml_count: x}\n", "nvml_count: a whole number"),
        ("a.yaml", "kind: nccl\ninput: {}\n", "one of output, pairs"),
        ("a.json", '{"gpus": [', "a.json, line 1: invalid JSON"),
        ("a.json", "{}", "a.json, line 1: not a node"),
        ("a.json", '{"gpus": [7]}', "a.json: gpus: 0: a mapping is expected"),
        ("a.json", '{"gpus": [{"nvlinks": 18}]}', "a.json: gpus: 0: nvlinks: a list is expected"),
        ("a.log", "\n", "a.log: the file is empty"),
        ("a.csv", "round,node_a,node_b,busbw_gbs,status\n1,a,b,x,ok\n", "line 2: not a pair test"),
    ],
)
def test_an_invalid_file_is_named_with_its_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(HBoxError) as caught:
        judged(read_case(path))
    assert message in caught.value.message
    assert status_of(caught.value) is Exit.INVALID


def test_values_that_nvml_does_not_have_are_no_faults(tmp_path: Path) -> None:
    card = "{recovery_action: NOT_SUPPORTED, fabric: NOT_SUPPORTED, nvlinks_active: FUNCTION_NOT_FOUND, remapped_rows: NOT_SUPPORTED}"
    path = written(tmp_path, "a.yaml", f"kind: nvml\ncontext: {{box: h100}}\ninput: {{cards: {{1: {card}}}}}\n")
    assert judged(read_case(path))["severity"] == "none"


def test_lines_that_only_quote_an_xid_are_counted(tmp_path: Path) -> None:
    """A stranger sees that the log has such lines, and that none of them is an event of the kernel."""
    path = written(tmp_path, "a.log", f"[1.0] {XID}\nMay 19 07:08:57 h1 myapp[7]: {XID}\n")
    answer = judged(read_case(path))
    assert (answer["action"], answer["ignored"]) == ("reboot", 1)
    only = judged(read_case(written(tmp_path, "b.log", f"May 19 07:08:57 h1 myapp[7]: {XID}\n")))
    assert (only["action"], only["ignored"]) == ("none", 1)
    assert "another sender" in only["why"]
    assert "ignored" not in judged(read_case(written(tmp_path, "c.log", f"[1.0] {XID}\n")))


@pytest.mark.parametrize(("box", "profile"), [("H100", "H100"), ("h10", "generic"), ("", "generic")])
def test_the_answer_names_the_profile(tmp_path: Path, box: str, profile: str) -> None:
    path = written(tmp_path, "node.log", f"[1.0] {XID}\n")
    assert json.loads(CliRunner().invoke(command, ["judge", str(path), "--box", box]).output)["profile"] == profile


def test_an_invalid_file_does_not_keep_the_others_from_being_judged(tmp_path: Path) -> None:
    good, bad = written(tmp_path, "good.yaml", CASE), written(tmp_path, "bad.yaml", "kind: x\n")
    result = CliRunner().invoke(command, ["judge", str(bad), str(good), str(tmp_path / "none.log")])
    assert json.loads(result.output)["id"] == "one"
    assert isinstance(result.exception, InvalidRequest)
    assert "bad.yaml, line 1" in result.exception.message
    assert "none.log: no such file" in result.exception.message


def test_own_tables_are_tried_on_a_file_and_refused_with_their_fault(tmp_path: Path) -> None:
    path = written(tmp_path, "node.log", "NVRM: Xid (PCI:0000:3a:00): 63, pid=7, Row Remapper: New row\n")
    folder = tmp_path / "rules"
    folder.mkdir()
    shipped = resources.files("hbox_health.data").joinpath("codes.yaml").read_text()
    written(folder, "codes.yaml", shipped.replace("action: reset-when-idle", "action: cordon"))
    result = CliRunner().invoke(command, ["judge", str(path), "--rules", str(folder)], catch_exceptions=False)
    assert json.loads(result.output)["action"] == "cordon"
    written(folder, "codes.yaml", shipped.replace("action: reset-when-idle", "action: kill"))
    refused = CliRunner().invoke(command, ["judge", str(path), "--rules", str(folder)])
    assert isinstance(refused.exception, InvalidRequest)
    assert "xid 63: action: kill is not one of" in refused.exception.message
    nothing = CliRunner().invoke(command, ["judge", str(path), "--rules", str(tmp_path / "none")])
    assert isinstance(nothing.exception, InvalidRequest)
