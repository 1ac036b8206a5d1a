"""`python -m tests.sim --planted`: plants one bug at a time in a copy of the tree, and runs seeds until one is caught: a promise is broken, or a service ends.

`planted.toml` names bugs of `tests/mutants/tables`, or has its own with the same keys but `tests`.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..mutants.scratch import Scratch
from ..mutants.table import Mutant, read_tables

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("planted.toml")
MOST_SEEDS = 200
#: Within so many seeds all bugs but two are to be caught.
FEW_SEEDS = 20
LIMIT_S = 3000.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """`seed`: 0: not caught. `tries`: seeds that ran."""

    bug: Mutant
    seed: int
    tries: int
    rule: str


def read(path: Path = TABLE) -> tuple[Mutant, ...]:
    """The planted bugs. Raises KeyError where `from` names none of tests/mutants."""
    known = {mutant.title: mutant for mutant in read_tables()}
    bugs = []
    for name, entry in tomllib.loads(path.read_text()).items():
        bugs.append(known[entry["from"]] if "from" in entry else Mutant(service="sim", name=name, tests=(), **entry))
    return tuple(bugs)


def plant(bug: Mutant, scratch: Scratch, *, seeds: int, options: Sequence[str] = ()) -> Verdict:
    """Run seeds 1, 2, ... in the copy with the bug in place, until one is caught."""
    source = scratch.read(bug.file)
    patched = None if source is None else bug.patched(source)
    if source is None or patched is None:
        return Verdict(bug, 0, 0, "STALE: its text does not stand in the file exactly once")
    scratch.write(bug.file, patched)
    try:
        return _searched(bug, scratch, seeds, options)
    finally:
        scratch.write(bug.file, source)


def _searched(bug: Mutant, scratch: Scratch, seeds: int, options: Sequence[str]) -> Verdict:
    sources = [str(path) for folder in ("apps", "libs", "services") for path in sorted((scratch.root / folder).glob("*/src"))]
    words = [sys.executable, "-m", "tests.sim", "--seed", "1", "--seeds", str(seeds), "--processes", "1", "--first", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sources)}
    with subprocess.Popen(
        words, cwd=scratch.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        tries, seed, lines = 0, 0, []
        until = time.monotonic() + LIMIT_S
        for line in process.stdout:
            lines.append(line)
            if found := re.match(r"seed (\d+): digest .* (\d+) violations", line):
                tries = int(found[1])
                seed = tries if int(found[2]) else 0
            elif seed and (broken := re.match(r"  [\d.]+ (\w+): (.*)", line)):
                process.kill()
                return Verdict(bug, seed, tries, f"{broken[1]}: {broken[2][:90]}")
            if time.monotonic() > until:
                process.kill()
                return Verdict(bug, 0, tries, "no end in time")
    ended = "" if process.returncode == 0 else f"the simulation ended with {process.returncode}: {''.join(lines)[-200:]!r}"
    return Verdict(bug, tries + 1 if ended else 0, tries + bool(ended), ended)


def main(seeds: int, words: Sequence[str], options: Sequence[str]) -> int:
    """Plant all bugs whose name contains one of `words` (none: all), and print the table. Exit status 1: one was not caught, or two only late."""
    bugs = [bug for bug in read() if not words or any(word in bug.title for word in words)]
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="hbox-planted-") as folder:
        scratch = Scratch.copy(ROOT, Path(folder))
        for bug in bugs:
            verdict = plant(bug, scratch, seeds=seeds, options=options)
            verdicts.append(verdict)
            at = f"seed {verdict.seed:>3}" if verdict.seed else f"NOT in {verdict.tries:>3}"
            print(f"{at}  {bug.title}: {verdict.rule}", flush=True)
    caught = [verdict for verdict in verdicts if verdict.seed]
    early = sum(verdict.seed <= FEW_SEEDS for verdict in caught)
    print(f"{len(verdicts)} planted, {len(caught)} caught within {seeds} seeds, {early} within {FEW_SEEDS}")
    return 0 if len(caught) == len(verdicts) and early >= len(verdicts) - 2 else 1
