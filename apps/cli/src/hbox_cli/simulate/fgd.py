"""`hbox simulate fgd`: runs of the protocol over traces and seeds, compared with published results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate.fgd import FULL, curve_of

from .openb import Arrivals, read
from .published import PUBLISHED

#: As in the published runs.
FIRST_SEED = 42


@dataclass(frozen=True, slots=True)
class Work:
    """One run."""

    folder: Path
    trace: str
    seed: int
    policy: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run: by arrived percent, 0 to 130, what was allocated and F, in percent of all cards; pods placed, and not."""

    allocated: tuple[float, ...]
    fragments: tuple[float, ...]
    placed: int
    failed: int


@lru_cache(maxsize=2)
def _arrivals(folder: Path, trace: str) -> Arrivals:
    return read(folder, trace)


def run(work: Work) -> Outcome:
    return outcome_of(_arrivals(work.folder, work.trace), work)


def outcome_of(arrivals: Arrivals, work: Work) -> Outcome:
    """As `run`, where the trace has been read already."""
    order = arrivals.order(work.seed, percent=FULL)
    curve = curve_of(arrivals.nodes, arrivals.specs, order, policy_of(PolicyName(work.policy)))
    return Outcome(tuple(curve.allocated.tolist()), tuple(curve.fragments.tolist()), curve.placed, curve.failed)


def summary(outcomes: Mapping[int, Outcome], trace: str) -> dict[str, Any]:
    """One trace: means over the seeds, their spread, and published results if there are any."""
    runs = [outcomes[seed] for seed in sorted(outcomes)]
    row: dict[str, Any] = {}
    for mark in (100, FULL):
        values = [run.allocated[mark] for run in runs]
        row[f"alloc_{mark}"] = round(fmean(values), 3)
        row[f"alloc_{mark}_min"], row[f"alloc_{mark}_max"] = round(min(values), 3), round(max(values), 3)
        row[f"alloc_{mark}_std"] = round(pstdev(values), 3)
        row[f"fragments_{mark}"] = round(fmean(run.fragments[mark] for run in runs), 3)
    row["unplaced_pods"] = round(fmean(run.failed for run in runs), 1)
    row["by_seed"] = {
        str(seed): {"alloc_100": round(outcomes[seed].allocated[100], 3), "alloc_130": round(outcomes[seed].allocated[FULL], 3)}
        for seed in sorted(outcomes)
    }
    published = PUBLISHED.get(trace)
    if published is not None:
        row["published"] = {
            "fgd": {"alloc_100": published.fgd_100, "alloc_130": published.fgd_130, "fragments_100": published.fragments_100},
            "bestfit": {"alloc_100": published.bestfit_100, "alloc_130": published.bestfit_130},
            "bound": {"alloc_100": published.bound_100, "alloc_130": published.bound_130},
        }
        row["over_fgd_100"] = round(row["alloc_100"] - published.fgd_100, 3)
        row["over_fgd_130"] = round(row["alloc_130"] - published.fgd_130, 3)
        row["gap_closed"] = round((row["alloc_100"] - published.fgd_100) / (published.bound_100 - published.fgd_100), 3)
    return row


def report(outcomes: Mapping[str, Mapping[int, Outcome]], *, policy: str, seeds: Sequence[int]) -> dict[str, Any]:
    traces = {name: summary(runs, name) for name, runs in outcomes.items()}
    content: dict[str, Any] = {"policy": policy, "seeds": list(seeds), "traces": traces}
    known = [row for row in traces.values() if "published" in row]
    if known:
        keys = ("alloc_100", "alloc_130", "over_fgd_100", "over_fgd_130", "gap_closed")
        content["mean"] = {key: round(fmean(row[key] for row in known), 3) for key in keys}
    return content
