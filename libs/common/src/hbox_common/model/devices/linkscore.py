"""How well the cards of a node are linked, and the cards that are chosen for it (sources: hami-links).

HAMi's plugin gives each pair of cards a score: 10 to 60 by their way over PCIe, 100 for each NVLink between them. Of the cards that fit, a container that asks
for several gets those whose pairs have the highest sum; one that asks for one gets the card with the lowest sum of pairs, so that good groups stay whole.

Sixteen cards have 12,870 groups of eight, which is too many to look at for each node. So equal cards are looked at once: cards are of one class where
exchanging them changes no score, and of a class only how many are taken matters: all cards of an NVSwitch are one class. What is left is searched in depth with
a bound on what a group can still reach, starting from a good group that is found by exchanging cards. After `STEPS` steps the best group so far is taken: the
matrices that need more are none of a machine. Answers are kept by the matrix, which equal nodes share.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from .cards import Card

#: Of the annotation: somewhat more than all annotations of a node may have together, by Kubernetes.
_CHARS = 384 * 1024

#: Above the score of any real pair: 18 NVLinks are 1800.
MAX_SCORE = 100_000

#: More linked cards than a node has: of more nothing is read, so that no annotation makes a search long.
_CARDS = 64

#: Steps of one search, each about a microsecond per card.
STEPS = 300

#: A score for each pair, alike in both directions, 0 on the diagonal.
Matrix: TypeAlias = tuple[tuple[int, ...], ...]


def linked(cards: tuple[Card, ...], text: str) -> tuple[Card, ...]:
    """The cards with `links` from the annotation: `[{"uuid": u, "score": {u2: 100}}]`.

    A pair whose two directions differ counts 0, as does a missing one. If the text cannot be read or is empty, the cards are unchanged.
    """
    if not text or len(text) > _CHARS or len(cards) > _CARDS:
        return cards
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return cards
    scores: dict[str, Mapping[str, object]] = {}
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("uuid"), str) and isinstance(entry.get("score"), dict):
            scores[entry["uuid"]] = entry["score"]
    ordered = sorted(cards, key=lambda card: card.index)
    rows = {one.uuid: tuple([_pair(scores, one.uuid, other.uuid) for other in ordered]) for one in ordered}
    if not any(any(row) for row in rows.values()):
        return cards
    return tuple(replace(card, traits=replace(card.effective_traits, links=rows[card.uuid])) for card in cards)


def chosen(cards: Sequence[Card], candidates: Sequence[Card], count: int) -> tuple[int, ...]:
    """Places in `candidates` of the `count` to take, `candidates` having more than that; of equal groups the one that comes first.

    `cards`: all of their kind on the node, by index, as `CardTraits.links` counts them.
    """
    place = {card.index: at for at, card in enumerate(cards)}
    at = [place[card.index] for card in candidates]
    rows = [card.effective_traits.links for card in candidates]
    matrix = tuple(tuple([_score(row, to) if to != own else 0 for to in at]) for own, row in zip(at, rows, strict=True))
    return _chosen(matrix, count)


@lru_cache(maxsize=4096)
def _chosen(matrix: Matrix, count: int) -> tuple[int, ...]:
    return (farthest(matrix),) if count == 1 else nearest(matrix, count)


def farthest(matrix: Matrix) -> int:
    """The place of the card with the lowest sum of scores; of equal ones the first."""
    sums = [sum(row) for row in matrix]
    return sums.index(min(sums))


def nearest(matrix: Matrix, count: int) -> tuple[int, ...]:
    """The places of the `count` cards whose pairs have the highest sum, in order; of equal groups the one that comes first, place by place."""
    size = len(matrix)
    if count >= size:
        return tuple(range(size))
    return _Search(matrix, count).best()


class _Search:
    """Groups in the order of their places, deep first. Of a class the cards that come first are taken first: others of it are the same group again."""

    def __init__(self, matrix: Matrix, count: int) -> None:
        self.matrix, self.count, self.size = matrix, count, len(matrix)
        self.highest = max(max(row) for row in matrix)
        self.classes = _classes(matrix)
        self.found = _exchanged(matrix, count)
        self.worth = worth(matrix, self.found)
        self.steps = STEPS
        self.reached = False  #: whether `found` came of the search: only then is it the first of its worth

    def best(self) -> tuple[int, ...]:
        self._deeper((), 0, 0, [0] * self.size, frozenset())
        return self.found

    def _deeper(self, group: tuple[int, ...], worth: int, start: int, to_group: list[int], passed: frozenset[int]) -> None:
        """`to_group`: each card's sum of scores to the group. `passed`: classes of which a card was passed over."""
        left = self.count - len(group)
        if left == 0:
            if worth > self.worth or not self.reached:
                self.found, self.worth, self.reached = group, worth, True
            return
        for place in range(start, self.size - left + 1):
            if self.steps <= 0:
                return
            if self.classes[place] in passed:
                continue
            self.steps -= 1
            if not self._can_reach(worth, place, left, to_group):
                return
            row = self.matrix[place]
            after = [a + b for a, b in zip(to_group, row, strict=True)]
            self._deeper((*group, place), worth + to_group[place], place + 1, after, passed)
            passed = passed | {self.classes[place]}

    def _can_reach(self, worth: int, start: int, left: int, to_group: list[int]) -> bool:
        """Whether a group of this worth with `left` more cards, from `start` on, can be better than the best; equal where that one was not met yet."""
        most = worth + sum(sorted(to_group[start:])[-left:]) + self.highest * (left * (left - 1) // 2)
        return most > self.worth or (most == self.worth and not self.reached)


def _classes(matrix: Matrix) -> list[int]:
    """The class of each place: that of the first place with which it can be exchanged."""
    classes: list[int] = []
    for place, row in enumerate(matrix):
        for first in dict.fromkeys(classes):
            other = matrix[first]
            if all(a == b for at, (a, b) in enumerate(zip(row, other, strict=True)) if at not in (first, place)):
                classes.append(first)
                break
        else:
            classes.append(place)
    return classes


def _exchanged(matrix: Matrix, count: int) -> tuple[int, ...]:
    """A good group: the best linked card and those that are linked best to what is taken, then exchanged one by one while that helps."""
    size = len(matrix)
    sums = [sum(row) for row in matrix]
    group = [sums.index(max(sums))]
    to_group = list(matrix[group[0]])
    while len(group) < count:
        best = max((to_group[place], -place) for place in range(size) if place not in group)
        group.append(-best[1])
        to_group = [a + b for a, b in zip(to_group, matrix[group[-1]], strict=True)]
    for _ in range(size):
        gain, out, into = max(
            (to_group[into] - matrix[out][into] - to_group[out], -out, -into)
            for out in group
            for into in range(size)
            if into not in group
        )
        if gain <= 0:
            break
        group[group.index(-out)] = -into
        to_group = [t - o + i for t, o, i in zip(to_group, matrix[-out], matrix[-into], strict=True)]
    return tuple(sorted(group))


def worth(matrix: Matrix, group: Sequence[int]) -> int:
    return sum(matrix[a][b] for at, a in enumerate(group) for b in group[at + 1 :])


def _pair(scores: Mapping[str, Mapping[str, object]], one: str, other: str) -> int:
    there, back = scores.get(one, {}).get(other), scores.get(other, {}).get(one)
    known = type(there) is int and type(back) is int and there == back
    return min(max(there, 0), MAX_SCORE) if known and one != other and isinstance(there, int) else 0


def _score(row: Sequence[int], to: int) -> int:
    return row[to] if to < len(row) else 0
