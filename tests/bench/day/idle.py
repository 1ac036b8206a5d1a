"""Idle cards of a day by reason, as fractions of all card-hours (`HBOX_DAY_IDLE=1 python -m tests.bench day`).

Each idle card has one reason at each moment. To find it, pending jobs are placed on the idle cards, smallest first, without booking:

nominated    reserved for a job whose victims have not left yet
reserved     a pending job would fit, but a reservation of another job prevents it
open         a pending job would fit, and no reason is visible from outside: rules, order, back-off
scattered    a pending job requests no more cards than are idle, but they are on too many nodes
too large    all pending jobs request more cards than are idle
no demand    no job is pending
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

REASONS = ("nominated", "reserved", "open", "scattered", "too large", "no demand")


@dataclass(slots=True)
class Idle:
    """`seconds`: cards times seconds, by reason."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(REASONS, 0.0))

    def add(self, reasons: dict[str, int], lasts_s: float) -> None:
        for reason, cards in reasons.items():
            self.seconds[reason] += cards * lasts_s

    def words(self, total_s: float) -> str:
        """Parts of all that there are, `total_s` cards times seconds."""
        return ", ".join(f"{reason} {seconds / total_s:.1%}" for reason, seconds in self.seconds.items())


def reasons(
    idle: NDArray[np.int64], reserved: NDArray[np.bool_], nominated: int, waiting: Iterable[Sequence[int]]
) -> dict[str, int]:
    """Idle cards by reason. idle: `[N]` cards; reserved: `[N]`; nominated: cards of those for whom others leave; waiting: of all others who wait how many pods,
    and cards of each."""
    free, found = idle.copy(), dict.fromkeys(REASONS, 0)
    counted = found["nominated"] = min(
        nominated, int(free.sum())
    )  # of `free` what is explained, though on no node in particular
    for pods, cards in sorted(waiting, key=lambda one: (one[0] * one[1], one)):
        left = int(free.sum()) - counted
        if left <= 0:
            break
        if pods * cards > left:
            found["too large"] += left
            counted += left
        elif (rows := _laid_out(np.where(reserved, 0, free), pods, cards)) is not None:
            found["open"] += pods * cards
            np.subtract.at(free, rows, cards)
        elif (rows := _laid_out(free, pods, cards)) is not None:
            found["reserved"] += pods * cards
            np.subtract.at(free, rows, cards)
        else:
            found["scattered"] += pods * cards
            counted += pods * cards
    found["no demand"] = max(int(free.sum()) - counted, 0)
    return found


def _laid_out(free: NDArray[np.int64], pods: int, cards: int) -> NDArray[np.int64] | None:
    """The row of each pod, on the fullest nodes that do; None where they do not fit."""
    order = np.argsort(free, kind="stable")
    rows = np.repeat(order, free[order] // cards)
    return rows[:pods] if len(rows) >= pods else None
