"""Members of several kinds in one domain, on as few leaves as can be found.

Kinds are placed one after the other, the largest first, each on the fewest leaves beside those that the gang has already. Where one leaf after the
other of what came of it could be too many, the leaves that hold the most of the whole mixture are tried alone. That is a search without a proof: the
number of leaves is the least only where it reaches the bound of a single kind.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
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


class Taste(Enum):
    """Which of the nodes that are equal to a kind are liked."""

    POLICY = auto()
    TIGHT = auto()  #: where least is left over
    ROOMY = auto()  #: where most is left over


class Mixtures:
    """On one session."""

    def __init__(self, session: "Session", seats: Seats) -> None:
        self._session = session
        self._tree = session.tree
        self._seats = seats

    def place(self, statement: Statement, kinds: Sequence[list[Member]], domain: int, aim: Aim, when: When) -> bool:
        """All members of all kinds inside the domain, or nothing."""
        mark = statement.mark()
        rooms, taken = self._leaves(kinds, domain, when)
        if not self._anyhow(statement, kinds, domain, aim, when=when):
            return False
        used = self._used(kinds, taken)
        needs = [fewest(room, taken, len(kind)) for room, kind in zip(rooms, kinds, strict=True)]
        least = max(need for need in needs if need is not None)
        if used <= least:
            return True
        order = np.argsort(-_shares(rooms, [len(kind) for kind in kinds]), kind="stable")
        order = order[~taken[order]]
        for count in range(least, used):
            statement.rollback(mark)
            within = taken.copy()
            within[order[:count]] = True
            if self._anyhow(statement, kinds, domain, aim, when=when, within=within[self._tree.leaves()]):
                return True
        return self._anyhow(statement, kinds, domain, aim, when=when)

    def _anyhow(
        self,
        statement: Statement,
        kinds: Sequence[list[Member]],
        domain: int,
        aim: Aim,
        *,
        when: When,
        within: Bools | None = None,
    ) -> bool:
        """By one taste in nodes or another: which of the nodes that are equal to one kind it takes, decides whether the next kind fits."""
        mark = statement.mark()
        for taste in Taste:
            if self._all(statement, kinds, domain, aim, when=when, within=within, taste=taste):
                return True
            statement.rollback(mark)
        return False

    def _all(
        self,
        statement: Statement,
        kinds: Sequence[list[Member]],
        domain: int,
        aim: Aim,
        *,
        when: When,
        within: Bools | None,
        taste: Taste,
    ) -> bool:
        columns = self._session.columns
        for members in kinds:
            ground = self._seats.ground(members[0], members[0].gang, when)
            room = ground.room if within is None else np.where(within, ground.room, 0)
            liking = ground.liking
            if taste is not Taste.POLICY:
                used = columns.used - columns.leaving if when is not When.NOW else columns.used
                asked = np.flatnonzero(members[0].request > 0)
                left = (columns.allocatable[asked] - used[asked])[:, : columns.size] / members[0].request[asked, None]
                liking = left.sum(axis=0) * (1 if taste is Taste.ROOMY else -1)
            ground = replace(ground, room=room, liking=liking)
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
