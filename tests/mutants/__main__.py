"""`make mutants` plants each fault in a scratch copy of the tree and runs the tests nearest to it. Exit status 1: the tests of a fault all pass.

The tests first run without a fault: a test that fails anyway detects none.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

from .scratch import Scratch
from .table import BadTable, Mutant, chosen, faults_of, read_tables
from .verdicts import FINE, Outcome, Verdict, failures, judge

ROOT = Path(__file__).parents[2]
#: For the tests of all chosen faults together, without any fault.
SOUND_LIMIT_S = 1800.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="plant only faults whose service/name contains one of these")
    parser.add_argument("--service", action="append", default=[], help="plant only faults of this table; may be repeated")
    parser.add_argument("-j", type=int, default=1, metavar="N", help="number of faults in parallel")
    parser.add_argument("--list", action="store_true", help="list the faults and run nothing")
    parser.add_argument("--check", action="store_true", help="check that the tables fit the sources, and run nothing")
    arguments = parser.parse_args()
    try:
        mutants = chosen(read_tables(), services=arguments.service, words=arguments.words)
    except BadTable as e:
        return _complain(str(e))
    if not mutants:
        return _complain("no planted fault has such a name")
    if arguments.check:
        wrong = list(faults_of(mutants, ROOT))
        return _complain("\n".join(wrong)) if wrong else 0
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.title}: {mutant.breaks}")
        return 0
    started = time.monotonic()
    with ExitStack() as stack:
        copies = [_copy(stack) for _ in range(max(1, min(arguments.j, len(mutants))))]
        red = _red(mutants, copies)
        if red:
            return _complain(f"red without any fault: {', '.join(red)}")
        verdicts = tuple(_judged(mutants, copies))
    print(_table(verdicts))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{_result(verdicts)}; {time.monotonic() - started:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processor")
    return 0 if all(v.outcome in FINE for v in verdicts) else 1


def _copy(stack: ExitStack) -> Scratch:
    return Scratch.copy(ROOT, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hbox-mutants-"))))


def _red(mutants: Sequence[Mutant], copies: Sequence[Scratch]) -> list[str]:
    """Tests of the faults that fail without a fault."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    copies = copies[: len(tests)]  # pytest without any test named runs them all
    shares = [tests[i :: len(copies)] for i in range(len(copies))]
    print(f"{len(tests)} tests without any fault ...", flush=True)
    with ThreadPoolExecutor(len(copies)) as pool:
        runs = list(
            pool.map(
                lambda pair: pair[0].run(pair[1], limit_s=SOUND_LIMIT_S, first_failure=False), zip(copies, shares, strict=True)
            )
        )
    return [name for run in runs if run.status != 0 for name in failures(run.output) or [run.output.strip()[-2000:]]]


def _judged(mutants: Sequence[Mutant], copies: Sequence[Scratch]) -> Iterable[Verdict]:
    """Verdicts, with a line of progress for each."""
    free: SimpleQueue[Scratch] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def one(mutant: Mutant) -> tuple[Verdict, float]:
        scratch, began = free.get(), time.monotonic()
        try:
            return judge(mutant, scratch), time.monotonic() - began
        finally:
            free.put(scratch)

    with ThreadPoolExecutor(len(copies)) as pool:
        for n, future in enumerate(as_completed([pool.submit(one, mutant) for mutant in mutants]), start=1):
            verdict, took_s = future.result()
            print(
                f"[{n}/{len(mutants)}] {verdict.outcome.value}: {verdict.mutant.title} ({took_s:.1f} s) {verdict.because}",
                flush=True,
            )
            yield verdict


def _table(verdicts: Sequence[Verdict]) -> str:
    """Counts by service, then each fault that no test detected, with the reason."""
    services = Counter(v.mutant.service for v in verdicts)
    caught = Counter(v.mutant.service for v in verdicts if v.outcome is Outcome.CAUGHT)
    lines = [
        f"\n{'table':<22}{'planted':>8}{'caught':>8}",
        *(f"{s:<22}{n:>8}{caught[s]:>8}" for s, n in sorted(services.items())),
    ]
    others = sorted((v for v in verdicts if v.outcome is not Outcome.CAUGHT), key=lambda v: v.mutant.title)
    return "\n".join([*lines, "", *(f"{v.outcome.value}: {v.mutant.title}: {v.because}" for v in others)])


def _result(verdicts: Sequence[Verdict]) -> str:
    counts = Counter(v.outcome for v in verdicts)
    return f"{len(verdicts)} planted: " + ", ".join(f"{counts[o]} {o.value}" for o in Outcome if counts[o] or o in FINE)


def _complain(text: str) -> int:
    print(f"make mutants: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
