"""The output of nccl-tests, and a table of pair tests (round, node_a, node_b, busbw_gbs, status)."""

import csv
import io
import re
from dataclasses import dataclass

from .records import Record

_TAG = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:\s?")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)")
_ROW = re.compile(r"\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)\s+(.*)")
_GPUS = re.compile(r"#\s*nThread (\d+) nGpus (\d+)")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([-\d.]+)")
_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)")
_FAILURE = re.compile(r"Test (?:NCCL |CUDA )?failure|NCCL WARN .*(?:timeout|abort)", re.IGNORECASE)


def parse_nccl(text: str) -> Record:
    """What one run printed: `rows`, `ranks`, `nodes`, `model`, `operation`, `avg_busbw` (None: the run did not end), `busbw_at` by bytes, `wrong`,
    `out_of_bounds`, `failed`."""
    ranks: set[int] = set()
    nodes: list[str] = []
    busbw: dict[int, float] = {}
    rows = wrong = gpus = 0
    model = operation = average = bounds = None
    failed = False
    for tagged in text.splitlines():
        line = _TAG.sub("", tagged)
        if line.startswith("#"):
            if rank := _RANK.match(line):
                ranks.add(int(rank[1]))
                nodes += [rank[2]] if rank[2] not in nodes else []
                model = model or rank[3].strip() or None
            elif found := _GPUS.match(line):
                gpus = int(found[1]) * int(found[2])
            elif found := _AVERAGE.match(line):
                average = _number(found[1])
            elif found := _BOUNDS.match(line):
                bounds = int(found[1])
        elif (row := _ROW.match(line)) and len(numbers := row[6].split()) >= 3:
            rows += 1
            operation = row[4]
            value = _number(numbers[2])
            if value is not None:
                busbw[int(row[1])] = value
            wrong += sum(int(numbers[i]) for i in (3, 7) if i < len(numbers) and numbers[i].isdigit())
        elif _FAILURE.search(line):
            failed = True
    out: Record = {"rows": rows, "ranks": len(ranks) or gpus or None, "avg_busbw": average, "busbw_at": busbw, "wrong": wrong}
    if bounds is not None:
        out["out_of_bounds"] = bounds
    out["failed"] = failed or average is None
    return out | {k: v for k, v in (("nodes", nodes), ("model", model), ("operation", operation)) if v}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Pair:
    round: int
    one: str
    other: str
    busbw: float
    ok: bool


def parse_pairs(text: str) -> list[Pair]:
    """The rows of a table of pair tests. Raises ValueError with the line of a row that is none."""
    out: list[Pair] = []
    reader = csv.DictReader(io.StringIO(text))
    for row in reader:
        try:
            out.append(
                Pair(int(row["round"]), row["node_a"], row["node_b"], float(row["busbw_gbs"] or 0), row.get("status") == "ok")
            )
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"line {reader.line_num}: not a pair test: {','.join(str(v) for v in row.values())}") from None
    return out
