"""reclaim: a queue takes back from others what it deserves (reference volcano §3). Queues take turns, each serves its first gang.

What is taken goes only together with the places that it makes: the search proves them on the state as it will be, and a gang gets all that it needs to
run or nothing.
"""

from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model.rights import reclaimable

from ..cluster.entities import Member
from ..framework.pool import OFFLINE_QUEUE, Pool
from ..framework.preemptors import PreemptionRequests, preemptors, waiting
from ..framework.turns import ServiceOrder

if TYPE_CHECKING:
    from ..framework.session import Session


def run(session: "Session") -> None:
    turns = ServiceOrder(session, preemptors(session))
    if turns.next_queue() is None:
        return
    pool = Pool(session)
    requests = PreemptionRequests(session, pool, reason="Reclaimed")
    gives = np.array(
        [name == OFFLINE_QUEUE or reclaimable(session.queues.get(name), preemptable=True) for name in pool.queues],
        dtype=np.bool_,
    )
    codes = {name: code for code, name in enumerate(pool.queues)}
    while (queue := turns.next_queue()) is not None:
        gang = turns.of(queue)
        assert gang is not None
        if session.overused(queue):
            turns.drop(queue)
            continue

        def may(member: Member) -> bool:
            return session.preemptive(session.queues[member.gang.queue], member)

        members = sorted(waiting(gang), key=session.member_key)
        eligible = gives[pool.queue] & (pool.queue != codes.get(queue.name, -1))
        if session.pools:  # what is lent comes back whatever is said of the queue that has it
            eligible = eligible | np.array([session.pools.lent(queue.name, member) for member in pool.members], dtype=np.bool_)
        requests.serve(
            gang,
            members,
            eligible=eligible,
            legal=session.reclaimable,
            may=may,
            rightful=session.rightful,
            giving=session.giving,
        )
