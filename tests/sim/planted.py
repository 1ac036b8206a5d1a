"""`python -m tests.sim --planted`: plants one bug at a time in a copy of the tree, and runs seeds until one catches it: a promise is broken, or a service ends.

A seed that also breaks a promise without the bug does not count. The table states in how many runs the bug changed the digest: 0 means that the simulation does
not execute the faulty line.

`planted.toml` names bugs of `tests/mutants/tables`, or has its own with the same keys but `tests`.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..mutants.scratch import Scratch
from ..mutants.table import Mutant, read_tables

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("planted.toml")
MOST_SEEDS = 200
#: Within so many seeds all bugs but two are to be caught.
FEW_SEEDS = 20
#: Broken promises of a seed that `--whole` prints at most.
LISTED = 10
_SEED = re.compile(r"seed (\d+): digest (\w*), .* (\d+) violations")
_BROKEN = re.compile(r"  [\d.]+ (\w+): (.*)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`seed`: 0: not caught. `tries`: seeds that ran; `changed`: of these, with another digest than without the bug."""

    bug: Mutant
    seed: int
    tries: int
    rule: str
    changed: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one seed."""

    seed: int
    digest: str
    broken: tuple[str, ...]  #: rules and messages


def read(path: Path = TABLE) -> tuple[Mutant, ...]:
    """The planted bugs. Raises KeyError where `from` names none of tests/mutants."""
    known = {mutant.title: mutant for mutant in read_tables()}
    bugs = []
    for name, entry in tomllib.loads(path.read_text()).items():
        bugs.append(known[entry["from"]] if "from" in entry else Mutant(service="sim", name=name, tests=(), **entry))
    return tuple(bugs)


class Clean:
    """Runs of the tree without a bug, each made once."""

    def __init__(self, scratch: Scratch, options: Sequence[str]) -> None:
        self._scratch, self._options = scratch, options
        self._runs: dict[int, Run] = {}

    def __getitem__(self, seed: int) -> Run:
        if seed not in self._runs:
            self._runs[seed] = next(_runs(self._scratch, seed, 1, self._options))
        return self._runs[seed]

    def make(self, seeds: int) -> None:
        """Run seeds 1 to `seeds` at once."""
        for run in _runs(self._scratch, 1, seeds, self._options):
            self._runs[run.seed] = run

    @property
    def broken(self) -> list[int]:
        """Seeds that break a promise without a bug."""
        return sorted(seed for seed, run in self._runs.items() if run.broken)


def plant(bug: Mutant, scratch: Scratch, clean: Clean, *, seeds: int, options: Sequence[str] = ()) -> Verdict:
    """Run seeds 1, 2, ... in the copy with the bug in place, until one catches it."""
    source = scratch.read(bug.file)
    patched = None if source is None else bug.patched(source)
    if source is None or patched is None:
        return Verdict(bug, 0, 0, "STALE: its text does not stand in the file exactly once")
    runs = []
    scratch.write(bug.file, patched)
    try:
        for run in _runs(scratch, 1, seeds, options):
            runs.append(run)
            if run.broken and not clean[run.seed].broken:
                break
    finally:
        scratch.write(bug.file, source)
    return _verdict(bug, runs, clean)


def _verdict(bug: Mutant, runs: Sequence[Run], clean: Clean) -> Verdict:
    changed = sum(run.digest != clean[run.seed].digest for run in runs)
    caught = next((run for run in runs if run.broken and not clean[run.seed].broken), None)
    if caught is None:
        return Verdict(bug, 0, len(runs), f"changed {changed} runs", changed)
    return Verdict(bug, caught.seed, len(runs), caught.broken[0][:100], changed)


def _runs(scratch: Scratch, first: int, seeds: int, options: Sequence[str]) -> Iterator[Run]:
    """Run seeds in the copy as it is; closed, it ends the rest. An end that is no run's is a broken promise of the next seed."""
    sources = [str(path) for folder in ("apps", "libs", "services") for path in sorted((scratch.root / folder).glob("*/src"))]
    words = [sys.executable, "-m", "tests.sim", "--seed", str(first), "--seeds", str(seeds), "--whole", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sources)}
    with subprocess.Popen(
        words,
        cwd=scratch.root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        seed, digest, left = first - 1, "", 0
        broken: list[str] = []
        lines: list[str] = []
        try:
            for line in process.stdout:
                lines.append(line)
                if found := _SEED.match(line):
                    seed, digest, left, broken = int(found[1]), found[2], min(int(found[3]), LISTED), []
                elif left and (one := _BROKEN.match(line)):
                    broken.append(f"{one[1]}: {one[2]}")
                    left -= 1
                else:
                    continue
                if not left:
                    yield Run(seed, digest, tuple(broken))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if seed < first + seeds - 1:
        yield Run(seed + 1, "", (f"the simulation ended with {process.returncode}: {''.join(lines)[-300:]!r}",))


def main(seeds: int, words: Sequence[str], options: Sequence[str]) -> int:
    """Plant all bugs whose name contains one of `words` (none: all), and print the table. Exit status 1: one was not caught, or more than two only late."""
    bugs = [bug for bug in read() if not words or any(word in bug.title for word in words)]
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="hbox-planted-") as folder:
        scratch = Scratch.copy(ROOT, Path(folder, "planted"))
        clean = Clean(Scratch.copy(ROOT, Path(folder, "clean")), options)
        clean.make(min(seeds, FEW_SEEDS))
        print(
            f"without a bug: {len(clean.broken)} of {min(seeds, FEW_SEEDS)} seeds break a promise {clean.broken or ''}",
            flush=True,
        )
        for bug in bugs:
            verdict = plant(bug, scratch, clean, seeds=seeds, options=options)
            verdicts.append(verdict)
            at = f"seed {verdict.seed:>3}" if verdict.seed else f"NOT in {verdict.tries:>3}"
            print(f"{at}  {bug.title}: {verdict.rule}", flush=True)
    caught = [verdict for verdict in verdicts if verdict.seed]
    early = sum(verdict.seed <= FEW_SEEDS for verdict in caught)
    print(f"{len(verdicts)} planted, {len(caught)} caught within {seeds} seeds, {early} within {FEW_SEEDS}")
    return 0 if len(caught) == len(verdicts) and early >= len(verdicts) - 2 else 1
