"""gangreclaim: gangs take back from other queues what their own deserves, inside one domain of the fabric (`gangclaims`). Beside
reclaim those alone that have to be in one domain."""

from typing import TYPE_CHECKING

from ..session.turns import Turns
from .gangclaims import GangClaims

if TYPE_CHECKING:
    from ..session.session import Session


def run(session: "Session") -> None:
    claims = GangClaims(session, action="gangreclaim", reclaim=True)
    turns = Turns(session, claims.claimants())
    while (queue := turns.next_queue()) is not None:
        gang = turns.of(queue)
        assert gang is not None
        if session.overused(queue):
            turns.drop(queue)
            continue
        claims.serve(gang)
