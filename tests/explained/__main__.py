"""Random clusters, as many as asked for: prints what is wrong, and figures at the end. Exit status 1: something is."""

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count
from random import randrange
from traceback import format_exc

from .checks import check


def tried(seed: int) -> tuple[Counter[str], str]:
    """Figures of one cluster, and what is wrong."""
    try:
        return check(seed), ""
    except Exception:
        return Counter({"wrong": 1}), f"seed {seed}\n{format_exc(limit=-2)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.explained", description=__doc__)
    parser.add_argument("clusters", type=int, nargs="?", default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=None, help="of the first cluster [random]")
    parser.add_argument("-j", type=int, default=cpu_count() or 1, metavar="PROCESSES")
    given = parser.parse_args()
    first = randrange(2**32) if given.seed is None else given.seed
    figures: Counter[str] = Counter()
    with ProcessPoolExecutor(given.j) as pool:
        for done, (counted, wrong) in enumerate(pool.map(tried, range(first, first + given.clusters), chunksize=4), start=1):
            figures += counted
            if done % 100 == 0:
                print(f"{done} clusters, {figures['wrong']} wrong", file=sys.stderr, flush=True)
            if wrong:
                print(wrong, file=sys.stderr, flush=True)
    print(f"explanations on {given.clusters} random clusters, seeds from {first}:")
    for name, count in sorted(figures.items()):
        print(f"  {count:6} {name}")
    return int(bool(figures["wrong"]))


if __name__ == "__main__":
    raise SystemExit(main())
