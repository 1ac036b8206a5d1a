"""gangpreempt: gangs evict gangs of lower priority in their own queue, inside one domain of the fabric (`gangpreemption`). If preempt also runs: only
topology-bound gangs; else all."""

from typing import TYPE_CHECKING

from ..framework.turns import ServiceOrder
from .gangpreemption import GangPreemption, Takes

if TYPE_CHECKING:
    from ..framework.session import Session


def run(session: "Session") -> None:
    requests = GangPreemption(session, action="gangpreempt", takes=Takes.PREEMPT)
    turns = ServiceOrder(session, requests.preemptors())
    while (gang := turns.next()) is not None:
        requests.serve(gang)
