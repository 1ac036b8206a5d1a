"""Sizes of fixed partitions of NVIDIA's cards by their names, and the labels of GPU feature discovery that describe partitions and replicas."""

import re
from functools import lru_cache

from .nvidia import GPU

#: Parts of a card: a multiple of 4, of 7 and of all numbers of replicas up to 16. Sums of 100,000 cards fit into 64 bits.
CARD = 720_720 << 20

#: `1g.10gb`; `1c.3g.20gb` is one of the compute instances that share a `3g.20gb`. What follows (`.me`, `.shared`) changes no size.
_PROFILE = re.compile(r"(?:([1-7])c\.)?([1-7])g\.([0-9]{1,4})gb(?:\.[a-z.]{1,20})?")

#: Compute slices and memory (GB) of partitions of cards with four slices (NVIDIA MIG user guide: A30, RTX PRO 6000). A `1g.24gb` of another card has a quarter
#: of its memory.
_OF_FOUR = frozenset({(1, 6), (2, 12), (4, 24), (1, 24), (2, 48), (4, 96)})

#: Resources that count cards, or what the plugin offers under their name; it may give replicas of cards the second one.
UNITS = (GPU, f"{GPU}.shared")
#: Labels of GPU feature discovery, in addition to `<resource>.replicas`. With `mig.strategy=single` count and product describe the partitions
#: (`A100-SXM4-40GB-MIG-1g.5gb`).
COUNT, REPLICAS, SHARING = f"{GPU}.count", f"{GPU}.replicas", f"{GPU}.sharing-strategy"
PRODUCT, STRATEGY = f"{GPU}.product", "nvidia.com/mig.strategy"
_MIG_PRODUCT = re.compile(r"-MIG-([0-9a-z.]+)(?:-SHARED)?$")


@lru_cache(maxsize=1024)
def size_of(profile: str) -> int:
    """Parts of a card (`CARD` = the whole) of a partition with this profile; a whole card if the name states no size."""
    found = _PROFILE.fullmatch(profile)
    if found is None:
        return CARD
    compute, slices, memory_gb = (int(number or 0) for number in found.groups())
    of = 4 if (slices, memory_gb) in _OF_FOUR else 7
    return min(CARD, min(compute or slices, slices) * CARD // of)


def profile_of(product: str) -> str:
    """The profile of the partitions that a node offers as cards, from its product label; "" if it offers whole cards."""
    found = _MIG_PRODUCT.search(product)
    return found[1] if found else ""
