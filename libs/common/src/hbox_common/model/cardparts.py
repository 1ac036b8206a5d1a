"""Cards in use where pods ask for fixed partitions of cards (`nvidia.com/mig-1g.10gb`), which are resources of their own.

A partition is a part of a card by its compute slices, which its name states: 1/7 for `1g.10gb`, 3/7 for `3g.40gb`. Amounts are in parts of a card, of which a
card has `CARD`, so that sums are exact. A name that states no size, and a replica of unknown size (`nvidia.com/gpu.shared`), counts like a whole card.
"""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from .devices import VENDORS
from .pools import by_pool, in_pool
from .resources import Resources

#: Parts of a card: whole for sevenths and for quarters.
CARD = 28

#: `1g.10gb`; `1c.3g.20gb` is one of the compute instances that share a `3g.20gb`. What follows (`.me`, `.shared`) changes no size.
_PROFILE = re.compile(r"(?:([1-7])c\.)?([1-7])g\.([0-9]{1,4})gb(?:\.[a-z.]{1,20})?")

#: Compute slices and memory (GB) of partitions of cards with four slices (NVIDIA MIG user guide: A30, RTX PRO 6000). A `1g.24gb` of another card has a quarter
#: of its memory.
_OF_FOUR = frozenset({(1, 6), (2, 12), (4, 24), (1, 24), (2, 48), (4, 96)})


def parts_of_card(resource: str) -> tuple[str, int]:
    """The resource that counts the cards of which this one counts partitions, or whole cards, in the same pool, and the parts of a card of one unit; ("", 0)
    for other resources."""
    name, pool = by_pool(resource)
    if name in VENDORS:
        return resource, CARD
    if name.startswith(VENDORS.partition_prefixes):
        prefix = next(prefix for prefix in VENDORS.partition_prefixes if name.startswith(prefix))
        return in_pool(VENDORS.partitioned[prefix], pool), _size(name.removeprefix(prefix))
    return (in_pool(VENDORS.partitioned[name], pool), CARD) if name in VENDORS.partitioned else ("", 0)


@lru_cache(maxsize=1024)
def _size(profile: str) -> int:
    found = _PROFILE.fullmatch(profile)
    if found is None:
        return CARD
    compute, slices, memory_gb = (int(number or 0) for number in found.groups())
    of = 4 if (slices, memory_gb) in _OF_FOUR else 7
    return min(CARD, min(compute or slices, slices) * CARD // of)


def has_partitions(amounts: Collection[str]) -> bool:
    """Whether one of these resources counts partitions of cards."""
    return any(parts_of_card(name)[0] not in ("", name) for name in amounts)


def in_parts(amounts: Mapping[str, int], without: Collection[str] = ()) -> Resources:
    """Cards and partitions among these amounts, in parts of a card, by the resource that counts the cards. `without`: partitions that do not count."""
    found: Resources = {}
    for name, units in amounts.items():
        cards, parts = parts_of_card(name)
        if cards and (cards == name or name not in without):
            found[cards] = found.get(cards, 0) + units * parts
    return found


def cards_text(parts: int) -> str:
    """Parts of a card as a number of cards: `2`, `0.14`."""
    return f"{parts / CARD:.2f}".rstrip("0").rstrip(".")
