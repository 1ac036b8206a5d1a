"""gangreclaim: gangs reclaim their queue's deserved amount from other queues, inside one domain of the fabric (`gangpreemption`). If reclaim also runs: only
topology-bound gangs; else all."""

from typing import TYPE_CHECKING

from ..framework.turns import ServiceOrder
from .gangpreemption import GangPreemption, Takes

if TYPE_CHECKING:
    from ..framework.session import Session


def run(session: "Session") -> None:
    requests = GangPreemption(session, action="gangreclaim", takes=Takes.RECLAIM)
    turns = ServiceOrder(session, requests.preemptors())
    while (queue := turns.next_queue()) is not None:
        gang = turns.of(queue)
        assert gang is not None
        if session.overused(queue):
            turns.drop(queue)
            continue
        requests.serve(gang)
