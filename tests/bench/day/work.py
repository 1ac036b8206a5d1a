"""The work of a day: jobs of Microsoft's ITP clusters and pods of Alibaba's cluster, in three departments, each job with a level.

The traces contain a job's cards, submission and run time; departments are clusters of ITP, or kinds of service at Alibaba. Levels are in no trace: a hash of
the job's name selects one, 15 of 100 high, 35 low, the rest medium. Jobs of more than 8 cards are gangs of pods of 8 cards, all or nothing.
"""

import csv
import gzip
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil
from pathlib import Path
from zlib import crc32

from hbox_common.model import Queue, QueueName
from hbox_common.model.devices.nvidia import GPU

DAY_S = 86_400.0
CARDS = 8  #: of a node
LARGE = 2 * CARDS  #: cards from which on a gang is a large one
#: Of all cards that the day's work asks for, over those that there are.
LOAD = 1.15

LEVELS = {"high": 1000, "medium": 500, "low": 100}
DEPARTMENTS = ("research", "product", "platform")

#: ITP's clusters by department; those not named are the last one's.
_ITP = {"cluster04": "research", "cluster07": "product", "cluster02": "product"}
_ALIBABA = {"LS": "product", "BE": "research"}


@dataclass(frozen=True, slots=True)
class Piece:
    """One job. Times in seconds since the day began."""

    name: str
    department: str
    level: str
    submit_s: float
    duration_s: float
    cards: int

    @property
    def pods(self) -> tuple[int, int]:
        """How many, of how many cards each."""
        return (ceil(self.cards / CARDS), CARDS) if self.cards > CARDS else (1, self.cards)

    @property
    def large(self) -> bool:
        return self.cards >= LARGE


@dataclass(frozen=True, slots=True)
class Day:
    """`nodes` of 8 cards; what each department deserves of them, in cards."""

    pieces: Sequence[Piece]
    nodes: int

    @property
    def deserved(self) -> dict[str, int]:
        """By what they ask for, in whole nodes: a department's private cluster would have as many."""
        asked = Counter[str]()
        for piece in self.pieces:
            asked[piece.department] += int(piece.cards * piece.duration_s)
        total = sum(asked.values())
        shares = {name: self.nodes * asked[name] // total * CARDS for name in DEPARTMENTS}
        return {**shares, DEPARTMENTS[0]: shares[DEPARTMENTS[0]] + self.nodes * CARDS - sum(shares.values())}

    def queues(self) -> list[Queue]:
        return [Queue(QueueName(name), deserved={GPU: cards}) for name, cards in self.deserved.items()]


#: Days of the ITP trace and of Alibaba's that are put together. One job of 64 cards decides much of a day: what is said of policies is said of all of them.
FIRST = (26, 147)
OTHERS = (
    (27, 144), (15, 120), (42, 123), (50, 140), (20, 146), (33, 130), (8, 118), (22, 127), (37, 134), (45, 137), (54, 141),
)  # fmt: skip


def day_of(folder: Path, days: tuple[int, int] = FIRST) -> Day:
    """Both traces' work in one cluster. days: which of ITP's, and of Alibaba's."""
    pieces = [*itp(folder, day=days[0]), *alibaba(folder, day=days[1])]
    asked = sum(piece.cards * min(piece.duration_s, DAY_S - piece.submit_s) for piece in pieces)
    return Day(sorted(pieces, key=lambda piece: piece.submit_s), ceil(asked / DAY_S / LOAD / CARDS))


def itp(folder: Path, *, day: int, every: int = 8) -> Iterable[Piece]:
    """One day of all clusters: all large gangs, and of the other jobs each `every`-th."""
    numbers = count()
    for row in _rows(folder / "itp2021" / "itp_jobs.csv.gz"):
        at, cards = float(row["submit_s"]) - day * DAY_S, int(row["num_gpus"])
        if 0 <= at < DAY_S and (cards >= LARGE or next(numbers) % every == 0):
            department = _ITP.get(row["cluster"], DEPARTMENTS[-1])
            yield _piece(f"itp-{row['job_id']}", department, at, float(row["duration_s"]), cards)


def alibaba(folder: Path, *, day: int) -> Iterable[Piece]:
    """One day of pods with cards; a part of a card counts as one here."""
    for row in _rows(folder / "alibaba2023" / "openb_pod_list_default.csv.gz"):
        at, cards = float(row["creation_time"]) - day * DAY_S, int(row["num_gpu"])
        if 0 <= at < DAY_S and cards:
            lasts = float(row["deletion_time"]) - float(row["creation_time"])
            yield _piece(row["name"], _ALIBABA.get(row["qos"], DEPARTMENTS[-1]), at, lasts, cards)


def _piece(name: str, department: str, at: float, lasts: float, cards: int) -> Piece:
    part = crc32(name.encode()) % 100
    level = "high" if part < 15 else "low" if part >= 65 else "medium"
    return Piece(name, department, level, at, min(max(lasts, 60.0), DAY_S), cards)


def _rows(path: Path) -> Iterable[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)
