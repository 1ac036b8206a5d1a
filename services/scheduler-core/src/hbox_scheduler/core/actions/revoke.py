"""revoke: evict offline work for pending gangs that are not offline (`hbox_common.model.offline`), regardless of shares, priorities, levels and minimum run
times.

A policy's file does not list this action: it runs under every policy before the actions that evict other pods, and only if offline work runs. If evicting
offline work does not suffice, the gang continues with the policy's actions, which also evict offline work first. Limits of queues and namespaces apply.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..framework.turns import ServiceOrder
from ..preemption.evictablepods import EvictablePods
from ..preemption.preemptors import PreemptionRequests, preemptors, waiting
from .gangpreemption import GangPreemption, Takes

if TYPE_CHECKING:
    from ..cluster.entities import Member
    from ..framework.session import Session

REASON = "Revoked"

#: Actions that evict pods; revoke runs before the first of them.
MAKE_ROOM = ("reclaim", "preempt", "gangreclaim", "gangpreempt", "consolidate")


def place_in(actions: tuple[str, ...]) -> int:
    """Index at which revoke runs among a policy's actions; the end if none of them evicts."""
    return next((number for number, name in enumerate(actions) if name in MAKE_ROOM), len(actions))


def run(session: "Session") -> None:
    """Serve the queues in turns, each with its first starving gang."""
    if not session.offline_runs:
        return
    evictable = EvictablePods(session, offline=True)
    requests = PreemptionRequests(session, evictable, reason=REASON)
    in_domains = GangPreemption(session, action="revoke", takes=Takes.OFFLINE)
    bound = in_domains.preemptors() if session.topological else []
    turns = ServiceOrder(session, [*preemptors(session), *bound])
    apart = set(map(id, bound))

    def may(member: "Member") -> bool:
        return session.allocatable(session.queues[member.gang.queue], member)

    while (queue := turns.next_queue()) is not None:
        gang = turns.of(queue)
        assert gang is not None
        if session.overused(queue):
            turns.drop(queue)
        elif id(gang) in apart:
            in_domains.serve(gang)
        else:
            members = sorted(waiting(gang), key=session.member_key)
            eligible = np.ones(evictable.size, dtype=np.bool_)
            requests.serve(gang, members, eligible=eligible, legal=session.revocable, may=may)
