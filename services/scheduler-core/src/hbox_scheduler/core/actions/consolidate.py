"""consolidate: running members are moved together so that a gang which finds no room in pieces gets it whole (KAI-Scheduler; reference peers §2.2).

Nobody loses: whoever leaves is promised another place in the same statement, where it goes when it comes back. Members of higher priority than the gang's are
not moved, nor whom a plugin protects (conformance, pdb, cdp, ...).

Argument in `configurations`: maxMovedPods (16), for one gang; 0 = none, -1 = any number.
"""

from typing import TYPE_CHECKING

import numpy as np

from hbox_common.errors import InvalidRequest

from ..session.claims import Claims, claimants, waiting
from ..session.pool import Pool
from ..session.turns import Turns

if TYPE_CHECKING:
    from ..session.session import Session

_MOVES = "maxMovedPods"
_DEFAULT = 16
_ANY = 1 << 30


def run(session: "Session") -> None:
    """Queues take turns. Raises InvalidRequest for a wrong argument."""
    moves = _moves(session)
    turns = Turns(session, claimants(session))
    if not moves or turns.next_queue() is None:
        return
    pool = Pool(session)
    claims = Claims(session, pool, reason="Moved", moves=moves)
    while (gang := turns.next()) is not None:
        others = np.array([member.gang is not gang for member in pool.members], dtype=np.bool_)
        eligible = others & (pool.priority <= gang.priority)
        claims.serve(gang, sorted(waiting(gang), key=session.member_key), eligible=eligible, legal=session.movable)


def _moves(session: "Session") -> int:
    arguments = session.arguments("consolidate")
    for key in arguments:
        if key != _MOVES:
            raise InvalidRequest(f"action consolidate has no argument {key!r}", hint=f"it has: {_MOVES}")
    given = arguments.get(_MOVES, _DEFAULT)
    if isinstance(given, bool) or not isinstance(given, int) or given < -1:
        raise InvalidRequest(f"action consolidate, argument {_MOVES}: {given!r} is not a number of at least -1")
    return _ANY if given == -1 else given
