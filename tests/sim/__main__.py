"""`python -m tests.sim --seed N`: run one seed in virtual time, and print its digest."""

import argparse
import logging
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from .world import Plan, prepared


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--seconds", type=float, default=120.0, metavar="S", help="virtual seconds [120]")
    parser.add_argument("--nodes", type=int, default=0, metavar="N", help="number of nodes [6 to 40, by the seed]")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write each message, write and commit to FILE")
    parser.add_argument("--log", default="critical", metavar="LEVEL", help="log level of the services [critical]")
    arguments = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("HBOX_")]:
        del os.environ[name]
    logging.basicConfig(level=arguments.log.upper())
    plan = Plan(arguments.seed, arguments.seconds, arguments.nodes)
    began = time.process_time()
    with ExitStack() as stack:
        trace = None if arguments.trace is None else stack.enter_context(arguments.trace.open("w"))
        world = stack.enter_context(prepared(plan, trace=trace))
        world.loop.run_until_complete(world.main())
        print(
            f"seed {plan.seed}: digest {world.digest.hex()}, {world.pods_bound} pods bound, {world.now:.0f} s in "
            f"{time.process_time() - began:.1f} s of processor; {world.broker.messages} messages, {world.api.requests} requests, "
            f"{world.disk.commits} commits, {world.loop.turns} turns; ended {world.ended}"
        )
        sys.stdout.flush()
        if trace is not None:
            trace.flush()
        os._exit(0)  # the services' tasks are not to be cleaned up


if __name__ == "__main__":
    sys.exit(main())
