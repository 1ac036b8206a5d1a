"""preempt: gangs take from those of lower priority in their own queue, then members from others of their own gang (reference volcano §3).

Nodes are always chosen by what is lost there; Volcano does so with `enableTopologyAwarePreemption` only, and else by their scores. As there, the
argument decides whether members have to leave whom a filter objects to (anti-affinity, host ports, spread), or only those whose room is needed.
Members that ask for nothing are left to backfill as long as any node takes one more pod. Where none does, such of lower priority leave for them, and
nobody else.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model.rights import may_preempt

from ..cluster.arrays import Bools
from ..cluster.entities import Gang, Member
from ..framework.conf import FAILURES_REMEMBERED
from ..framework.hooks import Preemptable
from ..framework.pool import OFFLINE_QUEUE, Pool
from ..framework.preemptors import PreemptionRequests, best_effort_waiting, preemptors, waiting
from ..framework.protection import Protection
from ..framework.turns import ServiceOrder
from ..framework.victims import Search
from ..plugins.arguments import Given
from ..plugins.priority import priority_of

if TYPE_CHECKING:
    from hbox_common.model import QueueName

    from ..framework.session import Session

REASON = "Preempted"


def run(session: "Session") -> None:
    """Raises InvalidRequest for arguments of the action that are wrong."""
    resolve = _resolves(session)
    gangs = list(preemptors(session, best_effort=True))
    turns = ServiceOrder(session, gangs)
    pools: dict[QueueName, Pool] = {}
    requests: dict[QueueName, PreemptionRequests] = {}
    protection = Protection(session)
    while (gang := turns.next()) is not None:
        name = gang.queue
        if name not in pools:
            pools[name] = Pool(session, queue=name)
            requests[name] = PreemptionRequests(session, pools[name], reason=REASON, resolve=resolve)
        if session.has("priority", Preemptable):
            others = may_preempt(gang.priority, pools[name].priority)
        else:
            others = np.array([member.gang is not gang for member in pools[name].members], dtype=np.bool_)
        if OFFLINE_QUEUE in pools[name].codes:
            others = others | (pools[name].queue == pools[name].codes[OFFLINE_QUEUE])
        members = sorted(waiting(gang), key=session.member_key)
        requests[name].serve(gang, members, eligible=others, legal=session.preemptable)
        if members and pools[name].protected:
            protection.note(gang, partial(_lower, session, gang, pools[name]), partial(session.preemptable, members[0]))
        if members and session.cluster.budgets:
            protection.note_budgets(gang, partial(pools[name].staying, others), partial(session.preemptable, members[0]))
        _among_modest(session, gang, pools[name], others)
    for gang in gangs:
        _within(session, gang, pools[gang.queue])


def _lower(session: "Session", gang: Gang, pool: Pool) -> list[Member]:
    """Of those from whom nobody takes yet, whom the gang may preempt by its priority."""
    if session.has("priority", Preemptable):
        return [member for member in pool.protected if may_preempt(gang.priority, member.gang.priority)]
    return [member for member in pool.protected if member.gang is not gang]


def _resolves(session: "Session") -> bool:
    """Whether members have to leave whom a filter objects to. How many nodes Volcano would look at is read and means nothing: here all are."""
    given = Given("action preempt", session.arguments("preempt"))
    resolve = given.switch("enableTopologyAwarePreemption", False)
    given.integer("topologyAwarePreemptWorkerNum", 16, least=1)
    given.number("minCandidateNodesPercentage", 10, least=0, most=100)
    given.integer("minCandidateNodesAbsolute", 1, least=0)
    given.integer("maxCandidateNodesAbsolute", 100, least=0)
    for remembering in FAILURES_REMEMBERED:
        given.switch(remembering, True)
    given.done(tell=session.outcome.warn)
    return resolve


def _among_modest(session: "Session", gang: Gang, pool: Pool, others: Bools) -> None:
    """Members that ask for nothing take the places of others that ask for nothing, where no node has room for one more pod."""
    members = sorted(best_effort_waiting(gang), key=session.member_key)
    if not members or not session.starving(gang):
        return
    alike = np.array([member.best_effort for member in pool.members], dtype=np.bool_)
    search = Search(session, session.statement(), gang, pool, eligible=others & alike, legal=session.preemptable, reason=REASON)
    for member in members:
        if not session.starving(gang) or not search.serve(member):
            break
    if search.evicts and gang.served + gang.waiting >= gang.min_member:
        search.statement.commit()
    else:
        search.discard()


def _within(session: "Session", gang: Gang, pool: Pool) -> None:
    """Members of higher priority take the places of others of their gang, one by one."""
    if all(member.gang is not gang for member in pool.members):
        return
    requests = PreemptionRequests(session, pool, reason=REASON)
    for member in sorted(waiting(gang), key=session.member_key):
        own = priority_of(member)
        lower = np.array([one.gang is gang and may_preempt(own, priority_of(one)) for one in pool.members], dtype=np.bool_)
        if not lower.any() or not requests.serve(gang, [member], eligible=lower, legal=session.preemptable):
            break
