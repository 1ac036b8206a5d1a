"""Whose fault an application's XID (13, 31, 43, ...) is: the job's. The card is suspected only when jobs of two different queues fault on it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

WINDOW_S = 24 * 3600.0
#: A job that faults on so many cards is at fault itself: its faults are no evidence against any of them.
MANY_CARDS = 3


@dataclass(frozen=True, slots=True)
class UserFault:
    at: float
    job: str
    queue: str
    code: str


@dataclass(slots=True)
class Blame:
    cards: dict[str, list[UserFault]] = field(default_factory=dict)  #: node/entity -> faults of the window
    jobs: dict[str, dict[str, float]] = field(default_factory=dict)  #: job -> cards on which it faulted, with the last time
    notified: dict[str, float] = field(default_factory=dict)  #: job|code -> when its owner was informed

    def fault(self, card: str, fault: UserFault) -> None:
        faults = self.cards.setdefault(card, [])
        if not any(f.job == fault.job and f.code == fault.code for f in faults):
            faults.append(fault)
        self.jobs.setdefault(fault.job, {})[card] = fault.at

    def notifies(self, job: str, code: str, now: float) -> bool:
        """Whether the owner has to be informed: once per job and code in the window."""
        key = f"{job}|{code}"
        last = self.notified.get(key)
        if last is not None and now - last < WINDOW_S:
            return False
        self.notified[key] = now
        return True

    def queues(self, card: str, now: float) -> set[str]:
        """Queues whose jobs faulted on the card in the window, without jobs that fault on many cards."""
        return {f.queue for f in self.cards.get(card, ()) if now - f.at < WINDOW_S and not self.many(f.job, now)}

    def many(self, job: str, now: float) -> bool:
        return sum(now - at < WINDOW_S for at in self.jobs.get(job, {}).values()) >= MANY_CARDS

    def forget(self, cards: Iterable[str]) -> None:
        for card in cards:
            self.cards.pop(card, None)

    def expire(self, now: float) -> None:
        self.cards = {
            card: kept for card, faults in self.cards.items() if (kept := [f for f in faults if now - f.at < WINDOW_S])
        }
        self.jobs = {job: cards for job, cards in self.jobs.items() if any(now - at < WINDOW_S for at in cards.values())}
        self.notified = {key: at for key, at in self.notified.items() if now - at < WINDOW_S}
