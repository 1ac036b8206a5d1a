"""reclaim: a queue reclaims its deserved amount from other queues (sources: volcano-reclaim). Queues take turns, each serves its first gang.

Starving gangs of all queues come first. Then running gangs with more pending pods reclaim pod by pod up to the deserved amount of their queue. They evict
single pods and the surplus of other gangs, and never break a gang (KAI-Scheduler's elastic jobs; sources: kai-actions).

Evictions are committed only together with the nominations that they allow: the search verifies these on the state after the evictions, and a gang gets all
members of its minimum or none.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import QueueName
from hbox_common.model.rights import Standing, keeps_minimum, reclaimable

from ..cluster.entities import Member
from ..framework.turns import ServiceOrder
from ..preemption.evictablepods import OFFLINE_QUEUE, EvictablePods
from ..preemption.preemptors import PreemptionRequests, growing, preemptors, waiting
from ..preemption.protection import Protection

if TYPE_CHECKING:
    from ..framework.session import Session

#: Maximum pods beyond its minimum for which a gang reclaims in one session; the rest follow once these are placed.
GROWS = 64


def run(session: "Session") -> None:
    starving, grown = list(preemptors(session)), list(growing(session))
    if not starving and not grown:
        return
    evictable = EvictablePods(session)
    requests = PreemptionRequests(session, evictable, reason="Reclaimed")
    gives = np.array(
        [name == OFFLINE_QUEUE or reclaimable(session.queues.get(name), preemptable=True) for name in evictable.queues],
        dtype=np.bool_,
    )
    codes = evictable.codes
    protection = Protection(session)

    def may(member: Member) -> bool:
        return session.preemptive(session.queues[member.gang.queue], member)

    def others_than(name: QueueName, preemptor: Member) -> list[Member]:
        """Only queues that may have victims: `legal` returns no member of another one."""
        among = gives[evictable.queue] & (evictable.queue != codes.get(name, -1))
        if (giving := session.giving(preemptor)) is not None:
            names = [codes[one] for one in giving if one in codes]
            among &= np.isin(evictable.queue, names)
        return evictable.protected(among)

    def spared(preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        """The legal victims whose gangs keep their minimum without them."""
        legal = session.reclaimable(preemptor, candidates)
        leave = Counter(member.gang for member in legal if not member.task.offline)
        return [
            member
            for member in legal
            if member.task.offline or keeps_minimum(Standing(member.gang.holding, member.gang.min_member), leave[member.gang])
        ]

    for gangs, surplus in ((starving, False), (grown, True)):
        turns = ServiceOrder(session, gangs)
        while (queue := turns.next_queue()) is not None:
            gang = turns.of(queue)
            assert gang is not None
            if session.overused(queue):
                turns.drop(queue)
                continue
            eligible = gives[evictable.queue] & (evictable.queue != codes.get(queue.name, -1))
            if session.pools:  # the owner reclaims lent nodes even from queues that are not reclaimable
                eligible = eligible | evictable.lent(queue.name)
            members = sorted(waiting(gang), key=session.member_key)
            for together in [[member] for member in members[:GROWS]] if surplus else [members]:
                requests.serve(
                    gang,
                    together,
                    eligible=eligible,
                    legal=spared if surplus else session.reclaimable,
                    may=may,
                    rightful=session.rightful,
                    giving=session.giving,
                    surplus=surplus,
                )
                if together[0].row < 0:
                    break
            if surplus or not members or not may(members[0]):
                continue
            if evictable.protects_any:
                protection.note(gang, partial(others_than, queue.name, members[0]), partial(session.reclaimable, members[0]))
            if session.cluster.facts.budgets:
                protection.note_budgets(gang, partial(evictable.staying, eligible), partial(session.reclaimable, members[0]))
