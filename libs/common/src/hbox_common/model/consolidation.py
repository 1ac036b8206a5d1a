"""When it pays to move pods so that a gang finds room in one piece: the one definition that engine, ledger and previews call (requirements B9, ADR 41).

    gained = cards of the gang x seconds for which it has them before it would have had them anyway
    lost   = sum over the pods that start anew: cards x (seconds since their last checkpoint, or since their start, + seconds to start again)

Pods move where more is gained than lost, both in card-seconds, and no more than so many in any hour (`RecentMoves`). A pod without cards counts as one card: so
CPU work is judged by the same rule. A gang that a move breaks starts anew whole, so that all of its pods count as lost, those that stay too.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite

HOUR_S = 3600.0

#: A gang's gain is counted for no longer than this, whatever a policy says: nobody knows what the cluster looks like later.
LONGEST_GAIN_S = 86_400.0

#: Any number of moves an hour.
ANY = -1


class Mode(StrEnum):
    """What is done with moves that pay."""

    OFF = "off"  #: they are not looked for
    PREVIEW = "preview"  #: they are told of
    ON = "on"  #: they are made


@dataclass(frozen=True, slots=True)
class MoveTerms:
    """What the moves of one plan cost and gain. Times in seconds."""

    cards_gained: float  #: that the gang gets, parts of cards among them; 1 for each pod of a gang without cards
    gain_s: float  #: for how long it has them before it would have had them anyway
    pods_moved: int
    cards_moved: int
    pods_restarted: int  #: those that move, and those of their gangs that start anew with them
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
    def words(self) -> str:
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
    """For how long a gang that starts now has its cards before it would have had them anyway: no longer than it runs (`runs_s`), than until its expected start
    (`starts_in_s`), and than `horizon_s`; inf where nobody knows."""
    return max(0.0, min(horizon_s, LONGEST_GAIN_S, runs_s, starts_in_s))


@dataclass(slots=True)
class RecentMoves:
    """Pods that moved within the last hour, by the plans that had them move. Times in seconds since the epoch."""

    _moved: deque[tuple[float, Hashable, int]] = field(default_factory=deque)

    def note(self, plan: Hashable, pods: int, now: float) -> None:
        if pods > 0:
            self._moved.append((now, plan, pods))

    def withdraw(self, plan: Hashable) -> None:
        """The plan was refused: nobody moved."""
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
    """Why so many more pods may not move, where `recent` did within the last hour; "" = they may."""
    if most_an_hour == ANY or recent + pods <= most_an_hour:
        return ""
    return f"{recent} pods were moved within the last hour, and {pods} more would be above {most_an_hour}"
