"""Order in which a pod's cards are selected among the fitting ones: `hami.io/gpu-scheduler-policy`, one word or several (sources: hami-fit).

`binpack`, `spread` and `numa` are orders; several, separated by commas, apply one after the other. `mutex` and `topology-aware` are not orders: the first
excludes shared cards (`CardVendor.judge`), the second selects cards by their links (`linkscore`). Among cards that the policy ranks equal, the highest NUMA
node comes first, as in HAMi from v2.10, then the lowest index; where HAMi has several words, the highest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from .cards import Card
from .vendor import BINPACK, SPREAD

NUMA, MUTEX, TOPOLOGY = "numa", "mutex", "topology-aware"

#: Of Go's strconv.ParseBool, by which HAMi reads annotations.
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")

#: Maximum number of policies read from one annotation; five exist.
_MAX_NAMES = 16


@dataclass(frozen=True, slots=True)
class CardPolicy:
    """`orders` is empty if none is named: whole cards are then ordered by index, parts by the smallest remainder."""

    orders: tuple[str, ...] = ()
    mutex: bool = False  #: only unused cards
    topology: bool = False  #: by links
    chained: bool = False  #: written as several words, or as `numa`

    def order(self, *, whole: bool, numa_first: bool = False) -> Callable[[Card, float], tuple[float, ...]]:
        """The key to sort cards by, from a card and its score (the fuller, the higher): the lowest key is first.

        `numa_first`: the cards of one NUMA node must be consecutive (numa-bind).
        """
        orders = self.orders
        if not orders:
            fullest = 0.0 if whole else -1.0
            return lambda card, score: (-card.numa if numa_first else 0, fullest * score, card.index)
        if self.chained:
            if numa_first:
                orders = (NUMA, *(each for each in orders if each != NUMA))
            return lambda card, score: (*(_key(each, card, score) for each in orders), -card.index)
        # HAMi orders NUMA nodes upwards for binpack, and downwards for spread.
        first = (1 if orders[0] == BINPACK else -1) if numa_first else 0
        return lambda card, score: (first * card.numa, _key(orders[0], card, score), -card.numa, card.index)


@lru_cache(maxsize=1024)
def card_policy(text: str) -> CardPolicy:
    """The policy that is written. Words that HAMi does not know count as none of these: it spreads then."""
    names = [word.strip().lower() for word in text.split(",", _MAX_NAMES)[:_MAX_NAMES]]
    if not any(names):
        return CardPolicy()
    orders = tuple(dict.fromkeys(word for word in names if word in (BINPACK, SPREAD, NUMA))) or (SPREAD,)
    return CardPolicy(orders, MUTEX in names, TOPOLOGY in names, chained=len(names) > 1 or names == [NUMA])


def is_true(text: str, *, unsaid: bool = False) -> bool:
    """Whether an annotation is true, as parsed by HAMi; `unsaid` if it is neither true nor false."""
    return text.strip() in _TRUE or (unsaid and text.strip() not in _FALSE)


def _key(order: str, card: Card, score: float) -> float:
    if order == BINPACK:
        return -score
    return score if order == SPREAD else -float(card.numa)
