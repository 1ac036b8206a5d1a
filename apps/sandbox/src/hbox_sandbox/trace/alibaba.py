"""Reader of Alibaba's GPU cluster trace v2023 (`openb_node_list_*`, `openb_pod_list_*`), as CSV or gzipped CSV.

Files come from users: every error names the file, the line and the column.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

from hbox_common.errors import InvalidRequest

from .model import Trace, TraceNode, TracePod

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time",
)  # fmt: skip
_POD_NEEDED = POD_COLUMNS[:5]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_WHOLE = re.compile(r"\d{1,15}(\.0+)?")

#: Cards of one node, and of one pod: more is a broken row rather than a machine.
MAX_CARDS = 64


def read_alibaba2023(pods: Path, nodes: Path) -> Trace:
    """The trace of a pod list on the machines of a node list. Raises InvalidRequest that names file, line and column."""
    machines = tuple(_node(row, where) for row, where in _rows(nodes, NODE_COLUMNS, NODE_COLUMNS))
    arrivals = tuple(_pod(row, where) for row, where in _rows(pods, POD_COLUMNS, _POD_NEEDED))
    for path, items in ((nodes, machines), (pods, arrivals)):
        seen: set[str] = set()
        for item in items:
            if item.name in seen:
                raise InvalidRequest(f"{path}: the name {item.name} comes twice", hint="names have to be unique")
            seen.add(item.name)
    return Trace(pods.name.removesuffix(".gz").removesuffix(".csv"), machines, arrivals)


def _node(row: Mapping[str, str], where: str) -> TraceNode:
    cards = _number(row, "gpu", where, most=MAX_CARDS)
    model = _models(row, "model", where)
    if cards and len(model) != 1:
        raise InvalidRequest(f"{where}: model = {row['model']!r}: a node with cards has one model of card")
    return TraceNode(
        _name(row, "sn", where),
        _number(row, "cpu_milli", where, least=1),
        _number(row, "memory_mib", where, least=1),
        cards,
        model[0] if cards else "",
    )


def _pod(row: Mapping[str, str], where: str) -> TracePod:
    cards = _number(row, "num_gpu", where, most=MAX_CARDS)
    milli = _number(row, "gpu_milli", where, most=1000)
    if (cards == 0) != (milli == 0):
        raise InvalidRequest(f"{where}: num_gpu = {cards} and gpu_milli = {milli}: both are zero, or none of them")
    return TracePod(
        _name(row, "name", where),
        _number(row, "cpu_milli", where),
        _number(row, "memory_mib", where),
        cards,
        milli,
        _models(row, "gpu_spec", where),
    )


def _rows(path: Path, known: tuple[str, ...], needed: tuple[str, ...]) -> Iterator[tuple[Mapping[str, str], str]]:
    line = 0
    try:
        with _open(path) as text:
            reader = csv.reader(text, strict=True)
            header = next(reader, None)
            line = 1
            if header is None:
                raise InvalidRequest(f"{path}: the file is empty", hint=f"its first line names the columns {','.join(known)}")
            if unknown := [name for name in header if name not in known]:
                raise InvalidRequest(f"{path} line 1: unknown column {unknown[0]!r}", hint=f"known are {', '.join(known)}")
            if missing := [name for name in needed if name not in header]:
                raise InvalidRequest(
                    f"{path} line 1: there is no column {missing[0]!r}", hint=f"needed are {', '.join(needed)}"
                )
            for cells in reader:
                line = reader.line_num
                if len(cells) != len(header):
                    raise InvalidRequest(f"{path} line {line}: {len(cells)} cells, the first line names {len(header)} columns")
                yield dict(zip(header, cells, strict=True)), f"{path} line {line}"
    except FileNotFoundError as e:
        raise InvalidRequest(f"{path}: there is no such file", hint="check --trace and --nodes") from e
    except OSError as e:
        raise InvalidRequest(f"{path}: cannot be read: {e.strerror or e}") from e
    except (EOFError, zlib.error) as e:
        raise InvalidRequest(f"{path} after line {line}: the gzip stream is broken: {e}", hint="fetch the file anew") from e
    except (csv.Error, UnicodeDecodeError) as e:
        raise InvalidRequest(f"{path} after line {line}: not CSV in UTF-8: {e}") from e


def _open(path: Path) -> TextIO:
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    if zipped:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _name(row: Mapping[str, str], column: str, where: str) -> str:
    if not _NAME.fullmatch(row[column]):
        raise InvalidRequest(
            f"{where}: {column} = {row[column][:80]!r} cannot be the name of an object",
            hint="lower-case letters, digits and '-', at most 63",
        )
    return row[column]


def _number(row: Mapping[str, str], column: str, where: str, *, least: int = 0, most: int = 10**12) -> int:
    text = row[column]
    if not _WHOLE.fullmatch(text):
        raise InvalidRequest(f"{where}: {column} = {text[:80]!r} is not a whole number")
    value = int(text.split(".")[0])
    if not least <= value <= most:
        raise InvalidRequest(f"{where}: {column} = {value}: from {least} to {most} is possible")
    return value


def _models(row: Mapping[str, str], column: str, where: str) -> tuple[str, ...]:
    text = row.get(column, "")
    models = tuple(part for part in text.split("|") if part)
    for model in models:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", model):
            raise InvalidRequest(f"{where}: {column} = {text[:80]!r}: {model[:80]!r} cannot be the model of a card")
    return models
