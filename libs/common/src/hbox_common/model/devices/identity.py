"""Ids of cards whose identity is unknown: a device plugin without a register reports only a node's number of cards."""

import re
from collections.abc import Collection

from .cards import Card

#: As Kubernetes has it: a domain, which has a dot, and a name.
_RESOURCE = re.compile(r"(?=[^/]{1,253}/[^/]{1,63}$)[a-z0-9-]+(\.[a-z0-9-]+)+/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_resource(text: str) -> bool:
    """Whether this can be the name of a resource of devices: DOMAIN/NAME."""
    return _RESOURCE.fullmatch(text) is not None


def made_up_id(node: str, index: int) -> str:
    """The inventory's id of such a card, until the node's kubelet reports the real one."""
    return f"{node}-{index}"


def made_up(node: str, card: Card, registered: Collection[str]) -> bool:
    """Whether HBox generated the card's id. `registered`: the kinds of the node's cards whose plugins report ids (`NodeState.registered`), in whatever form."""
    if card.kind in registered or not card.uuid.startswith(f"{node}-"):
        return False
    rest = card.uuid[len(node) + 1 :]
    by_model = "/" in card.kind and rest.startswith(f"{short_name(card.kind)}-")
    return rest.isdecimal() or by_model


def short_name(resource: str) -> str:
    """Prefix in ids of cards that are counted by model under this resource."""
    return resource.rpartition("/")[2]
