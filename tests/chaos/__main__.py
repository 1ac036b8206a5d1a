"""`make chaos N=100`: N faults at random moments under load, a table of what they did, exit status 1 where a promise was broken."""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from tests.e2e.platform_world import up

from .campaign import campaign
from .faults import schedule


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--n", type=int, default=30, help="faults")
    parser.add_argument("--seed", type=int, default=1, help="of faults, their order and length, and of the load")
    parser.add_argument(
        "--hold", type=float, nargs=2, default=(5.0, 30.0), metavar="S", help="shortest and longest of those that last"
    )
    parser.add_argument("--only", default="", help="faults whose name has this in it")
    parser.add_argument("--rate", type=float, default=12.0, help="pods per second")
    parser.add_argument(
        "--slack", type=float, default=1.0, help="factor on the limits, for a machine that does other things too"
    )
    arguments = parser.parse_args()
    faults = schedule(arguments.n, arguments.seed, hold_s=tuple(arguments.hold))
    if arguments.only:
        faults = [
            fault
            for fault in schedule(50 * arguments.n, arguments.seed, hold_s=tuple(arguments.hold))
            if arguments.only in fault.name
        ]
        faults = faults[: arguments.n]
    folder = Path(tempfile.mkdtemp(prefix="hbox-chaos-"))
    with up(folder / "state") as platform:
        report = asyncio.run(campaign(platform.state, faults, seed=arguments.seed, rate=arguments.rate, slack=arguments.slack))
        platform.stop()
    print(report.table())
    if report.violations:
        print(f"logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
