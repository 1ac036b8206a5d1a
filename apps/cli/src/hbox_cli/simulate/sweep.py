"""`hbox simulate sweep`: appends each finished run to a file, so that an interrupted sweep continues with the missing runs."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, TypeAlias

from hbox_common.errors import InvalidRequest
from hbox_scheduler.core.simulate.fgd import FULL

from .fgd import Outcome, Work
from .published import PUBLISHED

#: Policy, trace, seed.
Key: TypeAlias = tuple[str, str, int]

FILE = "runs.ndjson"
_FIGURES = ("alloc_100", "alloc_130", "fragments_100", "fragments_130", "unplaced_pods")


@dataclass(frozen=True, slots=True)
class Journal:
    """`path`: one JSON object a line. One sweep at a time writes to it."""

    path: Path

    @classmethod
    def open(cls, folder: Path) -> "Journal":
        """Raises InvalidRequest where the folder cannot be made."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InvalidRequest(f"{folder} cannot be made: {e.strerror}", hint="choose another place with --out") from e
        return cls(folder / FILE)

    def read(self) -> dict[Key, dict[str, float]]:
        """Finished runs. A last line that was cut off by a kill is taken away. Raises InvalidRequest for any other line that is wrong."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as e:
            raise InvalidRequest(f"{self.path} cannot be read: {e.strerror}", hint="choose another place with --out") from e
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        found: dict[Key, dict[str, float]] = {}
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
                found[str(row["policy"]), str(row["trace"]), int(row["seed"])] = {name: float(row[name]) for name in _FIGURES}
            except (ValueError, KeyError, TypeError) as e:
                raise InvalidRequest(
                    f"{self.path} line {number} is not a run of a sweep",
                    hint="choose another place with --out, or remove the file",
                ) from e
        return found

    def add(self, work: Work, outcome: Outcome) -> dict[str, float]:
        """Take a finished run down; it is on disk when this returns."""
        figures = {
            "alloc_100": outcome.allocated[100],
            "alloc_130": outcome.allocated[FULL],
            "fragments_100": outcome.fragments[100],
            "fragments_130": outcome.fragments[FULL],
            "unplaced_pods": float(outcome.failed),
        }
        row = {"policy": work.policy, "trace": work.trace, "seed": work.seed, **{k: round(v, 4) for k, v in figures.items()}}
        with self.path.open("ab") as file:
            file.write(json.dumps(row).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return figures


def report(runs: Mapping[Key, Mapping[str, float]], *, policies: Iterable[str], traces: Iterable[str]) -> dict[str, Any]:
    """Means over the seeds: `traces.<trace>.<policy>.alloc_100` and so on."""
    table: dict[str, Any] = {}
    for trace in traces:
        row = table[trace] = {}
        for policy in policies:
            chosen = [figures for (p, t, _), figures in runs.items() if (p, t) == (policy, trace)]
            if chosen:
                row[policy] = {
                    "seeds": len(chosen),
                    **{name: round(fmean(one[name] for one in chosen), 3) for name in _FIGURES},
                }
                row[policy]["alloc_130_std"] = round(pstdev(one["alloc_130"] for one in chosen), 3)
        if trace in PUBLISHED:
            row["published fgd"] = {"alloc_100": PUBLISHED[trace].fgd_100, "alloc_130": PUBLISHED[trace].fgd_130}
    return {"traces": table}
