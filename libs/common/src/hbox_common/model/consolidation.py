"""Cost model of moving pods so that a gang finds contiguous room: the one definition used by engine, ledger and previews (requirements B9, ADR 41).

    gained = cards of the gang x seconds by which it starts earlier
    lost   = sum over the restarted pods: cards x (seconds since their last checkpoint, or since their start, + seconds to start again)

Pods are moved if more is gained than lost, both in card-seconds, and if the hourly limit allows it (`RecentMoves`). A pod without cards counts as one card, so
that CPU work follows the same rule. A gang whose minimum a move breaks restarts as a whole, so that all of its pods count as lost, including those that stay.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite

HOUR_S = 3600.0

#: Upper limit of a gang's gain for every policy: the cluster's later state cannot be predicted.
LONGEST_GAIN_S = 86_400.0

#: Any number of moves an hour.
ANY = -1


class Mode(StrEnum):
    """What is done with moves that pay."""

    OFF = "off"  #: they are not looked for
    PREVIEW = "preview"  #: moves are reported only
    ON = "on"  #: they are made


@dataclass(frozen=True, slots=True)
class MoveTerms:
    """What the moves of one plan cost and gain. Times in seconds."""

    cards_gained: float  #: that the gang gets, parts of cards among them; 1 for each pod of a gang without cards
    gain_s: float  #: seconds by which it starts earlier
    pods_moved: int
    cards_moved: int
    pods_restarted: int  #: moved pods, and pods of their gangs that restart with them
    card_seconds_lost: float
    most_an_hour: int = ANY  #: pods that may move within an hour, these among them

    @property
    def card_seconds_gained(self) -> float:
        return self.cards_gained * self.gain_s

    @property
    def pays(self) -> bool:
        """Whether more is gained than lost. What is no number, or below 0, never pays."""
        gained, lost = self.card_seconds_gained, self.card_seconds_lost
        return isfinite(gained) and self.cards_gained > 0 and gained > lost >= 0

    @property
    def text(self) -> str:
        """The terms, for people: `gains 16 cards for 1.0 h (16.0 card-hours), 4 pods with 4 cards move and lose 0.3 card-hours`."""
        others = self.pods_restarted - self.pods_moved
        also = f" (and {others} more of their gangs that start anew)" if others > 0 else ""
        return (
            f"gains {self.cards_gained:g} {_plural('card', self.cards_gained)} for {hours(self.gain_s)} h ({hours(self.card_seconds_gained)} card-hours), "
            f"{self.pods_moved} {_plural('pod', self.pods_moved)} with {self.cards_moved} {_plural('card', self.cards_moved)}{also} "
            f"{'moves and loses' if self.pods_moved == 1 else 'move and lose'} {hours(self.card_seconds_lost)} card-hours"
        )


def hours(seconds: float) -> str:
    """To two digits: `0.31`, `12`."""
    return f"{seconds / HOUR_S:.2g}" if seconds < 100 * HOUR_S else f"{seconds / HOUR_S:.0f}"


def _plural(noun: str, count: float) -> str:
    return noun if count == 1 else f"{noun}s"


def card_seconds_lost(restarted: Iterable[tuple[int, float]], restart_s: float) -> float:
    """Of pods that start anew: the cards of each, and the seconds of work that it loses. What is below 0 loses nothing."""
    return sum(max(cards, 1) * (max(lost_s, 0.0) + restart_s) for cards, lost_s in restarted)


def gain_seconds(horizon_s: float, *, runs_s: float, starts_in_s: float) -> float:
    """Seconds by which a gang that starts now has its cards earlier: at most its run time (`runs_s`), the time until its expected start (`starts_in_s`) and
    `horizon_s`; inf = unknown."""
    return max(0.0, min(horizon_s, LONGEST_GAIN_S, runs_s, starts_in_s))


@dataclass(slots=True)
class RecentMoves:
    """Pods moved within the last hour, by plan. Times in seconds since the epoch."""

    _moved: deque[tuple[float, Hashable, int]] = field(default_factory=deque)

    def note(self, plan: Hashable, pods: int, now: float) -> None:
        if pods > 0:
            self._moved.append((now, plan, pods))

    def withdraw(self, plan: Hashable) -> None:
        """The plan was rejected: remove its moves."""
        self._moved = deque(one for one in self._moved if one[1] != plan)

    def within_hour(self, now: float) -> int:
        """How many pods. With a clock that was set, what is in its future is forgotten."""
        if self._moved and not 0 <= now - self._moved[0][0] < HOUR_S:
            self._moved = deque(one for one in self._moved if 0 <= now - one[0] < HOUR_S)
        return sum(pods for _, _, pods in self._moved)

    def next_at(self, now: float) -> float | None:
        """When fewer will be counted than now."""
        return self._moved[0][0] + HOUR_S if self.within_hour(now) else None


def too_many(most_an_hour: int, recent: int, pods: int) -> str:
    """Why `pods` more pods may not move after `recent` moves within the last hour; "" = they may."""
    if most_an_hour == ANY or recent + pods <= most_an_hour:
        return ""
    return f"{recent} pods were moved within the last hour, and {pods} more would be above {most_an_hour}"
