"""Hierarchical DRF: which queue of a weighted tree is furthest below its share (Bhattacharya et al., SoCC 2013; sources: volcano-drf).

The tree is written in annotations of the queues, `root/eng/dev` with weights `100/50/50`. Gangs are its leaves, each with the dominant share of what it
has. A branch counts the rescaled use of its children: each brought down to the smallest dominant share among those that still grow, so that a child with
much of an idle resource does not make the whole branch look served. Who cannot grow - nothing more asked for, or a resource it needs is used up - is
saturated, and does not hold back its siblings.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model import QueueName
from hbox_common.model.annotations import HIERARCHY, HIERARCHY_WEIGHTS

from ..cluster.arrays import Bools, Floats
from ..cluster.entities import Gang, QueueInfo

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True, eq=False)
class Branch:
    """A queue, or what is above it."""

    weight: float
    children: dict[str, "Branch"] = field(default_factory=dict)
    gangs: list[Gang] = field(default_factory=list)
    share: float = 0.0
    saturated: bool = False
    used: Floats = field(default_factory=lambda: np.zeros(0))  #: `[R]` parts of the cluster, rescaled

    @property
    def key(self) -> tuple[bool, float]:
        return self.saturated, self.share / self.weight


class ShareTree:
    """All queues. `refuse` receives queues whose path and weights do not match; they are not in the tree."""

    def __init__(
        self, queues: Iterable[QueueInfo], gangs: Iterable[Gang], refuse: Callable[[QueueInfo, InvalidRequest], None]
    ) -> None:
        self.root = Branch(1.0)
        self._paths: dict[QueueName, tuple[Branch, ...]] = {}
        for queue in queues:
            try:
                names, weights = _path_of(queue)
            except InvalidRequest as e:
                refuse(queue, e)
                continue
            branch, path = self.root, []
            for name, weight in zip(names, weights, strict=True):
                branch = branch.children.setdefault(name, Branch(weight))
                path.append(branch)
            self._paths[queue.name] = tuple(path)
        for gang in gangs:
            path_ = self._paths.get(gang.queue)
            if path_:
                path_[-1].gangs.append(gang)

    def path(self, queue: QueueName) -> tuple[Branch, ...]:
        """From below the root to the queue itself."""
        return self._paths.get(queue, ())

    def update(self, used: "Mapping[Gang, Floats]", wanted: "Mapping[Gang, Floats]") -> None:
        """Shares of all branches from what gangs have and what they ask for in all: `[R]` parts of the cluster."""
        total = sum(used.values(), start=np.zeros(1))
        _update(self.root, used, wanted, np.asarray(total >= 1.0 - 1e-9))


def _update(branch: Branch, used: "Mapping[Gang, Floats]", wanted: "Mapping[Gang, Floats]", gone: Bools) -> None:
    for child in branch.children.values():
        _update(child, used, wanted, gone)
    leaves = [
        (used[gang], float(used[gang].max(initial=0.0)), _saturated(used[gang], wanted[gang], gone))
        for gang in branch.gangs
        if gang in used
    ]
    parts = leaves + [(child.used, child.share, child.saturated) for child in branch.children.values() if len(child.used)]
    branch.saturated = all(saturated for _, _, saturated in parts)
    smallest = min((share for _, share, saturated in parts if share > 0 and not saturated), default=None)
    if smallest is None:
        smallest = min((share for _, share, _ in parts if share > 0), default=0.0)
    branch.used = _sum([use * (smallest / share if share > 0 else 0.0) for use, share, _ in parts])
    branch.share = float(branch.used.max(initial=0.0))


def _saturated(used: Floats, wanted: Floats, gone: Bools) -> bool:
    more = wanted > used + 1e-12
    return not more.any() or bool((more & gone).any())


def _sum(parts: Sequence[Floats]) -> Floats:
    return np.sum(parts, axis=0, dtype=np.float64) if parts else np.zeros(0)


def _path_of(queue: QueueInfo) -> tuple[list[str], list[float]]:
    text = queue.annotations.get(HIERARCHY, "")
    names = [name for name in text.split("/") if name]
    if not names:
        return [queue.name], [max(1.0, float(queue.weight))]
    written = [part for part in queue.annotations.get(HIERARCHY_WEIGHTS, "").split("/") if part]
    try:
        weights = [float(part) for part in written] or [1.0] * len(names)
    except ValueError as e:
        raise InvalidRequest(
            f"queue {queue.name}, annotation {HIERARCHY_WEIGHTS}: {'/'.join(written)!r} has a part that is no number"
        ) from e
    if len(weights) != len(names) or not all(isfinite(weight) and weight > 0 for weight in weights):
        raise InvalidRequest(
            f"queue {queue.name}: {HIERARCHY_WEIGHTS} {'/'.join(written)!r} does not fit {HIERARCHY} {text!r}",
            hint="as many weights as names, each more than 0",
        )
    if names[0] == "root":
        names, weights = names[1:], weights[1:]
    return names, weights
