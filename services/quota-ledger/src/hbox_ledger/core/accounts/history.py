"""Recent usage of queues: card-seconds that lose half of their weight every half-life, from the usage accounts.

An hour's usage weighs 0.5^(age / half-life), its age counted in whole hours from the present one; hours older than the window weigh nothing. The history is
updated together with the accounts, hour by hour, and always equals a new sum over the accounts. Its result is the weighted average over the observed time: the
number of cards that a queue recently used. That figure needs no clock to interpret, and changes slowly.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hbox_common.model import QueueName

from .usage import CARD, HOUR_S, Accrued

#: Thousandths of a card-second that are not worth keeping.
_NOTHING = 1e-3


@dataclass(frozen=True, slots=True)
class Decay:
    """Hours; a half-life of 0 keeps no history."""

    half_life_h: float = 168.0
    window_h: int = 1344

    @property
    def factor(self) -> float:
        """Of an hour."""
        return float(0.5 ** (1.0 / self.half_life_h)) if self.half_life_h > 0 else 0.0

    def begins(self, hour: int) -> int:
        """The oldest hour of the window that ends with this one."""
        return hour - HOUR_S * self.window_h


#: A week, and eight of them: what is left out then weighs four thousandths.
DECAY = Decay()


@dataclass(slots=True)
class History:
    """`own` by queue, in thousandths of card-seconds as they weigh in `hour`; `first`: the oldest hour that is observed, None = none yet. Hours by their
    first second."""

    decay: Decay
    hour: int = 0
    first: int | None = None
    until: int = 0  #: the second up to which usage was accrued
    own: dict[QueueName, float] = field(default_factory=dict)

    def enter(self, accrued: Accrued) -> None:
        """Usage that was accrued."""
        if self.decay.half_life_h <= 0 or accrued.until <= self.until:
            return
        self._pass(hour_of(accrued.until))
        if self.first is None:
            self.first = min((account.hour for account in accrued.amounts), default=None)
        for account, amounts in accrued.amounts.items():
            if used := amounts.own + amounts.borrowed:
                self.own[account.queue] = self.own.get(account.queue, 0.0) + used * self.weight(account.hour)
        self.until = accrued.until

    def outdated(self) -> tuple[int, int] | None:
        """Hours [first, last) that have left the window: `forget` them."""
        begins = self.decay.begins(self.hour)
        return (self.first, begins) if self.first is not None and self.first < begins else None

    def forget(self, before: int, amounts: Iterable[tuple[QueueName, int, int]]) -> None:
        """Hours before this one count no more; `amounts`: (queue, hour, used) of those."""
        for queue, hour, used in amounts:
            left = self.own.get(queue, 0.0) - used * self.weight(hour)
            self.own[queue] = max(0.0, left)
        self.first = before

    def cards(self, queues: Iterable[QueueName]) -> float:
        """Number of cards that these queues together recently used on average."""
        observed = self._observed()
        return sum(self.own.get(name, 0.0) for name in queues) / (CARD * observed) if observed > 0 else 0.0

    def weight(self, hour: int) -> float:
        return float(self.decay.factor ** ((self.hour - hour) // HOUR_S))

    def _pass(self, hour: int) -> None:
        passed = (hour - self.hour) // HOUR_S
        if passed > 0:
            factor = self.decay.factor**passed
            self.own = {name: used * factor for name, used in self.own.items() if used * factor > _NOTHING}
            self.hour = hour

    def _observed(self) -> float:
        """The seconds that were observed, as they weigh."""
        if self.first is None:
            return 0.0
        factor, hours = self.decay.factor, (self.hour - self.first) // HOUR_S
        return self.until - self.hour + HOUR_S * factor * (1 - factor**hours) / (1 - factor)


def hour_of(second: int) -> int:
    return second - second % HOUR_S
