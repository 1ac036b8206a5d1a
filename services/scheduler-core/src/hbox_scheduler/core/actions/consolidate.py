"""consolidate: running members are moved together so that a gang which finds no room in pieces gets it whole (KAI-Scheduler; reference peers §2.2).

Nobody loses: whoever leaves is promised another place in the same statement, where it goes when it comes back. Members of higher priority than the gang's are
not moved, nor whom a plugin protects (conformance, pdb, cdp, ...).

Argument in `configurations`: maxMovedPods (16), for one gang; 0 = none, -1 = any number.
"""

from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model.rights import may_move

from ..framework.pool import Pool
from ..framework.preemptors import PreemptionRequests, preemptors, waiting
from ..framework.turns import ServiceOrder
from ..plugins.arguments import Given

if TYPE_CHECKING:
    from ..framework.session import Session

_MOVES = "maxMovedPods"
_DEFAULT = 16
_ANY = 1 << 30


def run(session: "Session") -> None:
    """Queues take turns. Raises InvalidRequest for a wrong argument."""
    moves = _moves(session)
    turns = ServiceOrder(session, preemptors(session))
    if not moves or turns.next_queue() is None:
        return
    pool = Pool(session)
    requests = PreemptionRequests(session, pool, reason="Moved", moves=moves)
    while (gang := turns.next()) is not None:
        others = np.array([member.gang is not gang for member in pool.members], dtype=np.bool_)
        eligible = others & may_move(gang.priority, pool.priority)
        requests.serve(gang, sorted(waiting(gang), key=session.member_key), eligible=eligible, legal=session.movable)


def _moves(session: "Session") -> int:
    given = Given("action consolidate", session.arguments("consolidate"))
    moves = given.integer(_MOVES, _DEFAULT, least=-1)
    given.done()
    return _ANY if moves == -1 else moves
