"""What idle cards of a day stand for, in parts of all card-hours (`HBOX_DAY_IDLE=1 python -m tests.bench day`).

Each idle card at each moment has one reason. Those who wait are laid out on the idle cards, smallest first, without booking anything:

nominated    kept for somebody for whom others have been told to leave, and have not gone yet
reserved     somebody who waits would fit, and has a reservation of others in the way
open         somebody who waits would fit, and nothing that is seen from outside is in the way: rules, order, back-off
scattered    somebody asks for no more cards than are idle, and they lie on too many nodes for it
too large    all who wait ask for more cards than are idle together
no demand    nobody waits for it
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
