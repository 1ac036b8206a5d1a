"""preempt: gangs take from those of lower priority in their own queue, then members from others of their own gang (reference volcano §3).

Nodes are always chosen by what is lost there; Volcano does so with `enableTopologyAwarePreemption` only, and else by their scores. As there, the
argument decides whether members have to leave whom a filter objects to (anti-affinity, host ports, spread), or only those whose room is needed.
Members that ask for nothing are left to backfill: nobody has to leave for them.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..session.claims import Claims, claimants, waiting
from ..session.nouns import Gang
from ..session.pool import Pool
from ..session.turns import Turns

if TYPE_CHECKING:
    from hbox_common.model import QueueName

    from ..session.session import Session

REASON = "Preempted"


def run(session: "Session") -> None:
    gangs = list(claimants(session))
    resolve = session.arguments("preempt").get("enableTopologyAwarePreemption", False) is True
    turns = Turns(session, gangs)
    pools: dict[QueueName, Pool] = {}
    claims: dict[QueueName, Claims] = {}
    while (gang := turns.next()) is not None:
        name = gang.queue
        if name not in pools:
            pools[name] = Pool(session, queue=name)
            claims[name] = Claims(session, pools[name], reason=REASON, resolve=resolve)
        if session.has("priority", "preemptable"):
            others = pools[name].priority < gang.priority
        else:
            others = np.array([member.gang is not gang for member in pools[name].members], dtype=np.bool_)
        claims[name].serve(gang, sorted(waiting(gang), key=session.member_key), eligible=others, legal=session.preemptable)
    for gang in gangs:
        _within(session, gang, pools[gang.queue])


def _within(session: "Session", gang: Gang, pool: Pool) -> None:
    """Members of higher priority take the places of others of their gang, one by one."""
    if all(member.gang is not gang for member in pool.members):
        return
    claims = Claims(session, pool, reason=REASON)
    for member in sorted(waiting(gang), key=session.member_key):
        lower = np.array([one.gang is gang and one.priority < member.priority for one in pool.members], dtype=np.bool_)
        if not lower.any() or not claims.serve(gang, [member], eligible=lower, legal=session.preemptable):
            break
