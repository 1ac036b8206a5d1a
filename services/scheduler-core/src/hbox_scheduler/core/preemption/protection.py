"""Pending reason of a job whose possible victims are protected by minimum run time or cool-down (ADR 40), or by exhausted disruption budgets (ADR 28): the
number of victims, their queues, the rule and its end."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hbox_common.model import QueueName
from hbox_common.model.minruntime import run_time_of

from ..cluster.entities import Gang, Member, QueueInfo

if TYPE_CHECKING:
    from ..framework.session import Session

#: Maximum queues that a reason names.
_NAMED = 4

#: Maximum kinds of gangs that one action examines.
_LOOKS = 16


class Protection:
    """Collects the protected victims of the unserved gangs of one action."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._known: dict[object, str] = {}  #: reason by kind of gang

    def note(
        self, gang: Gang, others: Callable[[], Sequence[Member]], legal: Callable[[Sequence[Member]], list[Member]]
    ) -> None:
        """others: members under minimum run time that the gang could evict by queue and priority; legal: returns the subset that the policy allows. Only the
        first `_LOOKS` kinds of gangs of an action are examined, since the cost is proportional to the number of `others`."""

        def looked() -> str:
            given = legal(found) if (found := others()) else []
            return _run_times_text(self._session, given) if given else ""

        self._note(gang, "time", looked)

    def note_budgets(
        self, gang: Gang, others: Callable[[], Sequence[Member]], legal: Callable[[Sequence[Member]], list[Member]]
    ) -> None:
        """As `note`, for members that only disruption budgets protect. others: members that the gang could evict by queue."""

        def looked() -> str:
            kept = self._session.outcome.under_budgets
            kept.clear()
            legal(others())
            return _budgets(kept) if kept else ""

        self._note(gang, "budgets", looked)

    def _note(self, gang: Gang, rule: str, looked: Callable[[], str]) -> None:
        session = self._session
        if session.ready(gang) or session.pipelined(gang):
            return
        key = rule, gang.queue, gang.priority, gang.priority_class, id(gang.members[0].task)
        text = self._known.get(key)
        if text is None:
            if len(self._known) == _LOOKS:
                return
            text = self._known[key] = looked()
        if text:
            session.outcome.protected[gang.id] = "; ".join(filter(None, (session.outcome.protected.get(gang.id), text)))


def path_of(session: "Session", name: QueueName | None) -> Iterator[QueueInfo]:
    """A queue and its ancestors."""
    seen: set[QueueName] = set()
    while name is not None and name not in seen and (queue := session.queues.get(name)) is not None:
        seen.add(name)
        yield queue
        name = queue.parent


def _run_times_text(session: "Session", members: Sequence[Member]) -> str:
    ends: dict[tuple[QueueName, bool], list[float]] = {}
    run_times = {
        name: run_time_of(queue.annotations for queue in path_of(session, name))
        for name in {member.gang.queue for member in members}
    }
    for member in members:
        since = member.started_at if member.placed_at is None else member.placed_at
        cools = since is None or member.protected_until > run_times[member.gang.queue].protected_until(since, evicted=False)
        ends.setdefault((member.gang.queue, cools), []).append(member.protected_until)
    parts: list[str] = []
    for (name, cools), until in sorted(ends.items(), key=lambda item: (min(item[1]), item[0])):
        rule = "cool-down (their jobs were evicted recently)" if cools else "minimum run time"
        first, last = _clock(min(until)), _clock(max(until))
        parts.append(f"{len(until)} of queue {name} in {rule} until {first}" + (f" to {last}" if last != first else ""))
    more = f", and of {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return f"pods that are not evictable yet: {', '.join(parts[:_NAMED])}{more}"


def _budgets(kept: Mapping[Member, tuple[str, ...]]) -> str:
    counts = Counter(member.gang.queue for member in kept)
    names = sorted({name for some in kept.values() for name in some})
    queues = ", ".join(f"{count} of queue {queue}" for queue, count in sorted(counts.items())[:_NAMED])
    queues += f", and of {len(counts) - _NAMED} more" if len(counts) > _NAMED else ""
    by = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return f"pods whose PodDisruptionBudgets let no more go: {queues}" + (f" ({by})" if by else "")


def _clock(at: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at:.0f} s since the epoch"
