"""Ids of cards in claims, verdicts, annotations and messages. An id contains the UUID, which a card keeps when its plugin renumbers the node's cards.

`gpu:UUID` is a card. `mig:UUID` is a MIG instance that the plugin hands out as a card of its own (NVIDIA's strategies `single` and `mixed`); `Card.parent` is
the UUID of its card. An id of digits
alone is the plugin's index: older programs write it, and the scheduler uses it for a position on a node until it publishes the plan.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from ..ids import CardId

#: Maximum length of an id, in characters; the UUIDs of all vendors are shorter.
CARD_ID_BYTES = 512

#: Characters that an id keeps unescaped. No separator of annotations is among them.
_PLAIN = "._-@+=/~"
_CARD_ID = re.compile(r"(?:gpu|mig):[A-Za-z0-9._@+=/~%-]+")
_MIG = "MIG-"


@lru_cache(maxsize=262_144)
def card_id(uuid: str) -> CardId:
    """The id of the card with this UUID. Characters that annotations use as separators are percent-encoded."""
    kind = "mig" if uuid.startswith(_MIG) else "gpu"
    return CardId(f"{kind}:{quote(uuid, safe=_PLAIN)}")


@lru_cache(maxsize=4096)
def numbered(index: int) -> CardId:
    """The id of the card at an index, as older programs write it; valid only with one state of one node."""
    return CardId(str(index))


def number_in(card: CardId) -> int | None:
    """The index, if the id is an index alone; else None."""
    return int(card) if card.isascii() and card.isdecimal() and len(card) <= 5 else None


def is_card_id(text: str) -> bool:
    """Whether the text is a valid id: `gpu:UUID`, `mig:UUID`, or an index."""
    return len(text) <= CARD_ID_BYTES and (number_in(CardId(text)) is not None or _CARD_ID.fullmatch(text) is not None)


def is_mig(card: CardId) -> bool:
    """Whether the id is a MIG instance's."""
    return card.startswith("mig:")


def short_card(card: CardId) -> str:
    """The id for display: the UUID, or the index if the UUID is unknown."""
    return card.partition(":")[2] or card


def short_cards(cards: Iterable[CardId]) -> str:
    """Several ids for display, joined by commas."""
    return ", ".join(short_card(card) for card in cards)
