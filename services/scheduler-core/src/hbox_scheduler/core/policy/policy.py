"""A policy: ordered predicates, fits and weighted scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows
from ..cluster.task import Task
from ..devices.nvidia import CardFit
from ..framework.nodeports import NodePorts
from ..framework.resources import ResourceFit
from ..framework.vectorised import CardChoice, FitPlugin, Predicate, Score
from ..plugins import Binpack, Fgd, LeastWaste, Mix, NodeAffinity, NodeCondition, ScarceModels, Shape, Taints, VolumeReach

_UNLIMITED = 1 << 30


class PolicyName(StrEnum):
    BINPACK = "binpack"
    FGD = "fgd"
    LEAST_WASTE = "least-waste"


@dataclass(frozen=True)
class Policy:
    """`fills` and `version` sum up the scores': see `plugins.base.Score`."""

    predicates: Sequence[Predicate]
    fits: Sequence[FitPlugin]
    scores: Sequence[tuple[Score, float]]
    cards: CardChoice | None = None

    @property
    def rules(self) -> Sequence[Predicate | FitPlugin]:
        """In the order in which reasons are given."""
        return (*self.predicates, *self.fits)

    @property
    def fills(self) -> bool:
        return all(score.fills for score, _ in self.scores)

    @property
    def version(self) -> int:
        return sum(score.version for score, _ in self.scores)

    def learn(self, task: Task, pods: int) -> None:
        for score, _ in self.scores:
            score.learn(task, pods)

    def allowed(self, columns: Columns, rows: Rows, task: Task) -> Bools:
        """`[n]`: alive nodes that fail no predicate."""
        mask = columns.alive[rows].copy()
        for predicate in self.predicates:
            for _, fails in predicate.failures(columns, rows, task):
                mask &= ~fails
        return mask

    def capacity(self, columns: Columns, rows: Rows, task: Task) -> Ints:
        """`[n]`: pods that fit by the fits alone, 0 or more."""
        room: Ints | None = None
        for plugin in self.fits:
            own = plugin.capacity(columns, rows, task)
            if own is not None:
                room = own if room is None else np.minimum(room, own, out=room)
        if room is None:  # not even to be a pod
            return np.full(columns.alive[rows].shape, _UNLIMITED, dtype=np.int64)
        return np.maximum(room, 0, out=room)

    def score(self, columns: Columns, rows: Rows, task: Task) -> Floats:
        """`[n]`: the weighted sum."""
        total = np.zeros(columns.alive[rows].shape, dtype=np.float64)
        for plugin, weight in self.scores:
            score = plugin.score(columns, rows, task)
            if score is not None:
                total += weight * score
        return total


def policy_of(name: PolicyName, *, mix: Mapping[Shape, float] | None = None) -> Policy:
    """The built-in policies. `mix`: a given target mix, for those that else learn it.

    Under FGD and least waste what a pod prefers comes first (0 to 100 per plugin), cards decide among equals (a few of them at most).
    """
    affinity, taints = NodeAffinity(), Taints()
    predicates = (NodeCondition(), affinity, taints, VolumeReach())
    fits = (NodePorts(), ResourceFit(cards=False), CardFit(), ResourceFit(cards=True))
    if name is PolicyName.BINPACK:
        return Policy(predicates, fits, ((Binpack(), 1.0), (ScarceModels(), 3.0), (affinity, 1.0), (taints, 10.0)))
    chooser = Fgd(Mix(mix)) if name is PolicyName.FGD else LeastWaste(Mix(mix))
    return Policy(predicates, fits, ((chooser, 1.0), (affinity, 1.0), (taints, 1.0)), cards=chooser)
