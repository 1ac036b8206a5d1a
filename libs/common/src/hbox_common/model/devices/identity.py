"""Ids of cards of which nobody says which they are: a device plugin without a register says only how many a node has."""

from .cards import Card


def made_up_id(node: str, index: int) -> str:
    """What the inventory calls such a card, until the node's kubelet says better."""
    return f"{node}-{index}"


def made_up(node: str, card: Card) -> bool:
    """Whether the card has its id from us."""
    return card.uuid.startswith(f"{node}-") and card.uuid[len(node) + 1 :].isdecimal()
