"""gangpreempt: gangs take from gangs of lower priority in their own queue, inside one domain of the fabric (`gangclaims`). Beside
preempt those alone that have to be in one domain."""

from typing import TYPE_CHECKING

from ..session.turns import Turns
from .gangclaims import GangClaims

if TYPE_CHECKING:
    from ..session.session import Session


def run(session: "Session") -> None:
    claims = GangClaims(session, action="gangpreempt", reclaim=False)
    turns = Turns(session, claims.claimants())
    while (gang := turns.next()) is not None:
        claims.serve(gang)
