"""The generated bus reference: complete, consistent in itself, true to the messages, and in step with the code."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import pytest
import yaml

from hbox_common.asyncapi import ANSWERS, document, main, page, text_of
from hbox_common.bus.streams import LIMITS, config_of
from hbox_common.events import REGISTRY, NodeStateChanged, Stream

ROOT = Path(__file__).parents[3]
FILES = [ROOT / "docs/reference/asyncapi.yaml", ROOT / "docs/reference/bus.md", ROOT / "docs/reference/events"]
DOCUMENT = document()


def references(node: Any) -> Iterator[str]:
    """Every `$ref` below."""
    if isinstance(node, dict):
        if isinstance(ref := node.get("$ref"), str):
            yield ref
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_the_documents_in_the_repository_are_those_that_the_code_generates() -> None:
    assert main(["--check", *map(str, FILES)]) == 0


def test_every_reference_leads_somewhere() -> None:
    for reference in set(references(DOCUMENT)):
        node: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            assert step in node, reference
            node = node[step]


def test_every_message_has_a_channel_with_all_of_its_keys_and_is_in_the_tables() -> None:
    tables = page()
    for event in REGISTRY.values():
        channel = DOCUMENT["channels"][event.__name__]
        assert channel["address"] == event.about.subject
        assert set(channel.get("parameters", ())) == {t[1:-1] for t in event.about.subject.split(".") if t.startswith("{")}
        assert ("x-hbox-jetstream" in channel) == (event.about.stream is not None)
        assert f"`{event.about.subject}`" in tables


def test_every_writer_and_reader_has_its_operation_and_questions_name_their_answers() -> None:
    operations = DOCUMENT["operations"]
    for event in REGISTRY.values():
        if event in ANSWERS.values():
            continue
        assert all(f"{service}.send.{event.__name__}" in operations for service in event.about.writers)
        assert all(f"{service}.receive.{event.__name__}" in operations for service in event.about.readers)
    assert {t for t in REGISTRY.values() if t.about.stream is None} == {*ANSWERS, *ANSWERS.values()}
    assert operations["scheduler-core.send.ClaimsAsked"]["reply"]["channel"]["$ref"] == "#/channels/ClaimsPage"


@pytest.mark.parametrize("event", REGISTRY.values(), ids=lambda t: t.__name__)
def test_payload_schemas_are_valid_and_take_no_wrong_types(event: Any) -> None:
    schema = {"$ref": f"#/components/schemas/{event.__name__}", "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate("not a map", schema)


def test_the_schema_takes_a_message_as_it_is_on_the_wire() -> None:
    schema = {"$ref": "#/components/schemas/NodeStateChanged", "components": DOCUMENT["components"]}
    wire = {
        "node": {
            "name": "n1",
            "uid": "u",
            "generation": 1,
            "ready": True,
            "taints": [{"key": "k", "value": "", "effect": "NoSchedule"}],
        }
    }
    jsonschema.validate(wire, schema)
    assert NodeStateChanged.model_validate(wire).node.name == "n1"


def test_two_nouns_of_one_name_are_two_schemas() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert {"JobsVerdict", "NodeVerdict"} <= set(schemas)
    assert not any("__" in name for name in schemas)


def test_every_type_fits_its_stream_and_no_subject_is_in_two() -> None:
    subjects = [subject for stream in Stream for subject in config_of(stream)["subjects"]]
    assert len(subjects) == len(set(subjects))
    assert set(LIMITS) == set(Stream)
    for event in REGISTRY.values():
        if event.about.stream is not None:
            assert config_of(event.about.stream)["max_msg_size"] > event.about.max_bytes


def test_a_document_out_of_date_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "asyncapi.yaml"
    assert main(["--check", str(file)]) == 1
    assert "No such file" in capsys.readouterr().err
    assert main(["--write", str(file)]) == 0
    assert main(["--check", str(file)]) == 0
    file.write_text(file.read_text().replace("hbox.v1.node.state.{node}", "hbox.v1.node.mood.{node}"))
    assert main(["--check", str(file)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "asyncapi.yaml:" in line
    assert "node.mood" in line
    assert "make docs" in line
    file.write_text(text_of(file) + "more: 1\n")
    assert main(["--check", str(file)]) == 1


def test_the_command_runs_as_the_makefile_runs_it() -> None:
    command = [sys.executable, "-m", "hbox_common.asyncapi", "--check", *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_of_another_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as told:
        main(["--check", "x.txt"])
    assert told.value.code == 2
    assert "neither .yaml nor .md" in capsys.readouterr().err


def test_the_yaml_reads_back_as_the_document() -> None:
    assert yaml.safe_load(FILES[0].read_text()) == DOCUMENT
