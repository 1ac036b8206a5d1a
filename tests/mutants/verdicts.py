"""Verdicts of tests on a planted fault."""

import re
from dataclasses import dataclass
from enum import Enum

from .scratch import TESTS_FAILED, Scratch
from .table import Mutant

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
LIMIT_S = 120.0


class Outcome(Enum):
    CAUGHT = "caught"
    KNOWN = "not caught, with a reason"
    NOT_CAUGHT = "NOT CAUGHT"
    STALE = "STALE"  # its text does not stand in the file, or more than once
    NO_TESTS = "NO TESTS"  # the named tests do not exist, or cannot even be read with the fault in place
    CAUGHT_NOW = "CAUGHT NOW"  # has a reason for not being caught, and is


FINE = frozenset({Outcome.CAUGHT, Outcome.KNOWN})


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    outcome: Outcome
    because: str = ""


def judge(mutant: Mutant, scratch: Scratch) -> Verdict:
    """Plants the fault in `scratch`, runs its tests and takes it out again."""
    source = scratch.read(mutant.file)
    if source is None:
        return Verdict(mutant, Outcome.STALE, f"no file {mutant.file}")
    patched = mutant.patched(source)
    if patched is None:
        return Verdict(mutant, Outcome.STALE, f"its text stands {source.count(mutant.old)} times in {mutant.file}")
    scratch.write(mutant.file, patched)
    try:
        run = scratch.run(mutant.tests, limit_s=LIMIT_S, first_failure=True)
    finally:
        scratch.write(mutant.file, source)
    if run.status is None:
        caught, because = True, f"no end after {LIMIT_S:g} s"
    elif run.status == TESTS_FAILED:
        caught, because = True, next(iter(_FAILED.findall(run.output)), "")
    elif run.status == 0:
        caught, because = False, mutant.uncaught or mutant.breaks
    else:
        return Verdict(mutant, Outcome.NO_TESTS, f"pytest says {run.status}: {run.output.strip().splitlines()[-1:]}")
    if mutant.uncaught:
        return Verdict(mutant, Outcome.CAUGHT_NOW if caught else Outcome.KNOWN, because)
    return Verdict(mutant, Outcome.CAUGHT if caught else Outcome.NOT_CAUGHT, because)


def failures(output: str) -> list[str]:
    """The tests that pytest's summary names as failed."""
    return _FAILED.findall(output)
