"""The numbers under which the database knows the cards of each node.

Claims name cards (`CardId`); rows hold a number for each, as those did that older ledgers wrote, so that these still read them. A number is its card's for
good, whatever index the node gives to the card later, and so what is unique for a number is unique for a card. Mostly it is the index that the card had first.
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
    """Of its record in the audit."""
    return f"card {name.node}/{name.number}"


@dataclass(slots=True)
class CardNumbers:
    """`news`: what the database does not know yet; the reader empties it."""

    _number: dict[NodeName, dict[CardId, int]] = field(default_factory=dict)
    _card: dict[NodeName, dict[int, CardId]] = field(default_factory=dict)
    news: list[CardName] = field(default_factory=list)

    def load(self, names: Iterable[CardName]) -> None:
        for name in names:
            self._note(name)

    def card(self, node: NodeName, number: int) -> CardId | None:
        """Which card the number stands for; None where that was never known: an older ledger's index."""
        found = self._card.get(node)
        return found.get(number) if found is not None else None

    def number(self, node: NodeName, card: CardId, index: int) -> int:
        """The number of a card; where it has none yet, its index becomes that, unless it is another card's."""
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
        news, self.news = self.news, []
        return news

    def rename(self, node: NodeName, number: int, card: CardId) -> None:
        """The number is known to be this card's: before it was an index, or a name that the inventory had made. A card that has a number keeps that."""
        if card not in self._number.get(node, {}):
            self._add(CardName(node, number, card))

    def _add(self, name: CardName) -> None:
        self._note(name)
        self.news.append(name)

    def _note(self, name: CardName) -> None:
        self._number.setdefault(name.node, {})[name.card] = name.number
        self._card.setdefault(name.node, {})[name.number] = name.card
