"""Files of `hbox health judge`: a case (YAML with kind, context and input), or a plain file whose kind its content shows."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.health.lines import MARKS
from hbox_common.visible import visible

CASE_KINDS = ("xid-line", "sxid-line", "nvml", "dcgm", "ib", "nccl", "story")
#: Plain files by the input of a case that they are, and the case's kind.
PLAIN_KINDS = {
    "kmsg": "xid-line",
    "dev_kmsg": "xid-line",
    "journal": "xid-line",
    "fabricmanager_log": "sxid-line",
    "metrics": "dcgm",
    "output": "nccl",
    "pairs": "nccl",
    "node": "nvml",
}

_RAW = re.compile(r"^(?:!EPIPE|\d+,\d+,\d+,[^;\n]*;)", re.MULTILINE)
_KERNEL = re.compile(r"^(?:kernel: |<\d+>|\[ *\d+\.\d+\]|\[\w{3} \w{3} +\d+ |\w+ *:\w+ *: |.* kernel: )", re.MULTILINE)
_LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Case:
    name: str  #: the id of a case; the path of a plain file
    kind: str
    input: Mapping[str, Any]
    context: Mapping[str, Any] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)  #: of a story: its `at` names what is asked, and when
    file: str = ""

    @property
    def where(self) -> str:
        """For messages about an invalid input."""
        return self.file or self.name

    @property
    def box(self) -> str:
        """The kind of box, or the model of its cards. Raises InvalidRequest."""
        box = self.context.get("box", "")
        if not isinstance(box, str):
            raise InvalidRequest(f"{self.where}: context: box: text is expected")
        return box

    def integer(self, key: str) -> int | None:
        """A whole number of the input. Raises InvalidRequest if it is anything else."""
        value = self.input.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise InvalidRequest(f"{self.where}: input: {key}: a whole number is expected")
        return value

    def uuids(self, key: str) -> list[str] | None:
        """UUIDs in the input (a list, or the keys of a mapping), if they are there. Raises InvalidRequest."""
        where, value = f"{self.where}: input: {key}", self.input.get(key)
        return None if value is None else [checked(where, one, str) for one in checked(where, value, list, dict)]

    def cards(self, key: str) -> list[str] | int | None:
        """UUIDs of cards in the input, or how many cards they are. Raises InvalidRequest."""
        if isinstance(self.input.get(key), str):
            raise InvalidRequest(f"{self.where}: input: {key}: a number of cards or their UUIDs are expected")
        return self.integer(key) if isinstance(self.input.get(key), int) else self.uuids(key)

    def text(self, key: str) -> str:
        """A text of the input, or its lines; an entry of a journal may be a mapping."""
        value = self.input.get(key)
        if isinstance(value, list):
            value = "\n".join(json.dumps(line) if isinstance(line, dict) else str(line) for line in value)
        if not isinstance(value, str):
            raise InvalidRequest(f"{self.where}: input: {key}: text is expected")
        return value


def read_case(path: Path, *, kind: str | None = None, context: Mapping[str, Any] | None = None) -> Case:
    """The case in a file. Raises NotFound or InvalidRequest, which name file and line. kind: of a plain file, else found by content."""
    text = _read(path)
    if kind is None and path.suffix in {".yaml", ".yml"}:
        return _case(path, text)
    shape = kind or _kind_of(path, text)
    content: Any = _document(path, text) if shape == "node" else text
    return Case(str(path), PLAIN_KINDS[shape], {shape: content}, context or {})


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except OSError as e:
        raise InvalidRequest(f"{path}: {e.strerror}") from None
    if len(content) > _LARGEST:
        raise InvalidRequest(f"{path}: larger than {_LARGEST >> 20} MiB")
    return content.decode(errors="replace")


def _case(path: Path, text: str) -> Case:
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        document = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as e:
        mark = getattr(e, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise InvalidRequest(f"{path}{where}: invalid YAML: {visible(str(getattr(e, 'problem', e)))}") from None
    if not isinstance(document, dict):
        raise InvalidRequest(f"{path}, line 1: not a case: a mapping with kind and input is expected")

    def invalid(key: str, what: str) -> InvalidRequest:
        return InvalidRequest(f"{path}, line {_line(root, key)}: {what}")

    kind, given, context = document.get("kind"), document.get("input"), document.get("context", {})
    if kind not in CASE_KINDS:
        raise invalid("kind", f"kind: {visible(str(kind))} is not one of {', '.join(CASE_KINDS)}")
    if not isinstance(given, dict):
        raise invalid("input", "input: a mapping is expected")
    if not isinstance(context, dict):
        raise invalid("context", "context: a mapping is expected")
    expect = document.get("expect", {})
    if not isinstance(expect, dict):
        raise invalid("expect", "expect: a mapping is expected")
    at = expect.get("at", [])
    if not isinstance(at, list) or not all(isinstance(entry, dict) and is_number(entry.get("t")) for entry in at):
        raise invalid("expect", "expect: at: a list of mappings with t is expected")
    return Case(str(document.get("id", path.stem)), kind, given, context, expect, str(path))


_NAMES = {dict: "a mapping", list: "a list", int: "a number", float: "a number", bool: "true or false", str: "text"}


def checked(where: str, value: Any, *kinds: type) -> Any:
    """The value. Raises InvalidRequest unless it is of one of the kinds; true and false are no numbers."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise InvalidRequest(f"{where}: {' or '.join(dict.fromkeys(_NAMES[k] for k in kinds if k in _NAMES))} is expected")
    return value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _line(root: Any, key: str) -> int:
    """The line of a key; the first where it is missing."""
    if isinstance(root, yaml.MappingNode):
        for name, _ in root.value:
            if getattr(name, "value", None) == key:
                return int(name.start_mark.line) + 1
    return 1


def _document(path: Path, text: str) -> Any:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as e:
        where = f", line {e.lineno}" if isinstance(e, json.JSONDecodeError) else ""
        raise InvalidRequest(f"{path}{where}: invalid JSON") from None
    if not isinstance(document, dict) or not isinstance(document.get("gpus"), list):
        raise InvalidRequest(f"{path}, line 1: not a node: a mapping with gpus is expected")
    return document


def _kind_of(path: Path, text: str) -> str:
    if not text.strip():
        raise InvalidRequest(f"{path}: the file is empty; --kind states what it should hold")
    head = text[: 1 << 16]
    if head.lstrip().startswith("{"):
        return "journal" if "_TRANSPORT" in head else "node"
    if "DCGM_" in head and re.search(r"^DCGM_\w+\{", head, re.MULTILINE):
        return "metrics"
    if head.startswith("round,node_a,node_b,"):
        return "pairs"
    if "busbw" in head or "# nThread" in head:
        return "output"
    if _RAW.search(head):
        return "dev_kmsg"
    if "[tid " in head:
        return "fabricmanager_log"
    if _KERNEL.search(head) or any(word in text for word in MARKS):
        return "kmsg"
    raise InvalidRequest(f"{path}, line 1: neither a kernel log, exporter text nor nccl-tests output; --kind states what it is")
