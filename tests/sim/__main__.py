"""`python -m tests.sim --seed N`: run a seed in virtual time and print its digest; `--seeds N`: run many. Exit status 1: a promise was broken."""

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import planted, speed
from .coverage import WANTED, missing
from .disk import template
from .faults import KINDS, STATEFUL, Fault, drawn, parse
from .run import Outcome, again, apart, minimised, run, run_all
from .world import Plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="the seed, or the first of --seeds [1]")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="run N seeds")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="seeds at a time [2]")
    parser.add_argument("--seconds", type=float, default=120.0, metavar="S", help="virtual seconds [120]")
    parser.add_argument("--nodes", type=int, default=0, metavar="N", help="number of nodes [6 to 40, by the seed]")
    parser.add_argument(
        "--pods", type=float, default=0.0, metavar="N", help="pods that arrive per virtual second [1 to 8, by the seed]"
    )
    parser.add_argument(
        "--faults",
        metavar="LIST",
        help="AT:KIND:TARGET:VALUE, separated by commas; none; or prefixes of kinds, such as api,kill [all kinds, by the seed]. "
        + "; ".join(f"{name}: {kind.about}" for name, kind in KINDS.items()),
    )
    parser.add_argument(
        "--planted", nargs="*", metavar="WORD", help="plant the bugs of planted.toml [all] and search up to --seeds [200]"
    )
    parser.add_argument(
        "--wide",
        action="store_true",
        help="with a scheduler with errors, leaping clocks, stalls, restrictive users and other settings",
    )
    parser.add_argument("--coverage", action="store_true", help="list refusals, claim states and effects that no seed reached")
    parser.add_argument("--whole", action="store_true", help="list broken promises without minimising their faults")
    parser.add_argument(
        "--speed", action="store_true", help="measure virtual seconds per second of processor; exit status 1: a bar is missed"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write each message, write and commit to FILE")
    parser.add_argument("--log", default="critical", metavar="LEVEL", help="log level of the services [critical]")
    arguments = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("HBOX_")]:
        del os.environ[name]
    logging.basicConfig(level=arguments.log.upper())
    for name in STATEFUL:
        template(name)
    if arguments.speed:
        return speed.main(arguments.seconds)
    if arguments.planted is not None:
        options = (
            "--wide",
            "--processes",
            str(arguments.processes),
            "--seconds",
            f"{arguments.seconds:g}",
            "--nodes",
            str(arguments.nodes),
            "--pods",
            f"{arguments.pods:g}",
        )
        return planted.main(arguments.seeds or planted.MOST_SEEDS, arguments.planted, options)
    plans = [
        (plan, _faults(arguments.faults, plan))
        for plan in (
            Plan(arguments.seed + i, arguments.seconds, arguments.nodes, arguments.pods, arguments.wide)
            for i in range(max(1, arguments.seeds))
        )
    ]
    if not arguments.seeds:
        plan, faults = plans[0]
        outcome = apart(lambda: run(plan, faults, trace=arguments.trace))()
        _print(outcome)
        if outcome.violations:
            _report(outcome)
        return 1 if outcome.violations else 0
    began, broken = time.monotonic(), 0
    reached = set[str]()
    for outcome in run_all(plans, processes=arguments.processes):
        _print(outcome)
        reached |= outcome.reached
        if outcome.violations and arguments.whole:
            _list(outcome)
        elif outcome.violations:
            _report(outcome)
        broken += bool(outcome.violations)
    if arguments.coverage:
        left = missing(reached)
        print(f"reached {len(WANTED) - len(left)} of {len(WANTED)}; not reached:", *left, sep="\n  ")
    print(f"{len(plans)} seeds in {time.monotonic() - began:.0f} s, {broken} with violations")
    return 1 if broken else 0


def _faults(text: str | None, plan: Plan) -> Sequence[Fault]:
    if text is None:
        return drawn(plan.seed, plan.seconds, wide=plan.wide)
    if text in ("", "none"):
        return ()
    if ":" in text:
        return [parse(one) for one in text.split(",")]
    return drawn(plan.seed, plan.seconds, text.split(","), wide=plan.wide)


def _print(outcome: Outcome) -> None:
    counts = ", ".join(f"{number} {name}" for name, number in outcome.counts.items())
    print(
        f"seed {outcome.plan.seed}: digest {outcome.digest}, {outcome.bound} pods bound, {outcome.waiting} wait, "
        f"{len(outcome.violations)} violations, {outcome.virtual_s:.0f} s in {outcome.processor_s:.1f} s of processor, "
        f"{len(outcome.faults)} faults; {counts}",
        flush=True,
    )


def _list(outcome: Outcome) -> None:
    for one in outcome.violations[: planted.LISTED]:
        print(f"  {one.at:.3f} {one.rule}: {one.message}", flush=True)


def _report(outcome: Outcome) -> None:
    _list(outcome)
    least = minimised(outcome, again(outcome))
    print(f"  {command(least)}", flush=True)
    for one in least.violations[:3]:
        print(f"    {one.at:.3f} {one.rule}: {one.message}")


def command(outcome: Outcome) -> str:
    """How to run it again."""
    plan = outcome.plan
    parts = [f"python -m tests.sim --seed {plan.seed} --seconds {plan.seconds:g}"]
    if plan.nodes:
        parts.append(f"--nodes {plan.nodes}")
    if plan.pods_per_s:
        parts.append(f"--pods {plan.pods_per_s:g}")
    if plan.wide:
        parts.append("--wide")
    parts.append(f"--faults {','.join(map(str, outcome.faults)) or 'none'}")
    return " ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
