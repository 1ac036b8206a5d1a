"""The numbers of each node's cards in the database.

Claims have card ids (`CardId`); rows have a number for each card, so that older ledgers can read them. A card keeps its number even if its index on the node
changes, so that a unique constraint on numbers is one on cards. The number is the card's first index, unless another card has that number already.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hbox_common.model import CardId, NodeName
from hbox_common.model.devices import MAX_CARDS, number_in


class CardName(NamedTuple):
    node: NodeName
    number: int
    card: CardId


def subject_of(name: CardName) -> str:
    """The subject of its audit record."""
    return f"card {name.node}/{name.number}"


@dataclass(slots=True)
class CardNumbers:
    """The numbers of all nodes, and those that are not in the database yet (`take`)."""

    _number: dict[NodeName, dict[CardId, int]] = field(default_factory=dict)
    _card: dict[NodeName, dict[int, CardId]] = field(default_factory=dict)
    _new: list[CardName] = field(default_factory=list)

    def load(self, names: Iterable[CardName]) -> None:
        """Take over the rows of the database, oldest first."""
        for name in names:
            self._note(name)

    def card(self, node: NodeName, number: int) -> CardId | None:
        """The card of a number; None if it is an index from an older ledger whose card is still unknown."""
        found = self._card.get(node)
        return found.get(number) if found is not None else None

    def number(self, node: NodeName, card: CardId, index: int) -> int:
        """The number of a card. If it has none, it gets its index, or a number above all others if the index is unknown (-1) or another card's number."""
        if (known := number_in(card)) is not None:
            return known
        numbers = self._number.get(node)
        if numbers is not None and (found := numbers.get(card)) is not None:
            return found
        taken = self._card.get(node, {})
        number = index if index >= 0 and index not in taken else max((MAX_CARDS - 1, *taken)) + 1
        self._add(CardName(node, number, card))
        return number

    def take(self) -> list[CardName]:
        """The names added since the last call, to be written to the database."""
        new, self._new = self._new, []
        return new

    def give_back(self, names: Iterable[CardName]) -> None:
        """The names that `take` returned were not written: return them again."""
        self._new[:0] = names

    def rename(self, node: NodeName, number: int, card: CardId) -> None:
        """Assign the number to this card; before, its id was an index or a generated UUID. A card that has a number keeps it."""
        if card not in self._number.get(node, {}):
            self._add(CardName(node, number, card))

    def _add(self, name: CardName) -> None:
        self._note(name)
        self._new.append(name)

    def _note(self, name: CardName) -> None:
        self._number.setdefault(name.node, {})[name.card] = name.number
        self._card.setdefault(name.node, {})[name.number] = name.card
