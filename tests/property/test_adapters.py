"""Which cards a pod takes that talks over RDMA, against trying all choices."""

from itertools import combinations, permutations

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model.devices import NearAdapters, PathKind
from hbox_scheduler.core.devices.rdmaadapters import Adapters, missing, ordered

from ..searching import examples

CARDS = 6
#: Mostly near ones: else few draws have cards that want the same adapter.
KINDS = st.sampled_from([PathKind.PIX, PathKind.PIX, PathKind.PIX, PathKind.PXB, PathKind.NODE, PathKind.SYS, None])


@st.composite
def nodes(draw: st.DrawFn) -> Adapters:
    found: list[NearAdapters | None] = []
    for _ in range(CARDS):
        kind = draw(KINDS)
        own = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=2, unique=True)) if kind is not PathKind.SYS else []
        found.append(None if kind is None else NearAdapters(kind, tuple(own)))
    return tuple(found)


SETS = st.sets(st.integers(0, CARDS - 1)).map(frozenset)


def near(adapters: Adapters, card: int) -> set[str]:
    one = adapters[card]
    return set(one.names) if one is not None and one.path in ("PIX", "PXB") else set()


def rails(adapters: Adapters, cards: tuple[int, ...]) -> int:
    """As many cards as can have an adapter each, all different: by trying every order of cards, each taking what it can."""
    best = 0
    for some in range(len(cards), 0, -1):
        for chosen in combinations(cards, some):
            if any(assigned(adapters, chosen, ())):
                return some
    return best


def assigned(adapters: Adapters, cards: tuple[int, ...], taken: tuple[str, ...]) -> list[bool]:
    if not cards:
        return [True]
    return [
        True for name in near(adapters, cards[0]) if name not in taken and any(assigned(adapters, cards[1:], (*taken, name)))
    ]


def far(adapters: Adapters, card: int) -> int:
    one = adapters[card]
    return 9 if one is None else [*PathKind].index(one.path)


def worth(adapters: Adapters, cards: tuple[int, ...]) -> tuple[int, int, list[int]]:
    """More rails, then more cards with anything near, then nearer ones."""
    without = sorted(far(adapters, card) for card in cards)
    return -rails(adapters, cards), -sum(bool(near(adapters, card)) for card in cards), without


@examples(400)
@given(nodes(), st.permutations(range(CARDS)), st.integers(1, CARDS), SETS, st.integers(1, 4))
def test_no_other_choice_has_more_rails(adapters: Adapters, order: list[int], many: int, used: frozenset[int], k: int) -> None:
    open_ = tuple(order[:many])
    k = min(k, many)
    chosen = ordered(adapters, open_, frozenset(), used, cards=k, pods=1)[:k]
    assert len(set(chosen)) == k
    best = min(worth(adapters, some) for some in combinations(open_, k))
    assert worth(adapters, chosen)[:2] == best[:2]


@examples(300)
@given(nodes(), st.permutations(range(CARDS)), SETS, SETS, st.integers(1, 3), st.integers(1, 2))
def test_all_open_cards_are_there_once_and_those_of_other_numa_nodes_come_last(
    adapters: Adapters, order: list[int], elsewhere: frozenset[int], used: frozenset[int], k: int, pods: int
) -> None:
    found = ordered(adapters, tuple(order), elsewhere, used, cards=k, pods=pods)
    assert sorted(found) == sorted(order)
    here = CARDS - len(elsewhere)
    assert len(set(found[:k]) - elsewhere) == min(k, here), (
        "what the kubelet would not give is taken where nothing else is left"
    )


@examples(300)
@given(nodes(), st.permutations(range(CARDS)), st.integers(1, 3))
def test_without_a_reason_the_order_stands(adapters: Adapters, order: list[int], k: int) -> None:
    """Of choices with an adapter for every card, the one that comes first in the order."""
    chosen = ordered(adapters, tuple(order), frozenset(), frozenset(), cards=k, pods=1)[:k]
    full = [some for some in combinations(order, k) if rails(adapters, some) == k]
    if full:
        place = {card: number for number, card in enumerate(order)}
        assert sorted(place[card] for card in chosen) == min(sorted(place[card] for card in some) for some in full)
    unknown: Adapters = (None,) * CARDS
    assert ordered(unknown, tuple(order), frozenset(), frozenset(), cards=k, pods=1) == tuple(order)


@given(nodes(), st.permutations(range(CARDS)), st.integers(1, CARDS))
def test_what_is_missing_is_counted_card_by_card(adapters: Adapters, order: list[int], k: int) -> None:
    cards = tuple(order[:k])
    own, some = rails(adapters, cards), sum(bool(near(adapters, card)) for card in cards)
    assert missing(adapters, cards) == ((some - own) / 2 + k - some) / k
    assert {missing(adapters, one) for one in permutations(cards[:3])} == {missing(adapters, cards[:3])}
