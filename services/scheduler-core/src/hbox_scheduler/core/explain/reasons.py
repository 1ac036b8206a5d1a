"""Why no node takes a pod: one label per node, the first rule, in a fixed order, that the node fails; and what alone stands in the way.

So the counts of all labels sum to the number of nodes (kube-scheduler's own counts may not: kubernetes #91340). `sole` counts the nodes that fail one rule
only: what to change, or to wait for, to get those nodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hbox_common.model.devices import VENDORS, DeviceLabel

from ..cluster.arrays import Bools, Ints
from .labels import Label, insufficient

#: What is said of cards is one chain, with the count of a vendor's cards at its end: a node that fails one link fails those after it.
CARD_LABELS = frozenset({*map(str, DeviceLabel), Label.DEVICE_INSUFFICIENT, Label.QUEUE_MODEL})


@dataclass(frozen=True, slots=True)
class Reasons:
    """`counts` by label sums to `nodes` less `fitting`; `sole` counts, of the same nodes, those that fail nothing else."""

    nodes: int
    counts: dict[str, int]
    fitting: int = 0
    sole: dict[str, int] = field(default_factory=dict)
    limit: str = ""  #: which quota or limit it is, where that is among them
    too_large: bool = False  #: no node would have room for it if nothing ran anywhere: waiting does not help

    def complete(self) -> "Reasons":
        """The same for a pod that was tried and found no place: the counts of all labels sum to `nodes`. Nodes that fit now had no room at the attempt."""
        if not self.fitting:
            return self
        return replace(self, counts={**self.counts, Label.ROOM_SINCE_ATTEMPT.value: self.fitting}, fitting=0)

    def headline(self) -> str:
        """As kube-scheduler words it, the most frequent reason first; behind it what alone is in the way where that is not all there is to say."""
        if not self.nodes:
            return "0/0 nodes are available: the cluster has no nodes"
        listed = ", ".join(f"{count} {label}" for label, count in _ordered(self.counts))
        line = f"{self.fitting}/{self.nodes} nodes are available" + (f": {listed}" if listed else "")
        if self.sole and len(self.counts) > 1:
            line += "; in the way alone: " + ", ".join(f"{label} on {count}" for label, count in _ordered(self.sole))
        if self.limit:
            line += f"; {self.limit}"
        if self.too_large:
            line += "; no node has room for it even when empty"
        return line


def fit_together(fit: int, needed: int, most: int | None) -> str:
    """Of a gang: how many of the pods that it needs fit now. `most`: how many would if nothing ran anywhere; None = not known."""
    said = f"{fit} of {needed} pods fit that have to start together"
    return said if most is None or most >= needed else f"{said}, and no more than {most} would on an empty cluster"


def _ordered(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def first_failed(failures: Iterable[tuple[str, Bools]], size: int) -> tuple[Ints, Ints, list[str]]:
    """Of the rules' answers, each a label and a mask `[size]`, in the order in which reasons are given: `[size]` the number of the first that a node fails, -1
    if it fails none; `[size]` how many it fails, those of cards as one; and the labels by number."""
    first = np.full(size, -1, dtype=np.int64)
    failed = np.zeros(size, dtype=np.int64)
    on_cards = np.zeros(size, dtype=np.bool_)
    labels: list[str] = []
    counted = frozenset(map(insufficient, VENDORS.cards))
    for label, fails in failures:
        labels.append(str(label))
        first[fails & (first < 0)] = len(labels) - 1
        if label in CARD_LABELS or label in counted:
            on_cards |= fails
        else:
            failed += fails
    failed += on_cards
    return first, failed, labels


def tally(failures: Iterable[tuple[str, Bools]], rows: Ints, size: int) -> Reasons:
    """Sum up the rules' answers over the nodes `rows`."""
    first, failed, labels = first_failed(failures, size)
    here = first[rows]
    counts = _by_label(here[here >= 0], labels)
    alone = here[(here >= 0) & (failed[rows] == 1)]
    return Reasons(len(rows), counts, int(np.count_nonzero(here < 0)), _by_label(alone, labels))


def _by_label(found: Ints, labels: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for number, count in enumerate(np.bincount(found, minlength=len(labels)).tolist()):
        if count:
            counts[labels[number]] = counts.get(labels[number], 0) + count
    return counts
