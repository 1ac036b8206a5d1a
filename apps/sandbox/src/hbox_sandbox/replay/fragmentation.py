"""Fragmentation of a cluster's cards as FGD defines it (Weng et al., USENIX ATC'23; sources: fgd-definition).

A thousandth of a card is a fragment for a kind of pod that cannot use it: because the pod asks for no card, because it does not fit the node
at all, or because the free part of that card is smaller than what it asks of each card. The cluster's fragmentation is the mean over the
kinds of pods, weighted by how often they come.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hbox_sandbox.trace.model import TracePod


@dataclass(frozen=True, slots=True)
class Shape:
    cpu_milli: int
    cards: int
    card_milli: int  #: of each card; 1000 = whole
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FreeNode:
    """What is left of one node."""

    cpu_milli: int
    model: str
    card_milli: Sequence[int]  #: of each card


def shapes_of(pods: Iterable[TracePod]) -> Mapping[Shape, int]:
    """How often each shape comes, pods without cards included: they are part of the mix."""
    return Counter(Shape(pod.cpu_milli, pod.cards, pod.card_milli, pod.models) for pod in pods)


def fragmented_milli(nodes: Iterable[FreeNode], mix: Mapping[Shape, int]) -> float:
    """Expected fragment of the whole cluster, in thousandths of a card."""
    total = sum(mix.values())
    if not total:
        return 0.0
    return (
        sum(popularity * _fragment(node, shape) for node in nodes if any(node.card_milli) for shape, popularity in mix.items())
        / total
    )


def _fragment(node: FreeNode, shape: Shape) -> int:
    usable = [free for free in node.card_milli if free >= shape.card_milli]
    fits = (
        shape.cards > 0
        and node.cpu_milli >= shape.cpu_milli
        and len(usable) >= shape.cards
        and (not shape.models or node.model in shape.models)
    )
    return sum(node.card_milli) - sum(usable) if fits else sum(node.card_milli)
