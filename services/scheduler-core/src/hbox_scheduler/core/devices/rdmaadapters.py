"""Which of a node's cards a pod takes that talks over RDMA: those with an adapter of their own below the same host bridge.

Sets of cards that can have an adapter each, all different, are the independent sets of a matroid (transversal matroid: Edmonds and Fulkerson 1965). So the
cards are gone through in their order, and each is taken for which an augmenting path gives it an adapter beside those that have theirs: no other choice has
more of them, and none with as many comes earlier in the order. What is still missing is made up of cards that share a near adapter, then of all others.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from hbox_common.model.devices import NearAdapters, PathKind

#: By position on the node; None: nobody knows.
Adapters: TypeAlias = tuple[NearAdapters | None, ...]

#: Of a card with a near adapter that another card of the pod has too, and of one without, beside 0 of one with its own.
_SHARED, _FAR = 0.5, 1.0
_FARTHEST = len(PathKind)
_RANK = {kind: rank for rank, kind in enumerate(PathKind)}


@lru_cache(maxsize=65_536)
def ordered(
    adapters: Adapters, open_: tuple[int, ...], elsewhere: frozenset[int], used: frozenset[int], *, cards: int, pods: int
) -> tuple[int, ...]:
    """The cards that so many pods with `cards` each take, pod by pod; then all other open ones.

    open_: positions that may be taken, in the order in which they would be without adapters; elsewhere: of them, those outside the NUMA nodes that the kubelet
    aligns the pod to, which come behind all others whatever their adapters are: it would give cards of these; used: positions on which somebody is, whose near
    adapters come last among equals."""
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
