"""Codes of nodes' card sets as small integers: results computed for one node apply to all nodes with the same code.

A node's cards are described twice: by all that they are but their ids (`set`), and with their ids (`ids`), which matter to pods that name cards.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from hbox_common.model import VENDORS, Card

#: The cards of a node in the order of their indices, and the node's device facts (`NodeState.device_facts`).
Described: TypeAlias = tuple[tuple[Card, ...], Mapping[str, str]]

#: Sharing modes in which amounts of cores, memory and shares decide whether a pod fits; "" = mode unknown.
_BY_AMOUNTS = ("", "hami-core", "mps")


#: Codes beyond those in use, before unused ones are removed: a node gets a new code whenever one of its figures changes.
SPARE = 4096


class CardSets:
    """Codes are handed out once and never again for others, so that what is kept by them never lies. Those that no node has any more are forgotten."""

    def __init__(self) -> None:
        self._codes: dict[object, int] = {}
        self._described: dict[int, Described] = {}
        self._next = 0
        self._most = SPARE
        self._naming: dict[str, tuple[int, ...]] = {}  #: codes with ids, by id; built on demand
        self._named = 0  #: codes before this one are in `_naming`
        self.kept: object = None  #: what others worked out by these codes
        self.codes((), {})  # what rows have before they are described: nothing, under 0

    def codes(self, cards: Sequence[Card], facts: Mapping[str, str]) -> tuple[int, int]:
        """The codes of these cards: without their ids, and with them. Whether they are well is in neither."""
        named = tuple(sorted(facts.items())) if facts else ()
        ids = tuple([card.uuid for card in cards])
        what = tuple([(c.index, c.model, c.memory_mib, c.shares, c.numa, c.kind, c.traits, c.adapters) for c in cards])
        code = self._code((what, named), cards, facts)
        return code, self._code((code, ids), cards, facts)

    def _code(self, key: object, cards: Sequence[Card], facts: Mapping[str, str]) -> int:
        found = self._codes.get(key)
        if found is None:
            found = self._codes[key] = self._next
            self._next += 1
            well = tuple([card if card.healthy else replace(card, healthy=True) for card in cards])
            self._described[found] = well, facts
        return found

    @property
    def full(self) -> bool:
        """Whether it is time to `forget`."""
        return len(self._described) > self._most

    def forget(self, used: Collection[int]) -> None:
        """All but these codes, and 0."""
        kept = {0, *used}
        self._codes = {key: code for key, code in self._codes.items() if code in kept}
        self._described = {code: cards for code, cards in self._described.items() if code in kept}
        self._most = 2 * len(self._described) + SPARE
        self._naming, self._named = {}, 0

    def naming(self, ids: Collection[str]) -> list[int]:
        """The codes with ids of cards that are among these."""
        for code in range(self._named, self._next):
            for card in self._described[code][0] if code in self._described else ():
                self._naming[card.uuid] = (*self._naming.get(card.uuid, ()), code)
        self._named = self._next
        return sorted({code for name in ids for code in self._naming.get(name, ())})

    def described(self, code: int) -> Described:
        """The cards of a code, all of them well, and their node's facts."""
        return self._described[code]

    @staticmethod
    def judged(cards: Sequence[Card]) -> bool:
        """Whether amounts alone do not decide whether a pod fits on these cards: they are of several kinds, have fixed profiles, are cordoned singly, or have
        vendor-specific rules."""
        first = cards[0].kind if cards else ""
        return any(
            card.kind != first
            or (
                card.traits is not None
                and (card.traits.mode not in _BY_AMOUNTS or card.traits.profiles or card.traits.cordoned)
            )
            for card in cards
        ) or (bool(first) and VENDORS.knows(first) and VENDORS.kind(first).always_fits)
