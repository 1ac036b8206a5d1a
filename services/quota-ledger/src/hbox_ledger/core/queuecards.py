"""Cards of queues, for metrics: what each uses, with all queues below it, and what its rules give it. Cards of all vendors, models and pools count together.

The number of queues that are reported by name is bounded. The choice depends on nothing but the tree, so that series do not come and go with usage.
"""

from collections.abc import Mapping

from hbox_common.model import DEFAULT_QUEUE, OFFLINE, VENDORS, QueueName, QueueTree, Resources, by_pool, in_pool, is_model
from hbox_common.model.cardparts import in_parts, parts_of_card
from hbox_common.model.devices.partitions import CARD


def named(tree: QueueTree, most: int) -> frozenset[QueueName]:
    """The queues that are reported by name: those nearest to the root, then by name."""
    names = tree.keys() | {DEFAULT_QUEUE}
    if len(names) <= most:
        return frozenset(names)
    return frozenset(sorted(names, key=lambda name: (len(tree.path(name)), name))[:most])


def cards_of_queue(tree: QueueTree, name: QueueName) -> dict[str, float]:
    """Cards by state. A guarantee, a deserved amount or a limit that the queue does not have is left out; it borrows only if it deserves some."""
    rights, deserved = tree.rights(name), _allowed(tree.rights(name).deserved)
    rules = {"guaranteed": _allowed(rights.guarantee), "deserved": deserved, "limit": _allowed(tree.amounts(name).capability)}
    in_use = cards_in_use(tree.used(name), deserved)
    if not deserved:
        del in_use["borrowed"]
    return in_use | {state: sum(by_cards.values()) / CARD for state, by_cards in rules.items() if by_cards}


def cards_in_use(amounts: Mapping[str, int], deserved: Mapping[str, int]) -> dict[str, float]:
    """Cards among amounts in use: `used`, the part of them beyond `deserved` (parts of cards by `in_parts`' names), and those of offline work."""
    used = {cards: parts for cards, parts in in_parts(amounts).items() if parts}
    offline = {cards: parts for cards, parts in used.items() if by_pool(cards)[1] == OFFLINE}
    borrowed = {cards: max(parts - deserved.get(cards, 0), 0) for cards, parts in used.items() if cards not in offline}
    return {
        "used": (sum(used.values()) - sum(offline.values())) / CARD,
        "borrowed": sum(borrowed.values()) / CARD,
        "offline": sum(offline.values()) / CARD,
    }


def used_by_borrowers(tree: QueueTree, used: Mapping[QueueName, Resources]) -> dict[str, float]:
    """Cards that other queues than the owners use, by pool that has owners. Empty while no queue lends a pool."""
    found: dict[str, float] = {}
    for name, amounts in used.items() if tree.lends else ():
        for cards, parts in in_parts(amounts).items():
            pool = by_pool(cards)[1]
            if parts and tree.borrows(name, pool):
                found[pool] = found.get(pool, 0.0) + parts / CARD
    return found


def lent_by(tree: QueueTree, name: QueueName, borrowed: Mapping[str, float]) -> float | None:
    """Cards in use by others in pools that the queue owns and lends; None if it lends no pool. `borrowed`: of `used_by_borrowers`."""
    queue = tree.get(name)
    pools = [pool for pool in queue.lent_pools if tree.owns(name, pool)] if queue is not None else []
    return sum(borrowed.get(pool, 0.0) for pool in pools) if pools else None


def _allowed(amounts: Mapping[str, int]) -> dict[str, int]:
    """Cards that a rule names, in parts of a card, by the resource that counts them in its pool. Models count where their sum is not named, and rules for
    offline work not at all."""
    found: dict[str, int] = {}
    for name, units in amounts.items():
        resource, pool = by_pool(name)
        cards, parts = (in_pool(VENDORS.owner(resource), pool), CARD) if is_model(resource) else parts_of_card(name)
        if cards and pool != OFFLINE and not (is_model(resource) and cards in amounts):
            found[cards] = found.get(cards, 0) + units * parts
    return found
