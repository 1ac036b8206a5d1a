"""The bus reference, generated from the registry: an AsyncAPI 3.0.0 document for programs, a page of tables for people, and JSON Schemas of public events.

    python -m hbox_common.asyncapi --write docs/reference/asyncapi.yaml docs/reference/bus.md docs/reference/events
    python -m hbox_common.asyncapi --check docs/reference/asyncapi.yaml docs/reference/bus.md docs/reference/events

A file's suffix selects the format; a path without a suffix is the folder of the schemas. --check exits with 1 and one line that names the first difference.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic.json_schema import models_json_schema

from .bus.streams import LIMITS, Limits, config_of
from .eventexamples import EXAMPLES
from .events import (
    REGISTRY,
    ClaimsAsked,
    ClaimsPage,
    CloudEvent,
    EpochAsked,
    EpochSaid,
    Event,
    HealthOrderAsked,
    HealthOrdersAsked,
    HealthOrdersPage,
    HealthOrderTaken,
    HealthPolicyAsked,
    HealthPolicyPage,
    JobsAsked,
    JobsPage,
    PodsAsked,
    PodsRead,
    Stream,
    UsageAsked,
    UsagePage,
)
from .events.codec import CLOUD_EVENT, CONTENT_TYPE
from .model.bounds import INT64_MAX

VERSION = "1.0.0"

#: What the keys of subjects stand for. Values are escaped by `token_of`.
KEYS = {
    "shard": "whose schedulers it is for, or from: 0 where there is one scheduler, and for what all hear (HBOX_SHARDS); or which part of a state it is",
    "node": "a node's name",
    "fabric": "a fabric's name; `hypernodes`: the one that HyperNode objects describe",
    "queue": "a queue's name",
    "scheduler": "the instance of scheduler-core that proposed",
    "phase": "a job's phase, in lower case",
    "job": "a job's id: the uid of its PodGroup, or of the bare pod; `_`: the event is about no single job",
    "domain": "the third token of the subject that the message came on",
    "incident": "an incident's id",
}

#: Which pages answer which question.
ANSWERS: Mapping[type[Event], type[Event]] = {
    ClaimsAsked: ClaimsPage,
    EpochAsked: EpochSaid,
    HealthOrderAsked: HealthOrderTaken,
    HealthOrdersAsked: HealthOrdersPage,
    HealthPolicyAsked: HealthPolicyPage,
    JobsAsked: JobsPage,
    PodsAsked: PodsRead,
    UsageAsked: UsagePage,
}

_HEADERS = {
    "type": "object",
    "description": "CloudEvents 1.0 in binary mode, the id that JetStream de-duplicates by, and the W3C trace context.",
    "required": ["ce-specversion", "ce-type", "ce-source", "ce-id", "ce-time", "content-type", "Nats-Msg-Id"],
    "properties": {
        "ce-specversion": {"const": "1.0"},
        "ce-type": {"type": "string", "description": "the type's name; a reader refuses a name it does not know"},
        "ce-source": {"type": "string", "description": "/hbox/<service>/<instance>"},
        "ce-id": {"type": "string", "description": "as Nats-Msg-Id"},
        "ce-time": {"type": "string", "format": "date-time"},
        "ce-deviceconfig": {
            "type": "string",
            "description": "the fingerprint of the writer's device_config and card_resources; absent if the writer has neither setting",
        },
        "content-type": {"const": CONTENT_TYPE},
        "Nats-Msg-Id": {"type": "string"},
        "traceparent": {
            "type": "string",
            "description": "of the job that the message is about; batches carry one in each item",
        },
    },
}

_STRUCTURED_HEADERS = {
    "type": "object",
    "description": "CloudEvents 1.0 in structured mode: the attributes are in the body. The id that JetStream de-duplicates by is the event's `id`.",
    "required": ["content-type", "Nats-Msg-Id"],
    "properties": {
        "content-type": {"const": CLOUD_EVENT},
        "Nats-Msg-Id": {"type": "string"},
        "traceparent": {"type": "string", "description": "of the job that the event is about"},
    },
}


def document() -> dict[str, Any]:
    """The AsyncAPI document, as plain data."""
    types = sorted(REGISTRY.values(), key=lambda t: (_order(t), t.about.subject))
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "HBox bus",
            "version": VERSION,
            "description": "Messages of HBox's services over NATS JetStream. Generated from the code; do not edit.",
        },
        "externalDocs": {
            "description": "Subscribers of the public events in Python, Go and TypeScript",
            "url": "../samples/events/README.md",
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {"nats": {"host": "127.0.0.1:4222", "protocol": "nats", "description": "HBOX_NATS_URL"}},
        "channels": {t.__name__: _channel(t) for t in types},
        "operations": dict(_operations(types)),
        "components": {
            "messages": {t.__name__: _message(t) for t in types},
            "schemas": {"Headers": _HEADERS, "CloudEventHeaders": _STRUCTURED_HEADERS, **_schemas(types)},
        },
    }


def _order(event: type[Event]) -> int:
    return list(Stream).index(event.about.stream) if event.about.stream else len(Stream)


def _keys(event: type[Event]) -> list[str]:
    return re.findall(r"{(\w+)}", event.about.subject)


def _summary(event: type[Event]) -> str:
    """The docstring's first paragraph, as one line; empty for a type whose fields say everything."""
    return " ".join((event.__doc__ or "").strip().split("\n\n")[0].split())


def _channel(event: type[Event]) -> dict[str, Any]:
    channel: dict[str, Any] = {"address": event.about.subject}
    if _keys(event):
        channel["parameters"] = {key: {"description": KEYS[key]} for key in _keys(event)}
    channel["messages"] = {event.__name__: {"$ref": f"#/components/messages/{event.__name__}"}}
    if event.about.stream is not None:
        channel["x-hbox-jetstream"] = _jetstream(LIMITS[event.about.stream], event)
    return channel


def _jetstream(limits: Limits, event: type[Event]) -> dict[str, Any]:
    config = config_of(limits.stream)
    return {
        "stream": limits.stream.value,
        "keeps": "the last message of each subject" if limits.last_value else _age(limits.max_age_s),
        "whenFull": "refuses new messages" if config["discard"] == "new" else "drops the oldest",
        "streamMaxBytes": limits.max_bytes,
        "messageMaxBytes": event.about.max_bytes,
        "duplicateWindowSeconds": config["duplicate_window"] // 10**9,
    }


def _age(seconds: int) -> str:
    if seconds < 2 * 3600:
        return f"{seconds // 60} minutes"
    return f"{seconds // 3600} hours" if seconds < 2 * 86400 else f"{seconds // 86400} days"


def _operations(types: Sequence[type[Event]]) -> Iterator[tuple[str, dict[str, Any]]]:
    pages = {page: question for question, page in ANSWERS.items()}
    for t in types:
        if t in pages:
            continue  # listed as the reply of its request
        for service in t.about.writers:
            yield f"{service}.send.{t.__name__}", _operation("send", t)
        for service in t.about.readers:
            yield f"{service}.receive.{t.__name__}", _operation("receive", t)


def _operation(action: str, event: type[Event]) -> dict[str, Any]:
    channel = f"#/channels/{event.__name__}"
    operation: dict[str, Any] = {
        "action": action,
        "channel": {"$ref": channel},
        "messages": [{"$ref": f"{channel}/messages/{event.__name__}"}],
    }
    if event in ANSWERS:
        page = ANSWERS[event].__name__
        operation["reply"] = {
            "address": {"location": "$message.header#/reply", "description": "the inbox of the request, as NATS carries it"},
            "channel": {"$ref": f"#/channels/{page}"},
            "messages": [{"$ref": f"#/channels/{page}/messages/{page}"}],
        }
    return operation


def _message(event: type[Event]) -> dict[str, Any]:
    message: dict[str, Any] = {"name": event.ce_type(), "title": event.__name__}
    if summary := _summary(event):
        message["summary"] = summary
    payload = {"$ref": f"#/components/schemas/{event.__name__}"}
    if issubclass(event, CloudEvent):
        return message | {
            "contentType": CLOUD_EVENT,
            "headers": {"$ref": "#/components/schemas/CloudEventHeaders"},
            "payload": {"allOf": [_attributes(event), payload]},
            "examples": [{"payload": one.attributes()} for one in EXAMPLES if type(one) is event],
        }
    return message | {"contentType": CONTENT_TYPE, "headers": {"$ref": "#/components/schemas/Headers"}, "payload": payload}


def _attributes(event: type[CloudEvent]) -> dict[str, Any]:
    """The schema of the attributes that are constant for a type."""
    constants = {
        "specversion": "1.0",
        "type": event.ce_type(),
        "datacontenttype": "application/json",
        "dataschema": event.dataschema(),
    }
    return {"required": list(constants), "properties": {name: {"const": value} for name, value in constants.items()}}


def _schemas(types: Sequence[type[Event]]) -> dict[str, Any]:
    """JSON Schemas of all payloads and their parts. Two types of the same name are distinguished by their module."""
    _, top = models_json_schema([(t, "validation") for t in types], ref_template="#/components/schemas/{model}")
    text = json.dumps(top["$defs"])
    for long in sorted(name for name in top["$defs"] if "__" in name):
        *_, module, short = long.split("__")
        text = text.replace(f'"{long}"', f'"{module.title()}{short}"').replace(f'/{long}"', f'/{module.title()}{short}"')
    schemas: dict[str, Any] = json.loads(text, object_hook=_without_int64)
    return dict(sorted(schemas.items()))


def schema_files() -> dict[str, str]:
    """JSON Schemas of the `data` of public events, by file name."""
    found = {}
    for event in REGISTRY.values():
        if issubclass(event, CloudEvent):
            data = event.model_fields["data"].annotation
            assert data is not None
            schema: dict[str, Any] = json.loads(json.dumps(data.model_json_schema()), object_hook=_without_int64)
            head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": event.dataschema()}
            text = json.dumps(head | schema | {"title": event.ce_type(), "description": _summary(event)}, indent=2)
            found[f"{event.kind}.v{event.version}.json"] = text + "\n"
    return found


def _without_int64(schema: dict[str, Any]) -> dict[str, Any]:
    """Removes the int64 bounds that all integers share; the page states them once."""
    return {key: one for key, one in schema.items() if (key, one) != ("maximum", INT64_MAX)}


def page() -> str:
    """The tables for people, as Markdown."""
    lines = [
        "# The bus",
        "",
        "Generated from the code by `make docs`; do not edit. The same for programs, with the schemas: [asyncapi.yaml](asyncapi.yaml).",
        "",
        "Every message is a msgpack map under CloudEvents headers (`ce-*`), with `Nats-Msg-Id` and, where a job is concerned, `traceparent`. A reader",
        "ignores fields that it does not know and sets aside in HBOX_DLQ what it cannot read. Keys in `{braces}` are one lower-case token each. Integers",
        "have 64 bits at most. Messages of HBOX_CLOUDEVENTS are CloudEvents in JSON instead, with their attributes in the body ([events for",
        "programs](../guides/events.md)); the schemas of their `data` are in [events/](events/).",
        "",
        "What programs of others may ask, in JSON, is listed and described by the services themselves, as micro services of NATS (`nats micro ls`):",
        "[the guide](../guides/integrators.md).",
        "",
        "## Streams",
        "",
        "| stream | holds | keeps | when full |",
        "|---|---|---|---|",
    ]
    for limits in LIMITS.values():
        keeps = "the last message of each subject" if limits.last_value else _age(limits.max_age_s)
        full = "refuses new messages" if limits.last_value else "drops the oldest"
        lines.append(f"| {limits.stream.value} | {limits.why} | {keeps}, {limits.max_bytes // 2**30} GiB | {full} |")
    for stream in [*Stream, None]:
        types = sorted((t for t in REGISTRY.values() if t.about.stream is stream), key=lambda t: t.about.subject)
        lines += ["", f"## {stream.value if stream else 'Questions and answers (core NATS)'}", ""]
        lines += ["| subject | message | from | to | at most |", "|---|---|---|---|---|"]
        for t in types:
            what = f"**{t.__name__}**" + (f": {_summary(t)}" if _summary(t) else "")
            cells = [
                f"`{t.about.subject}`",
                what,
                ", ".join(t.about.writers),
                ", ".join(t.about.readers),
                _size(t.about.max_bytes),
            ]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _size(count: int) -> str:
    return f"{count // 2**20} MiB" if count >= 2**20 else f"{count // 2**10} KiB"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  anchors would only puzzle readers
        return True


def text_of(path: Path) -> str:
    """What the file at `path` has to say. Raises ValueError for a suffix that is neither .yaml nor .md."""
    if path.suffix == ".yaml":
        return yaml.dump(document(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    if path.suffix == ".md":
        return page()
    raise ValueError(f"{path}: neither .yaml nor .md")


def drift(path: Path) -> str:
    """The first difference of the file from what it has to say, in one line; empty where there is none."""
    return _difference(path, text_of(path))


def folder_drift(folder: Path) -> str:
    """As `drift`, of the folder of schemas."""
    wanted = schema_files()
    if surplus := sorted(file.name for file in folder.glob("*.json") if file.name not in wanted):
        return f"{folder / surplus[0]}: no public event has this name"
    return next((found for name, text in wanted.items() if (found := _difference(folder / name, text))), "")


def _difference(path: Path, text: str) -> str:
    wanted = text.splitlines()
    try:
        found = path.read_text(encoding="utf-8").splitlines()
    except OSError as e:
        return f"{path}: {e.strerror}"
    for number, (a, b) in enumerate(zip(found, wanted, strict=False), 1):
        if a != b:
            return f"{path}:{number}: {a.strip()[:80]!r} is out of date; expected {b.strip()[:80]!r}"
    if len(found) != len(wanted):
        return f"{path}: has {len(found)} lines; expected {len(wanted)}"
    return ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hbox_common.asyncapi", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--write", action="store_true", help="write the files")
    todo.add_argument("--check", action="store_true", help="exit with 1 where a file is out of date")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="asyncapi.yaml, bus.md, or the folder of schemas")
    given = parser.parse_args(arguments)
    for path in given.paths:
        if path.suffix not in (".yaml", ".md", ""):
            parser.error(f"{path}: neither .yaml nor .md, nor a folder")
        if given.write and not path.suffix:
            path.mkdir(parents=True, exist_ok=True)
            for old in path.glob("*.json"):
                old.unlink()
            for name, text in schema_files().items():
                (path / name).write_text(text, encoding="utf-8")
        elif given.write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(path), encoding="utf-8")
        elif difference := drift(path) if path.suffix else folder_drift(path):
            print(f"{difference}; run `make docs`", file=sys.stderr)  # noqa: T201  this is a command
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
