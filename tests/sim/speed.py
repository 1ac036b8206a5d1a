"""Virtual seconds per second of processor at several rates of pods."""

import sys

from .run import apart, run
from .world import Plan

#: Pods that arrive in a virtual second, and the virtual seconds per second of processor that are wanted at that rate; 0: no bar.
BARS = {1.0: 0.0, 3.0: 0.0, 8.0: 0.0, 20.0: 20.0}
SEED, NODES = 7, 24


def main(seconds: float) -> int:
    """Run the same seed without faults at each rate, one after the other, and print a table. Exit status 1: a bar is missed."""
    missed = 0
    print("pods/s  pods bound  processor s  ms per pod  virtual s per s   bar", flush=True)
    for rate, bar in BARS.items():
        plan = Plan(SEED, seconds, NODES, rate)
        outcome = apart(lambda plan=plan: run(plan, ()))()  # type: ignore[misc]
        speed = outcome.virtual_s / outcome.processor_s
        missed += speed < bar
        print(
            f"{rate:6g}  {outcome.bound:10d}  {outcome.processor_s:11.1f}  {1000 * outcome.processor_s / max(1, outcome.bound):10.1f}"
            f"  {speed:15.1f}  {f'{bar:g}' if bar else '-':>4}{'  missed' if speed < bar else ''}",
            flush=True,
        )
        for one in outcome.violations:
            print(f"  {one.at:.3f} {one.rule}: {one.message}", file=sys.stderr)
    return 1 if missed else 0
