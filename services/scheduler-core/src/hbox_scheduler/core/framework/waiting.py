"""Why a pod waits, in the running service and in simulations alike.

Each refusal has one author, in the order in which a session refuses: the gang and its queue as they are written, enqueue and the fabric (verdicts of
actions); what the policy gives the queue now; how many pods of a gang fit; node by node.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ..cluster import Columns
from ..cluster.entities import Gang, Member, Status
from ..cluster.task import Task
from ..explain.cards import CardReasons
from ..explain.labels import Label
from ..explain.reasons import CARD_LABELS, Reasons, fit_together
from .basefits import most_when_empty
from .placing import FilterKey, Placing, filter_key_of

if TYPE_CHECKING:
    from .session import Session

#: The action that places pods that ask for nothing.
BACKFILL = "backfill"

_NO_BACKFILL = (
    f"{Label.NO_BACKFILL}: the pod asks for nothing, and such pods are placed by the action {BACKFILL}, which the policy does not have; "
    "add it there, or have the pod ask for something"
)


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why a member waits; `reasons` where the message is about nodes."""

    message: str
    reasons: Reasons | None = None
    lacks_room: bool = False  #: nothing but a change of nodes can help it


#: Shapes of which reasons are kept.
_KNOWN = 4096


class KnownReasons:
    """Reasons by shape, kept from session to session as long as no node changes."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._known: WeakKeyDictionary[Task, Reasons] = WeakKeyDictionary()
        self._at = -1

    def of(self, task: Task, find: Callable[[], Reasons]) -> Reasons:
        """Why one more pod like this one finds no place that is free now."""
        if self._at != self._columns.changes.end or len(self._known) >= _KNOWN:
            self._at = self._columns.changes.end
            self._known.clear()
        found = self._known.get(task)
        if found is None:
            found = self._known[task] = find()
        return found


class WaitReasons:
    """Evaluated after the actions of a session. What equal members have in common is computed once."""

    def __init__(self, session: "Session", by_shape: KnownReasons | None = None) -> None:
        """`by_shape`: what sessions before have found."""
        self._session = session
        self._placing = Placing(session)
        self._known: dict[FilterKey, Reasons] = {}
        self._cards: dict[FilterKey, CardReasons] = {}
        self._by_shape = by_shape or KnownReasons(session.columns)

    def of(self, member: Member) -> WaitReason:
        """Pending reason of the member, with its gang's reservation, its protected victims and the reason why no moves are made for it."""
        waiting, gang = self._of(member), member.gang.id
        messages = [one.message for one in self._session.reservations if one.gang == gang]
        if kept := self._session.outcome.protected.get(gang) or self._session.cluster.facts.protection_reasons.get(gang):
            messages.append(kept)
        if (moves := self._session.outcome.moves.get(gang)) is not None and moves.refused:
            messages.append(moves.message)
        elif reason := self._session.cluster.facts.move_reasons.get(gang):
            messages.append(reason)
        return replace(waiting, message="; ".join((waiting.message, *messages))) if messages else waiting

    def _of(self, member: Member) -> WaitReason:
        session, gang = self._session, member.gang
        if member.status is Status.PIPELINED:
            return WaitReason(f"nominated to {session.node(member.row)}, where it starts once pods that leave are gone")
        if member.status is Status.ALLOCATED:
            return WaitReason(
                f"{session.node(member.row)} is kept for it until all of its gang that have to start together have places"
            )
        if why := session.outcome.verdicts.get(gang.id, ""):
            return WaitReason(session.namespace_quotas.exceeded(gang) or why)
        if gang.queue not in session.queues:
            return WaitReason(f"{Label.QUEUE_NOT_FOUND}: queue {gang.queue} does not exist")
        if member.best_effort and BACKFILL not in session.conf.actions:
            return WaitReason(_NO_BACKFILL)
        short = gang.min_member - gang.ready
        needed = [member, *(one for one in gang.of(Status.PENDING) if one is not member and not one.best_effort)][
            : max(short, 1)
        ]
        if why := session.withheld_reason(needed):
            return WaitReason(why)
        reasons = self.nodes(member)
        if reasons.fitting and (why := self._together(gang, member, needed)):
            if apart := session.outcome.apart.get(gang.id):
                return WaitReason(f"{why}; their places exclude the others by {', '.join(apart)}", lacks_room=True)
            if not reasons.counts:
                return WaitReason(why, lacks_room=True)
            return WaitReason(f"{why}; {reasons.headline()}", reasons, lacks_room=True)
        if reasons.fitting and not self._admits(member):
            return WaitReason(f"{Label.QUEUE_SHARE}: queue {gang.queue} holds all that the policy gives it now")
        if reasons.fitting and len(needed) > 1 and gang.id not in session.outcome.fitting:
            return WaitReason(
                f"nodes have room for some of the {len(needed)} pods that have to start together, not for all of them"
            )
        complete = reasons.complete()
        return WaitReason(complete.headline(), complete, lacks_room=not reasons.fitting)

    def _admits(self, member: Member) -> bool:
        """Whether its queue may take the member, in one pool at least."""
        session = self._session
        queue, pools = session.queues[member.gang.queue], session.pools
        for pool in (choices := pools.choices(member) if pools else ()):
            with pools.tried((member,), pool):
                if session.allocatable(queue, member):
                    return True
        return not choices and session.allocatable(queue, member)

    def nodes(self, member: Member) -> Reasons:
        """Of each node the first rule that it fails for the member, were it alone."""
        session = self._session
        if session.by_shape(member) and not (session.models or session.namespace_quotas or session.pools):
            return self._by_shape.of(session.task(member), lambda: self._placing.reasons(member))
        if not session.settled(member):
            return self._placing.reasons(member)
        key = (*filter_key_of(member), id(session.task(member)), session.namespace_quotas.need(member))
        if (found := self._known.get(key)) is None:
            found = self._known[key] = self._placing.reasons(member)
        return found

    def cards(self, member: Member) -> CardReasons | None:
        """What the cards of all nodes say to a member that asks for some; None where it asks for none, or cards are not what is in its way."""
        if member.task.cards is None or not any(label in CARD_LABELS for label in self.nodes(member).counts):
            return None
        if not self._session.settled(member):
            return self._placing.card_reasons(member)
        key = (*filter_key_of(member), id(self._session.task(member)), self._session.namespace_quotas.need(member))
        if (found := self._cards.get(key)) is None:
            found = self._cards[key] = self._placing.card_reasons(member)
        return found

    def _together(self, gang: Gang, member: Member, needed: list[Member]) -> str:
        """How many of the members that the gang needs fit, where those are too few; "" where that is not what it waits for."""
        session = self._session
        fit = session.outcome.fitting.get(gang.id)
        if fit is None:  # it was placed by domains, or had no turn
            placing, columns = self._placing, session.columns
            fit = int(placing.capacity(member, columns)[placing.allowed(member, columns)].sum())
        if not 0 < fit < len(needed):
            return ""
        uniform = all(one.task is member.task for one in needed)
        most = most_when_empty(session.columns, member.task) if uniform else None
        held = gang.ready
        return fit_together(held + fit, held + len(needed), None if most is None else held + most)
