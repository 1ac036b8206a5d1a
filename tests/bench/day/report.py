"""`python -m tests.bench day`: the table."""

import os
import time
from pathlib import Path

from .outcome import Measures, measures
from .policies import policies
from .simulated import alone, simulated
from .work import day_of

#: Where the traces are; without them there is no such day.
TRACES = Path(os.environ.get("HBOX_TRACES") or Path(__file__).parents[3] / ".." / "shared" / "traces")


def main() -> None:
    if not TRACES.is_dir():
        print(f"skipped: there are no traces in {TRACES}; HBOX_TRACES names their folder")
        return
    day, confs = day_of(TRACES), policies()
    large = sum(piece.large for piece in day.pieces)
    print(f"{len(day.pieces)} jobs, {large} of them large gangs, on {day.nodes} nodes of 8 cards; deserved {day.deserved}")
    private = alone(day, confs["HBox"])
    print(
        f"{'':18}{'large gangs wait':>20}{'all jobs wait':>16}{'used':>8}{'evicted':>9}{'lost card-h':>13}{'anomalies':>11}{'late h':>8}{'CPU s':>7}"
    )
    for name, conf in confs.items():
        began = time.process_time()
        line(name, measures(day, simulated(day, conf), private), time.process_time() - began)


def line(name: str, of: Measures, took_s: float) -> None:
    """Waits: the median and the 99th percentile, in seconds."""
    waits = f"{f'{of.large_p50:,.0f}, {of.large_p99:,.0f}':>20}{f'{of.all_p50:,.0f}, {of.all_p99:,.0f}':>16}"
    rest = f"{of.utilisation:>8.1%}{of.evictions:>9}{of.lost_card_hours:>13,.1f}{of.anomalies:>11}{of.anomaly_hours:>8,.1f}{took_s:>7.0f}"
    print(f"{name:18}{waits}{rest}", flush=True)


if __name__ == "__main__":
    main()
