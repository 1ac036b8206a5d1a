"""What queues are guaranteed and others hold, counted from rows alone (S4), pool by pool."""

from collections.abc import Iterable

from .cluster import CARDS, GPU, HOMES, NODES, POOL_OF, QUEUES
from .rows import ClaimRow

#: Queue, node and cards of one pod that nobody can take back.
NonPreemptible = tuple[str, str, int]

#: In which anybody is guaranteed anything.
POOLS = ("", "lab")


def pool_of(node: str) -> str:
    return POOL_OF.get(node, "")  # type: ignore[call-overload, no-any-return]


def non_preemptible(claims: Iterable[ClaimRow]) -> list[NonPreemptible]:
    return [(c.queue, c.node, c.requests.get(GPU, 0)) for c in claims if stands_firm(c.queue, preemptable=c.preemptable)]


def stands_firm(queue: str, *, preemptable: bool) -> bool:
    return not preemptable or all(name != queue or not rules.reclaimable for name, rules in QUEUES.items())


def owed(held: Iterable[NonPreemptible], pool: str) -> int:
    """Cards of the pool that queues are guaranteed beyond what they hold firm there themselves."""
    here = [one for one in held if pool_of(one[1]) == pool]

    def own(queue: str) -> int:
        return sum(cards for name, _, cards in here if name == queue) + sum(
            own(q.name) for q in QUEUES.values() if q.parent == queue
        )

    def still(queue: str) -> int:
        below = sum(still(q.name) for q in QUEUES.values() if q.parent == queue)
        guarantee = QUEUES[queue].guarantee if HOMES.get(queue, "") == pool else {}  # type: ignore[index, call-overload]
        return max(guarantee.get(GPU, 0) - own(queue), below)

    return sum(still(queue.name) for queue in QUEUES.values() if not queue.parent)


def room(held: Iterable[NonPreemptible], pool: str) -> int:
    """Cards of the pool that are free, or that could be taken back."""
    here = list(held)
    nodes = [node for node in NODES if pool_of(node) == pool]
    return sum(max(CARDS - sum(cards for _, on, cards in here if on == node), 0) for node in nodes)


def short(held: Iterable[NonPreemptible]) -> dict[str, int]:
    """By pool, cards that are lent and could not be taken back."""
    here = list(held)
    return {pool: max(owed(here, pool) - room(here, pool), 0) for pool in POOLS}
