"""Job traces as CSV: one line a job, with when it was submitted, how long it ran, and on how many cards. And one that is made up."""

import csv
import gzip
import math
import random
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from hbox_common.errors import InvalidRequest, NotFound
from hbox_scheduler.core.simulate.trace_jobs import TraceJob

NEEDED = ("submit_s", "duration_s", "num_gpus")
NAMES = ("job_id", "job", "name")
QUEUES = ("queue", "vc", "user")


@dataclass(frozen=True, slots=True)
class JobTrace:
    """`left_out`: jobs without cards or without duration, which have nothing to wait for."""

    name: str
    jobs: tuple[TraceJob, ...]
    left_out: int = 0

    @property
    def card_hours(self) -> float:
        return sum(job.cards * job.duration_s for job in self.jobs) / 3600

    def nodes_for(self, load: float, cards: int) -> int:
        """Nodes of so many cards on which the work fills this part of the time in which it was submitted, and the largest job fits."""
        submitted = [job.submit_s for job in self.jobs]
        span = max(submitted) - min(submitted) + 1.0
        mean = 3600 * self.card_hours / span
        return max(math.ceil(mean / load / cards), math.ceil(max(job.cards for job in self.jobs) / cards))


def trace_of(word: str, *, seed: int, limit: int | None) -> JobTrace:
    """A profile by its name, or a file. Raises NotFound, and InvalidRequest with file, line and column."""
    if word in PROFILES:
        found = training_week(seed)
    elif (path := Path(word)).exists():
        found = read(path)
    else:
        raise NotFound(
            f"{word} is neither a file nor a profile", hint=f"give a CSV with {', '.join(NEEDED)}, or {' or '.join(PROFILES)}"
        )
    jobs = found.jobs[:limit]
    if not jobs:
        raise InvalidRequest(f"{word}: there is no job with cards in it", hint="give a trace with jobs")
    return JobTrace(found.name, jobs, found.left_out)


def read(path: Path) -> JobTrace:
    jobs: list[TraceJob] = []
    line = left_out = 0
    try:
        with _open(path) as text:
            reader = csv.DictReader(text, strict=True)
            columns = reader.fieldnames or ()
            if missing := [name for name in NEEDED if name not in columns]:
                raise InvalidRequest(
                    f"{path} line 1: there is no column {missing[0]!r}",
                    hint=f"needed are {', '.join(NEEDED)}, in seconds and cards",
                )
            name = next((name for name in NAMES if name in columns), None)
            queue = next((column for column in QUEUES if column in columns), None)
            for row in reader:
                line = reader.line_num
                submit, duration, cards = (_number(row.get(column), column, f"{path} line {line}") for column in NEEDED)
                if cards != int(cards):
                    raise InvalidRequest(f"{path} line {line}: num_gpus = {cards:g} is not a whole number")
                if cards == 0 or duration == 0:
                    left_out += 1
                    continue
                jobs.append(
                    TraceJob(
                        str(row[name]) if name else str(line), submit, duration, int(cards), row[queue] or "" if queue else ""
                    )
                )
    except OSError as e:
        raise InvalidRequest(f"{path}: cannot be read: {e.strerror or e}", hint="name a CSV file") from e
    except (EOFError, zlib.error) as e:
        raise InvalidRequest(f"{path} after line {line}: the gzip stream is broken: {e}", hint="fetch the file anew") from e
    except (csv.Error, UnicodeDecodeError) as e:
        raise InvalidRequest(f"{path} after line {line}: not CSV in UTF-8: {e}") from e
    jobs.sort(key=lambda job: job.submit_s)
    return JobTrace(path.name.removesuffix(".gz").removesuffix(".csv"), tuple(jobs), left_out)


def _open(path: Path) -> TextIO:
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    if zipped:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _number(text: str | None, column: str, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError as e:
        raise InvalidRequest(f"{where}: {column} = {(text or '')[:80]!r} is not a number") from e
    if not 0 <= value < 1e12:
        raise InvalidRequest(f"{where}: {column} = {value:g}: from 0 to 1e12 is possible")
    return value


#: Cards -> (share of the jobs in thousandths, median duration in seconds, spread of its logarithm). Shares, medians and means of the ITP 2021
#: trace (ElasticFlow, ASPLOS'23), in round figures.
_SIZES = {
    1: (832, 7_000, 1.2),
    2: (21, 3_500, 1.6),
    4: (34, 8_000, 1.7),
    8: (101, 18_000, 1.4),
    16: (6, 30_000, 1.3),
    32: (5, 70_000, 0.9),
    64: (1, 31_000, 1.3),
}


def training_week(seed: int, *, jobs: int = 4000) -> JobTrace:
    """A week of a training cluster, made up: working hours, sweeps of equal jobs at once, and few large jobs with much of the work."""
    chance = random.Random(f"training-week {seed}")
    made: list[TraceJob] = []
    while len(made) < jobs:
        day, hour = chance.randrange(7), min(23.9, max(0.0, chance.gauss(14.0, 4.0)))
        at = 86_400.0 * day + 3600 * hour
        cards = chance.choices(list(_SIZES), weights=[share for share, _, _ in _SIZES.values()])[0]
        _, median, spread = _SIZES[cards]
        sweep = 1 if cards > 8 else min(64, int(chance.paretovariate(1.5)))
        for i in range(min(sweep, jobs - len(made))):
            duration = min(max(median * math.exp(chance.gauss(0.0, spread)), 60.0), 14 * 86_400.0)
            made.append(TraceJob(f"job-{len(made):05}", at + i, round(duration), cards))
    return JobTrace("training-week", tuple(sorted(made, key=lambda job: job.submit_s)))


PROFILES = ("training-week",)
