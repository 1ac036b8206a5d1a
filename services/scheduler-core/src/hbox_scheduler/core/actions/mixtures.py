"""Members of several kinds in one domain, on as few leaves as can be found.

Kinds are placed one after the other, the largest first, each on the fewest leaves in addition to those that the gang already uses. If that may use too many
leaves, only the leaves that hold the most of the whole mixture are tried. The search is a heuristic: the number of leaves is proven minimal only if it reaches
the bound of a single kind.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np

from ..cluster.arrays import Bools, Floats, Ints
from ..cluster.entities import Member
from ..framework.statement import Statement
from ..topology.constraints import TopologyConstraint
from ..topology.cover import fewest
from ..topology.spread import spread
from .allocator import Allocator, When

if TYPE_CHECKING:
    from ..framework.session import Session


class Preference(Enum):
    """Which of the nodes that are equal to a kind are liked."""

    POLICY = auto()
    TIGHT = auto()  #: where least is left over
    ROOMY = auto()  #: where most is left over


class Mixtures:
    """On one session."""

    def __init__(self, session: "Session", allocator: Allocator) -> None:
        self._session = session
        self._tree = session.tree
        self._allocator = allocator

    def place(
        self, statement: Statement, kinds: Sequence[list[Member]], domain: int, constraint: TopologyConstraint, when: When
    ) -> bool:
        """All members of all kinds inside the domain, or nothing."""
        mark = statement.mark()
        rooms, taken = self._leaves(kinds, domain, when)
        if not self._anyhow(statement, kinds, domain, constraint, when=when):
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
            if self._anyhow(statement, kinds, domain, constraint, when=when, within=within[self._tree.leaves()]):
                return True
        return self._anyhow(statement, kinds, domain, constraint, when=when)

    def _anyhow(
        self,
        statement: Statement,
        kinds: Sequence[list[Member]],
        domain: int,
        constraint: TopologyConstraint,
        *,
        when: When,
        within: Bools | None = None,
    ) -> bool:
        """By one preference in nodes or another: which of the nodes that are equal to one kind it takes, decides whether the next kind fits."""
        mark = statement.mark()
        for preference in Preference:
            if self._all(statement, kinds, domain, constraint, when=when, within=within, preference=preference):
                return True
            statement.rollback(mark)
        return False

    def _all(
        self,
        statement: Statement,
        kinds: Sequence[list[Member]],
        domain: int,
        constraint: TopologyConstraint,
        *,
        when: When,
        within: Bools | None,
        preference: Preference,
    ) -> bool:
        columns = self._session.columns
        for members in kinds:
            capacities = self._allocator.capacities(members[0], members[0].gang, when)
            room = capacities.room if within is None else np.where(within, capacities.room, 0)
            score = capacities.score
            if preference is not Preference.POLICY:
                used = columns.used - columns.leaving if when is not When.NOW else columns.used
                asked = np.flatnonzero(members[0].request > 0)
                left = (columns.allocatable[asked] - used[asked])[:, : columns.size] / members[0].request[asked, None]
                score = left.sum(axis=0) * (1 if preference is Preference.ROOMY else -1)
            capacities = replace(capacities, room=room, score=score)
            counts = spread(self._tree, capacities, domain, len(members), constraint.levels, by_score=not constraint.tight)
            if counts is None or not self._allocator.take(statement, members, counts, when):
                return False
        return True

    def _leaves(self, kinds: Sequence[list[Member]], domain: int, when: When) -> tuple[list[Ints], Bools]:
        """Of each kind `[L]`, how many fit in each leaf of the domain alone; and `[L]`, leaves in which the gang is."""
        leaves, inside = self._tree.leaves(), self._tree.mask(domain)
        capacities = [self._allocator.capacities(kind[0], kind[0].gang, when) for kind in kinds]
        rooms = [np.bincount(leaves, weights=np.where(inside, one.room, 0)).astype(np.int64) for one in capacities]
        return rooms, np.bincount(leaves, weights=capacities[0].taken) > 0

    def _used(self, kinds: Sequence[list[Member]], taken: Bools) -> int:
        """Leaves that the members use in addition to those used before."""
        used = np.zeros(len(taken), dtype=np.bool_)
        used[self._tree.leaves()[[member.row for kind in kinds for member in kind]]] = True
        return int(np.count_nonzero(used & ~taken))


def _shares(rooms: Sequence[Ints], counts: Sequence[int]) -> Floats:
    """`[L]`: how much of the whole mixture each leaf holds, as if kinds took turns there."""
    cost = np.zeros(len(rooms[0]), dtype=np.float64)
    for room, count in zip(rooms, counts, strict=True):
        cost += count / np.maximum(room, 1e-3)
    return np.asarray(1.0 / cost)
