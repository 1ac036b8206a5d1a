"""What a card is called in claims, verdicts, annotations and messages: by its UUID, which stays with it when its plugin numbers the node's cards anew.

`gpu:UUID` is a card; `mig:UUID` an instance of one that its plugin hands out as a card of its own (NVIDIA's strategies `single` and `mixed`). Digits alone
are the plugin's number: what programs from before wrote, and what a place is called inside one state of one node, where it is named on the way out.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from ..ids import CardId

#: Of an id: what no vendor's UUID is longer than.
CARD_ID_BYTES = 512

#: Separators of annotations are none of these.
_PLAIN = "._-@+=/~"
_CARD_ID = re.compile(r"(?:gpu|mig):[A-Za-z0-9._@+=/~%-]+")
_MIG = "MIG-"


@lru_cache(maxsize=262_144)
def card_id(uuid: str) -> CardId:
    """The id of the card with this UUID, in whatever form its vendor writes it."""
    kind = "mig" if uuid.startswith(_MIG) else "gpu"
    return CardId(f"{kind}:{quote(uuid, safe=_PLAIN)}")


def numbered(index: int) -> CardId:
    """The name of a place in one state of one node, and of a card in what older programs wrote."""
    return CardId(str(index))


def number_in(card: CardId) -> int | None:
    """The number where the name is no more than one."""
    return int(card) if card.isascii() and card.isdecimal() and len(card) <= 5 else None


def is_card_id(text: str) -> bool:
    """Whether a card can be called so, now or by an older program."""
    return len(text) <= CARD_ID_BYTES and (number_in(CardId(text)) is not None or _CARD_ID.fullmatch(text) is not None)


def short_card(card: CardId) -> str:
    """For people: the UUID alone, or `3` where no more is known."""
    return card.partition(":")[2] or card


def in_words(cards: Iterable[CardId]) -> str:
    """For people: several, joined by commas."""
    return ", ".join(short_card(card) for card in cards)
