"""Choice of a node's cards for a pod that communicates over RDMA: cards with an adapter of their own below the same host bridge.

Sets of cards that can have an adapter each, all different, are the independent sets of a matroid (transversal matroid: Edmonds and Fulkerson 1965). So the
cards are examined in their order, and a card is taken if an augmenting path gives it an adapter in addition to those of the cards taken before: no other choice
has more of them, and none with as many comes earlier in the order. The rest is filled with cards that share a near adapter, then with all others.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from hbox_common.model.devices import NearAdapters, PathKind

#: By position on the node; None: unknown.
Adapters: TypeAlias = tuple[NearAdapters | None, ...]

#: Penalty of a card that shares its near adapter with another card of the pod, and of one without; a card with its own has 0.
_SHARED, _FAR = 0.5, 1.0
_FARTHEST = len(PathKind)
_RANK = {kind: rank for rank, kind in enumerate(PathKind)}


@lru_cache(maxsize=65_536)
def ordered(
    adapters: Adapters, open_: tuple[int, ...], elsewhere: frozenset[int], used: frozenset[int], *, cards: int, pods: int
) -> tuple[int, ...]:
    """The cards that so many pods with `cards` each get, pod by pod; then all other usable ones.

    open_: usable positions, in the order without adapters; elsewhere: those outside the NUMA nodes to which the kubelet aligns the pod, last whatever their
    adapters, since the kubelet would allocate other cards; used: positions in use, whose near adapters come last among equals.
    """
    taken = {
        name for position in used if (name_of := adapters[position]) is not None and name_of.near for name in name_of.names
    }
    left = sorted(open_, key=lambda position: (position in elsewhere, not taken.isdisjoint(_near(adapters, position))))
    found: list[int] = []
    for _ in range(pods):
        own = _choose(adapters, left, elsewhere, cards)
        found += own
        left = [position for position in left if position not in own]
    return (*found, *left)


def missing(adapters: Adapters, chosen: Sequence[int]) -> float:
    """How far from an adapter of its own each: 0 all have one, 1 none has any that is near."""
    own = len(_matched(adapters, chosen))
    near = sum(bool(_near(adapters, position)) for position in chosen)
    return (_SHARED * (near - own) + _FAR * (len(chosen) - near)) / len(chosen) if chosen else 0.0


def _choose(adapters: Adapters, left: Sequence[int], elsewhere: Collection[int], cards: int) -> list[int]:
    here = [position for position in left if position not in elsewhere]
    chosen: list[int] = []
    holder: dict[str, int] = {}
    for group in (here, [position for position in left if position in elsewhere]):
        for position in group:
            if len(chosen) < cards and _augment(adapters, position, holder, set()):
                chosen.append(position)
        rest = [position for position in group if position not in chosen]
        rest.sort(key=lambda position: _rank(adapters[position]))
        chosen += rest[: cards - len(chosen)]
    return chosen


def _matched(adapters: Adapters, positions: Sequence[int]) -> Mapping[str, int]:
    """As many different near adapters as can be, and whose each is."""
    holder: dict[str, int] = {}
    for position in positions:
        _augment(adapters, position, holder, set())
    return holder


def _augment(adapters: Adapters, position: int, holder: dict[str, int], tried: set[str]) -> bool:
    """Gives the card an adapter, where need be by giving others another one."""
    for name in _near(adapters, position):
        if name in tried:
            continue
        tried.add(name)
        if name not in holder or _augment(adapters, holder[name], holder, tried):
            holder[name] = position
            return True
    return False


def _near(adapters: Adapters, position: int) -> tuple[str, ...]:
    found = adapters[position]
    return found.names if found is not None and found.near else ()


def _rank(found: NearAdapters | None) -> int:
    return _FARTHEST if found is None else _RANK[found.path]
