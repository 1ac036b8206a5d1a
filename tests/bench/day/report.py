"""`python -m tests.bench day`: the table."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .outcome import Measures, measures
from .policies import Row, policies
from .running import SCALE, lived
from .simulated import IDLE, alone, simulated
from .work import CARDS, DAY_S, FIRST, OTHERS, Day, day_of

#: Where the traces are; without them there is no such day.
TRACES = Path(os.environ.get("HBOX_TRACES") or Path(__file__).parents[3] / ".." / "shared" / "traces")


#: What is compared on all days.
COMPARED = ("HBox", "HBox, moves on", "KAI's, levels", "KAI's rules")


def main() -> None:
    if not TRACES.is_dir():
        print(f"skipped: there are no traces in {TRACES}; HBOX_TRACES names their folder")
        return
    rows = policies()
    day, private, first = engine(FIRST, rows)
    if SCALE:
        found = lived(day)
        line("HBox, platform", measures(day, found.outcome, private), sum(found.cpu_s.values()), levels=True)
        print(f"the platform's own words: {found.receipts} receipts of evicted pods, {found.faults} faults found by its audit")
    compared = {name: rows[name] for name in COMPARED}
    every = [first, *(engine(days, compared)[2] for days in OTHERS)]
    averages({name: [found[name] for found in every] for name in COMPARED}, compared)


def engine(days: tuple[int, int], rows: Mapping[str, Row]) -> tuple[Day, Mapping[str, float], Mapping[str, Measures]]:
    """A day under these policies in the engine's own time, printed. Returns it, what its jobs wait in clusters of their departments' own, and what was
    measured."""
    day = day_of(TRACES, days)
    large = sum(piece.large for piece in day.pieces)
    print(f"\ndays {days[0]} of ITP and {days[1]} of Alibaba: {len(day.pieces)} jobs, {large} of them large gangs, ", end="")
    print(f"on {day.nodes} nodes of 8 cards; deserved {day.deserved}")
    private = alone(day, policies()["HBox"].conf)
    titles = (("levels", 7), ("large gangs wait", 20), ("all jobs wait", 16), ("used", 8), ("useful", 8), ("evicted", 9))
    more = (("lost card-h", 13), ("anomalies", 11), ("late h", 8), ("CPU s", 7))
    print(" " * 16 + "".join(f"{title:>{width}}" for title, width in (*titles, *more)))
    found: dict[str, Measures] = {}
    for name, policy in rows.items():
        began = time.process_time()
        outcome, idle = simulated(day, policy)
        found[name] = measures(day, outcome, private)
        line(name, found[name], time.process_time() - began, levels=policy.keeps_levels)
        if IDLE:
            print(f"{'':18}idle: {idle.words(DAY_S * day.nodes * CARDS)}")
    return day, private, found


def line(name: str, of: Measures, took_s: float, *, levels: bool) -> None:
    """Waits: the median and the 99th percentile, in seconds. levels: whether the policy keeps to the three levels."""
    waits = f"{f'{of.large_p50:,.0f}, {of.large_p99:,.0f}':>20}{f'{of.all_p50:,.0f}, {of.all_p99:,.0f}':>16}"
    rest = f"{of.utilisation:>8.1%}{of.useful:>8.1%}{of.evictions:>9}{of.lost_card_hours:>13,.1f}{of.anomalies:>11}{of.anomaly_hours:>8,.1f}{took_s:>7.0f}"
    print(f"{name:16}{'kept' if levels else '-':>7}{waits}{rest}", flush=True)


#: Of measures: what they are called, and how they are written.
_WRITTEN = (
    ("large_p50", "large gangs wait, p50 (s)", ",.0f"),
    ("large_p99", "large gangs wait, p99 (s)", ",.0f"),
    ("all_p99", "all jobs wait, p99 (s)", ",.0f"),
    ("utilisation", "used", ".1%"),
    ("useful", "useful", ".1%"),
    ("evictions", "evicted", ",.0f"),
    ("lost_card_hours", "lost card-hours", ",.0f"),
    ("anomalies", "anomalies", ",.1f"),
    ("anomaly_hours", "late hours", ",.1f"),
)


def averages(found: Mapping[str, Sequence[Measures]], rows: Mapping[str, Row]) -> None:
    """Of all days: the average of each measure, and from the least to the most."""
    names = [f"{name} ({'levels kept' if rows[name].keeps_levels else 'breaks levels'})" for name in found]
    print(f"\naverage of {len(OTHERS) + 1} days (least to most)\n{'':28}" + "".join(f"{name:>34}" for name in names))
    for key, title, how in _WRITTEN:
        cells = []
        for days in found.values():
            of = [getattr(one, key) for one in days]
            cells.append(f"{sum(of) / len(of):{how}} ({min(of):{how}} to {max(of):{how}})")
        print(f"{title:28}" + "".join(f"{cell:>34}" for cell in cells))


if __name__ == "__main__":
    main()
