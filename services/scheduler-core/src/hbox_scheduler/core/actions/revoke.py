"""revoke: offline work leaves for those who wait and are none (`hbox_common.model.offline`), whatever shares, priorities, levels and minimum run times say.

No action of a policy's file: it is there under every policy, before those that take from anybody else, and does nothing where no offline work runs. Who finds
too little of it goes on to the policy's actions, in which offline work goes first too. Limits of queues and namespaces hold: what may not be had is not taken.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..framework.pool import Pool
from ..framework.preemptors import PreemptionRequests, preemptors, waiting
from ..framework.turns import ServiceOrder
from .gangpreemption import GangPreemption, Takes

if TYPE_CHECKING:
    from ..cluster.entities import Member
    from ..framework.session import Session

REASON = "Revoked"

#: Actions before which it runs: those that make room at somebody's cost.
MAKE_ROOM = ("reclaim", "preempt", "gangreclaim", "gangpreempt", "consolidate")


def place_in(actions: tuple[str, ...]) -> int:
    """Before which of a policy's actions it runs; after all where none makes room."""
    return next((number for number, name in enumerate(actions) if name in MAKE_ROOM), len(actions))


def run(session: "Session") -> None:
    """Queues take turns, each serves its first gang, of those that starve."""
    if not session.offline_runs:
        return
    pool = Pool(session, offline=True)
    requests = PreemptionRequests(session, pool, reason=REASON)
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
            eligible = np.ones(pool.size, dtype=np.bool_)
            requests.serve(gang, members, eligible=eligible, legal=session.revocable, may=may)
