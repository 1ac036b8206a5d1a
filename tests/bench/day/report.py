"""`python -m tests.bench day`: the table."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from .outcome import Measures, measures
from .policies import Row, policies
from .running import SCALE, lived
from .simulated import IDLE, alone, simulated
from .work import CARDS, DAY_S, FIRST, OTHERS, Day, day_of

#: Where the traces are; without them there is no such day.
TRACES = Path(os.environ.get("HBOX_TRACES") or Path(__file__).parents[3] / ".." / "shared" / "traces")


def main() -> None:
    if not TRACES.is_dir():
        print(f"skipped: there are no traces in {TRACES}; HBOX_TRACES names their folder")
        return
    rows = policies()
    day, private = engine(FIRST, rows)
    if SCALE:
        found = lived(day)
        line("HBox, platform", measures(day, found.outcome, private), sum(found.cpu_s.values()))
        print(f"the platform's own words: {found.receipts} receipts of evicted pods, {found.faults} faults found by its audit")
    for days in OTHERS:
        engine(days, {name: rows[name] for name in ("HBox", "HBox, moves on", "KAI's rules")})


def engine(days: tuple[int, int], rows: Mapping[str, Row]) -> tuple[Day, Mapping[str, float]]:
    """A day under these policies in the engine's own time, printed. Returns it, and what its jobs wait in clusters of their departments' own."""
    day = day_of(TRACES, days)
    large = sum(piece.large for piece in day.pieces)
    print(f"\ndays {days[0]} of ITP and {days[1]} of Alibaba: {len(day.pieces)} jobs, {large} of them large gangs, ", end="")
    print(f"on {day.nodes} nodes of 8 cards; deserved {day.deserved}")
    private = alone(day, policies()["HBox"].conf)
    titles = (("large gangs wait", 20), ("all jobs wait", 16), ("used", 8), ("useful", 8), ("evicted", 9), ("lost card-h", 13))
    print(" " * 18 + "".join(f"{title:>{width}}" for title, width in (*titles, ("anomalies", 11), ("late h", 8), ("CPU s", 7))))
    for name, policy in rows.items():
        began = time.process_time()
        outcome, idle = simulated(day, policy)
        line(name, measures(day, outcome, private), time.process_time() - began)
        if IDLE:
            print(f"{'':18}idle: {idle.words(DAY_S * day.nodes * CARDS)}")
    return day, private


def line(name: str, of: Measures, took_s: float) -> None:
    """Waits: the median and the 99th percentile, in seconds."""
    waits = f"{f'{of.large_p50:,.0f}, {of.large_p99:,.0f}':>20}{f'{of.all_p50:,.0f}, {of.all_p99:,.0f}':>16}"
    rest = f"{of.utilisation:>8.1%}{of.useful:>8.1%}{of.evictions:>9}{of.lost_card_hours:>13,.1f}{of.anomalies:>11}{of.anomaly_hours:>8,.1f}{took_s:>7.0f}"
    print(f"{name:18}{waits}{rest}", flush=True)


if __name__ == "__main__":
    main()
