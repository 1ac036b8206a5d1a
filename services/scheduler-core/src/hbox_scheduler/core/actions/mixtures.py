"""Members of several kinds in one domain, on as few leaves as can be found.

Kinds are placed one after the other, the largest first, each on the fewest leaves beside those that the gang has already. Where one leaf after the
other of what came of it could be too many, the leaves that hold the most of the whole mixture are tried alone. That is a search without a proof: the
number of leaves is the least only where it reaches the bound of a single kind.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Bools, Floats, Ints
from ..session.nouns import Member
from ..session.statement import Statement
from ..topology.aims import Aim
from ..topology.cover import fewest
from ..topology.spread import spread
from .seats import Seats, When

if TYPE_CHECKING:
    from ..session.session import Session


class Mixtures:
    """On one session."""

    def __init__(self, session: "Session", seats: Seats) -> None:
        self._tree = session.tree
        self._seats = seats

    def place(self, statement: Statement, kinds: Sequence[list[Member]], domain: int, aim: Aim, when: When) -> bool:
        """All members of all kinds inside the domain, or nothing."""
        mark = statement.mark()
        rooms, taken = self._leaves(kinds, domain, when)
        if not self._all(statement, kinds, domain, aim, when=when):
            statement.rollback(mark)
            return False
        used = self._used(kinds, taken)
        needs = [fewest(room, taken, len(kind)) for room, kind in zip(rooms, kinds, strict=True)]
        least = max(need for need in needs if need is not None)
        order = np.argsort(-_shares(rooms, [len(kind) for kind in kinds]), kind="stable")
        order = order[~taken[order]]
        leaves = self._tree.leaves()
        for count in range(least, used):
            statement.rollback(mark)
            within = taken.copy()
            within[order[:count]] = True
            if self._all(statement, kinds, domain, aim, when=when, within=within[leaves]):
                return True
        if used > least:
            statement.rollback(mark)
            return self._all(statement, kinds, domain, aim, when=when)
        return True

    def _all(
        self,
        statement: Statement,
        kinds: Sequence[list[Member]],
        domain: int,
        aim: Aim,
        *,
        when: When,
        within: Bools | None = None,
    ) -> bool:
        for members in kinds:
            ground = self._seats.ground(members[0], members[0].gang, when)
            if within is not None:
                ground = replace(ground, room=np.where(within, ground.room, 0))
            counts = spread(self._tree, ground, domain, len(members), aim.levels, by_liking=not aim.tight)
            if counts is None or not self._seats.take(statement, members, counts, when):
                return False
        return True

    def _leaves(self, kinds: Sequence[list[Member]], domain: int, when: When) -> tuple[list[Ints], Bools]:
        """Of each kind `[L]`, how many fit in each leaf of the domain alone; and `[L]`, leaves in which the gang is."""
        leaves, inside = self._tree.leaves(), self._tree.mask(domain)
        grounds = [self._seats.ground(kind[0], kind[0].gang, when) for kind in kinds]
        rooms = [np.bincount(leaves, weights=np.where(inside, one.room, 0)).astype(np.int64) for one in grounds]
        return rooms, np.bincount(leaves, weights=grounds[0].taken) > 0

    def _used(self, kinds: Sequence[list[Member]], taken: Bools) -> int:
        """Leaves that the members use beside those taken before."""
        used = np.zeros(len(taken), dtype=np.bool_)
        used[self._tree.leaves()[[member.row for kind in kinds for member in kind]]] = True
        return int(np.count_nonzero(used & ~taken))


def _shares(rooms: Sequence[Ints], counts: Sequence[int]) -> Floats:
    """`[L]`: how much of the whole mixture each leaf holds, as if kinds took turns there."""
    cost = np.zeros(len(rooms[0]), dtype=np.float64)
    for room, count in zip(rooms, counts, strict=True):
        cost += count / np.maximum(room, 1e-3)
    return np.asarray(1.0 / cost)
