"""Cards in use where pods ask for fixed partitions of cards (such as MIG's `mig-1g.10gb`), which are resources of their own.

A partition is a part of a card by its compute slices, which its name states: 1/7 for `1g.10gb`, 3/7 for `3g.40gb`. Amounts are in parts of a card, of which a
card has `CARD`, so that sums are exact. A name that states no size, and a replica of unknown size (`gpu.shared`), counts like a whole card.

Limits of queues count partitions by their names, before a pod has a node. Cards that the plugin offers several times under their plain name (replicas), or
whose name means partitions (`mig.strategy=single`), count as parts once the pod has a node: its claim notes their share, such as `<cards>:1/4`, by the
labels of the node at that time (`share_on`), so that later labels change nothing. What is shown of a node follows its present labels (`parts_on`).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil

from .devices import MAX_CARDS, VENDORS
from .devices.partitions import CARD, COUNT, PRODUCT, REPLICAS, SHARING, STRATEGY, UNITS, profile_of, size_of
from .node import NodeState
from .pools import by_pool, in_pool
from .resources import Resources

#: The resource that counts cards, of which units may be parts; and what names of shares begin with.
GPU = UNITS[0]
_SHARES = f"{GPU}:"
_SHARE = re.compile(rf"({re.escape(GPU)}):([1-9][0-9]{{0,3}})/([1-9][0-9]{{0,5}})")
#: The share of cards that are whole.
WHOLE = f"{_SHARES}1/1"


@lru_cache(maxsize=4096)
def parts_of_card(resource: str) -> tuple[str, int]:
    """The resource that counts the cards of which this one counts partitions, or whole cards, in the same pool, and the parts of a card of one unit; ("", 0)
    for other resources."""
    name, pool = by_pool(resource)
    if name in VENDORS:
        return resource, CARD
    if (share := _SHARE.fullmatch(name)) is not None:
        # One unit of the cards counts as a whole card already.
        return in_pool(share[1], pool), min(CARD * int(share[2]) // int(share[3]), CARD) - CARD
    if name.startswith(VENDORS.partition_prefixes):
        prefix = next(prefix for prefix in VENDORS.partition_prefixes if name.startswith(prefix))
        return in_pool(VENDORS.partitioned[prefix], pool), size_of(name.removeprefix(prefix))
    return (in_pool(VENDORS.partitioned[name], pool), CARD) if name in VENDORS.partitioned else ("", 0)


def has_partitions(amounts: Iterable[str]) -> bool:
    """Whether one of these resources counts partitions or replicas of cards."""
    names = VENDORS.partition_names
    return any(name.startswith(names) for name in amounts)


def in_parts(amounts: Mapping[str, int], without: Collection[str] = ()) -> Resources:
    """Cards and partitions among these amounts, in parts of a card, by the resource that counts the cards. `without`: partitions that do not count."""
    found: Resources = {}
    for name, units in amounts.items():
        cards, parts = parts_of_card(name)
        if cards and (cards == name or name not in without):
            found[cards] = found.get(cards, 0) + units * parts
    return found


def is_share(resource: str) -> bool:
    """Whether this counts units of cards that are only a part of a card each."""
    return resource.startswith(_SHARES)


def part_of_share(share: str) -> int:
    """The parts of a card that one unit is."""
    return CARD + parts_of_card(share)[1]


def cards_of_share(share: str) -> str:
    """The resource that counts the cards."""
    return share.partition(":")[0]


def share_resource(part: Fraction) -> str:
    """The name under which units of a vendor's cards count that are this part of a card each."""
    return f"{_SHARES}{part.numerator}/{part.denominator}"


def share_on(node: NodeState) -> str:
    """`share_resource` of the node's cards; "" if a unit is a whole card, or the node has a register of HAMi."""
    labels = node.labels
    if (REPLICAS not in labels and labels.get(STRATEGY) != "single") or node.registered or not node.allocatable.get(GPU):
        return ""
    single = profile_of(labels.get(PRODUCT, "")) if labels.get(STRATEGY) == "single" else ""
    part = _part_on(node, GPU, single)
    return share_resource(part) if part < 1 else ""


def in_cards(amounts: Mapping[str, int]) -> dict[str, float]:
    """The amounts as people read them: cards in use with all their parts, and no shares. Partitions are listed by their own names, too."""
    if not has_partitions(amounts):
        return dict(amounts)
    shown: dict[str, float] = {name: units for name, units in amounts.items() if not is_share(name)}
    for name, parts in in_parts(amounts).items():
        shown[name] = number if (number := round(parts / CARD, 2)) % 1 else int(number)
    return shown


def cards_text(parts: int) -> str:
    """Parts of a card as a number of cards: `2`, `0.14`."""
    return f"{parts / CARD:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class PartsOnNode:
    """A node whose resources count parts of its cards: replicas (time slicing, MPS) or fixed partitions (MIG)."""

    parts: Mapping[str, Fraction]  #: of a card, for one unit of each resource that counts cards or parts of cards
    total: int  #: cards of the machine

    def held(self, requests: Mapping[str, int]) -> Fraction:
        """The cards that a pod on the node holds with these requests."""
        held = Fraction(0)
        for name, units in requests.items():
            part = self.parts.get(name)
            held += units * (Fraction(parts_of_card(name)[1], CARD) if part is None else part)
        return held


def parts_on(node: NodeState) -> PartsOnNode | None:
    """The node as one with parts of cards; None for a node whose cards are whole, or HAMi's. Labels that cannot be right count as absent."""
    if node.registered:
        return None
    labels = node.labels
    single = profile_of(labels.get(PRODUCT, "")) if labels.get(STRATEGY) == "single" else ""
    parts = {name: _part_on(node, name, single) for name in node.allocatable if parts_of_card(name)[0]}
    if all(part == 1 for part in parts.values()):
        return None
    offered = ceil(PartsOnNode(parts, 0).held(node.allocatable))
    # With the single strategy the label counts partitions.
    return PartsOnNode(parts, offered if single else max(offered, _number(labels.get(COUNT, ""))))


def _part_on(node: NodeState, name: str, single: str) -> Fraction:
    """The part of a card that one unit of a resource is on this node. `single`: the profile of its partitions where they have the name of cards."""
    part = Fraction(size_of(single) if single and name in UNITS else parts_of_card(name)[1], CARD)
    replicas = _number(node.labels.get(f"{name.removesuffix('.shared')}.replicas", ""))
    if node.labels.get(SHARING) == "none" or replicas < 2 or node.allocatable[name] % replicas:
        return part
    return part / replicas


def _number(label: str) -> int:
    """The value of a label that counts cards or replicas of a card; 0 if it is no such number."""
    return int(label) if label.isascii() and label.isdecimal() and len(label) < 5 and int(label) <= MAX_CARDS else 0
