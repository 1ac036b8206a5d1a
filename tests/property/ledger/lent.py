"""What queues are guaranteed and others hold, counted from rows alone (S4)."""

from collections.abc import Iterable

from .cluster import CARDS, GPU, NODES, QUEUES
from .rows import ClaimRow

#: Queue, node and cards of one pod that nobody can take back.
NonPreemptible = tuple[str, str, int]


def non_preemptible(claims: Iterable[ClaimRow]) -> list[NonPreemptible]:
    return [(c.queue, c.node, c.requests.get(GPU, 0)) for c in claims if stands_firm(c.queue, preemptable=c.preemptable)]


def stands_firm(queue: str, *, preemptable: bool) -> bool:
    return not preemptable or all(name != queue or not rules.reclaimable for name, rules in QUEUES.items())


def owed(held: Iterable[NonPreemptible]) -> int:
    """Cards that queues are guaranteed beyond what they hold firm themselves."""
    here = list(held)

    def own(queue: str) -> int:
        return sum(cards for name, _, cards in here if name == queue) + sum(
            own(q.name) for q in QUEUES.values() if q.parent == queue
        )

    def still(queue: str) -> int:
        below = sum(still(q.name) for q in QUEUES.values() if q.parent == queue)
        return max(QUEUES[queue].guarantee.get(GPU, 0) - own(queue), below)  # type: ignore[index]

    return sum(still(queue.name) for queue in QUEUES.values() if not queue.parent)


def room(held: Iterable[NonPreemptible]) -> int:
    """Cards that are free, or that could be taken back."""
    here = list(held)
    return sum(max(CARDS - sum(cards for _, on, cards in here if on == node), 0) for node in NODES)


def short(held: Iterable[NonPreemptible]) -> int:
    """Cards that are lent and could not be taken back."""
    here = list(held)
    return max(owed(here) - room(here), 0)
