"""What the cards of the nodes say to a pod that waits: labels of cards, in HAMi's words, counted over all nodes; and the nodes that are nearest.

`reasons` gives one label a node, the rule that decides it. A pod of several containers, or one that names models, finds on a node cards that fail for
different reasons: these are asked for one by one, and only when somebody wants to know.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Nodes that are told of by name.
BEST = 3


@dataclass(frozen=True, slots=True)
class NodeCards:
    """Of one node that does not take the pod. `labels`: how many of its cards have each; 0 where it is the node as a whole."""

    node: str
    cards: int  #: of the kind that is asked for
    fitting: int  #: of them, those in whose way nothing is by themselves
    labels: Mapping[str, int]
    container: int = 0  #: the container that finds too little, init containers counted first

    def __str__(self) -> str:
        """As HAMi writes it: `1/8 CardInsufficientCore, 7/8 CardInsufficientMemory`."""
        return ", ".join(sorted(f"{count}/{self.cards} {label}" if count else label for label, count in self.labels.items()))


@dataclass(frozen=True, slots=True)
class CardReasons:
    """Of all nodes that the pod's other wishes allow, whatever else they have left."""

    nodes: int
    fitting: int  #: nodes whose cards would take it
    cards: int  #: of the other nodes
    labels: Mapping[str, int]  #: of these cards, how many have each label
    whole: Mapping[str, int]  #: nodes that fail as a whole, by label
    on: Mapping[str, int]  #: nodes with a card of each label, or that fail by it as a whole
    best: Sequence[NodeCards] = ()  #: the nearest first

    def headline(self) -> str:
        """One line."""
        line = f"the cards of {self.fitting} of {self.nodes} nodes take it"
        if self.labels:
            counts = sorted(self.labels.items(), key=lambda item: (-item[1], item[0]))
            whose = " on the others" if self.fitting else ""
            line += f"; of {self.cards} cards{whose} " + ", ".join(f"{count} {label}" for label, count in counts)
        if self.whole:
            line += "; " + ", ".join(f"{count} nodes {label}" for label, count in sorted(self.whole.items()))
        return line

    def document(self) -> dict[str, Any]:
        """As plain data: what `hbox why` and simulations show."""
        best = [
            {
                "node": one.node,
                "cards": one.cards,
                "fitting": one.fitting,
                "labels": dict(one.labels),
                "container": one.container,
                "said": str(one),
            }
            for one in self.best
        ]
        return {
            "nodes": self.nodes,
            "fitting": self.fitting,
            "cards": self.cards,
            "labels": dict(self.labels),
            "whole": dict(self.whole),
            "best": best,
            "said": self.headline(),
        }


def card_reasons(found: Sequence[NodeCards], fitting: int) -> CardReasons:
    """`found`: the nodes that do not take it; `fitting`: how many do."""
    labels: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    on: Counter[str] = Counter()
    for one in found:
        for label, count in one.labels.items():
            (labels if count else whole)[label] += count or 1
            on[label] += 1
    best = sorted(
        found, key=lambda one: (-one.fitting, 0 in one.labels.values(), -one.container, sum(one.labels.values()), one.node)
    )
    cards = sum(one.cards for one in found)
    return CardReasons(len(found) + fitting, fitting, cards, dict(labels), dict(whole), dict(on), tuple(best[:BEST]))
