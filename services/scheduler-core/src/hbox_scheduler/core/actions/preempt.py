"""preempt: gangs evict pods of lower priority in their own queue, then members evict lower ones of their own gang (sources: volcano-preempt).

The search always chooses nodes by the cost of the victims; Volcano does so with `enableTopologyAwarePreemption` only, and otherwise by score. As in Volcano,
the argument decides whether pods may be evicted to resolve a filter failure (anti-affinity, host ports, spread), or only to free capacity. Backfill places
members without requests as long as a node accepts one more pod. If no node does, they evict only members of lower priority that also have no requests.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model.rights import may_preempt

from ..cluster.arrays import Bools
from ..cluster.entities import Gang, Member
from ..framework.conf import FAILURES_REMEMBERED
from ..framework.hooks import Preemptable
from ..framework.turns import ServiceOrder
from ..plugins.arguments import Given
from ..plugins.priority import priority_of
from ..preemption.evictablepods import OFFLINE_QUEUE, EvictablePods
from ..preemption.preemptors import PreemptionRequests, best_effort_waiting, preemptors, waiting
from ..preemption.protection import Protection
from ..preemption.victims import Search

if TYPE_CHECKING:
    from hbox_common.model import QueueName

    from ..framework.session import Session

REASON = "Preempted"


def run(session: "Session") -> None:
    """Raises InvalidRequest if an argument of the action is invalid."""
    resolve = _resolves(session)
    gangs = list(preemptors(session, best_effort=True))
    turns = ServiceOrder(session, gangs)
    evictable: dict[QueueName, EvictablePods] = {}
    requests: dict[QueueName, PreemptionRequests] = {}
    protection = Protection(session)
    while (gang := turns.next()) is not None:
        name = gang.queue
        if name not in evictable:
            evictable[name] = EvictablePods(session, queue=name)
            requests[name] = PreemptionRequests(session, evictable[name], reason=REASON, resolve=resolve)
        if _by_priority(session):
            others = may_preempt(gang.priority, evictable[name].priority)
        else:
            others = np.ones(evictable[name].size, dtype=np.bool_)
            others[evictable[name].positions(gang)] = False
        if OFFLINE_QUEUE in evictable[name].codes:
            others = others | (evictable[name].queue == evictable[name].codes[OFFLINE_QUEUE])
        members = sorted(waiting(gang), key=session.member_key)
        requests[name].serve(gang, members, eligible=others, legal=session.preemptable)
        if members and evictable[name].protects_any:
            protection.note(gang, partial(_lower, session, gang, evictable[name]), partial(session.preemptable, members[0]))
        if members and session.cluster.facts.budgets:
            protection.note_budgets(gang, partial(evictable[name].staying, others), partial(session.preemptable, members[0]))
        _among_modest(session, gang, evictable[name], others)
    for gang in gangs:
        _within(session, gang, evictable[gang.queue])


def _by_priority(session: "Session") -> bool:
    """Whether the policy lets pods preempt those of lower priority only."""
    return any(plugin.ranks_priorities for plugin in session.plugins(Preemptable))


def _lower(session: "Session", gang: Gang, evictable: EvictablePods) -> list[Member]:
    """Members under minimum run time that the gang could preempt by its priority."""
    if _by_priority(session):
        return evictable.protected(may_preempt(gang.priority, evictable.priority))
    return [member for member in evictable.protected(np.ones(evictable.size, dtype=np.bool_)) if member.gang is not gang]


def _resolves(session: "Session") -> bool:
    """Whether evictions may resolve filter failures. Volcano's limits on candidate nodes are accepted without effect: the search rates all nodes."""
    given = Given("action preempt", session.arguments("preempt"))
    resolve = given.switch("enableTopologyAwarePreemption", False)
    given.integer("topologyAwarePreemptWorkerNum", 16, least=1)
    given.number("minCandidateNodesPercentage", 10, least=0, most=100)
    given.integer("minCandidateNodesAbsolute", 1, least=0)
    given.integer("maxCandidateNodesAbsolute", 100, least=0)
    for remembering in FAILURES_REMEMBERED:
        given.switch(remembering, True)
    given.done(warn=session.outcome.warn)
    return resolve


def _among_modest(session: "Session", gang: Gang, evictable: EvictablePods, others: Bools) -> None:
    """Preempt members without requests for members without requests, if no node accepts one more pod."""
    members = sorted(best_effort_waiting(gang), key=session.member_key)
    if not members or not session.starving(gang):
        return
    best_effort = evictable.best_effort()
    search = Search(
        session, session.statement(), gang, evictable, eligible=others & best_effort, legal=session.preemptable, reason=REASON
    )
    for member in members:
        if not session.starving(gang) or not search.serve(member):
            break
    if search.evicts and gang.served + gang.waiting >= gang.min_member:
        search.statement.commit()
    else:
        search.discard()


def _within(session: "Session", gang: Gang, evictable: EvictablePods) -> None:
    """Preempt members of lower priority for members of higher priority in the same gang, one by one."""
    if not evictable.positions(gang):
        return
    requests = PreemptionRequests(session, evictable, reason=REASON)
    for member in sorted(waiting(gang), key=session.member_key):
        own = priority_of(member)
        lower = np.zeros(evictable.size, dtype=np.bool_)
        for one in gang.members:
            if (position := evictable.position(one)) is not None:
                lower[position] = may_preempt(own, priority_of(one))
        if not lower.any() or not requests.serve(gang, [member], eligible=lower, legal=session.preemptable):
            break
