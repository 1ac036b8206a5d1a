"""Which claims a change of rules would have given back: those that a queue holds beyond its new share, and those that a queue with a larger share may ask for.

Nothing is evicted by the change itself. What is beyond a share goes when somebody below theirs asks; so this is the most that can go, in the order in
which it would: lowest priority first, then the newest; nobody who may not be preempted, and no queue below its guarantee. A lower capability evicts nobody:
nothing new starts until use has fallen below it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hbox_common.model import Claim, QueueName, QueueTree, Resources
from hbox_common.model.resources import CPU, MEMORY, PODS, add


@dataclass(frozen=True, slots=True)
class GiveBack:
    """`units` of `resource` that `queue` may have to give back, and with which claims; fewer where too few of them may be taken."""

    queue: QueueName
    resource: str
    units: int
    because: str
    claims: tuple[Claim, ...]


def give_back(before: QueueTree, after: QueueTree, claims: Sequence[Claim]) -> list[GiveBack]:
    """What may be asked back after the change and could not before. Cards and the like first; then cpu and memory."""
    found: list[GiveBack] = []
    for name in sorted(after):
        for resource in sorted(after.due(name), key=lambda r: (r in (CPU, MEMORY, PODS), r)):
            if (more := _beyond(after, name, resource) - _beyond(before, name, resource)) > 0:
                has, due = after.used(name).get(resource, 0), after.due(name)[resource]
                chosen = _chosen(after, name, claims, resource, more)
                found.append(GiveBack(name, resource, more, f"it uses {has} and would deserve {due}", chosen))
            if (asks := _short(after, name, resource) - _short(before, name, resource)) > 0:
                found.extend(_from_siblings(after, name, claims, resource, asks))
    return found


def _from_siblings(tree: QueueTree, name: QueueName, claims: Sequence[Claim], resource: str, asks: int) -> Iterable[GiveBack]:
    parent = QueueName(tree[name].parent)
    beside = tree.children(parent) if parent in tree else tree.tops()
    for giver in beside:
        spare = min(asks, _beyond(tree, giver, resource)) if giver != name else 0
        if spare > 0:
            asks -= spare
            because = f"queue {name} could ask for {spare} more of its share"
            yield GiveBack(giver, resource, spare, because, _chosen(tree, giver, claims, resource, spare))


def _beyond(tree: QueueTree, name: QueueName, resource: str) -> int:
    """What it uses beyond its share; nothing where it names none."""
    due = tree.due(name).get(resource)
    return 0 if due is None else max(0, tree.used(name).get(resource, 0) - due)


def _short(tree: QueueTree, name: QueueName, resource: str) -> int:
    return max(0, tree.due(name).get(resource, 0) - tree.used(name).get(resource, 0))


def _chosen(tree: QueueTree, giver: QueueName, claims: Sequence[Claim], resource: str, units: int) -> tuple[Claim, ...]:
    left: dict[QueueName, Resources] = {}
    chosen: list[Claim] = []
    for claim in sorted(claims, key=lambda c: (c.priority, -c.created_at, c.pod)):
        path = tree.path(claim.queue)
        if units <= 0:
            break
        if giver not in path or not claim.preemptable or not claim.requests.get(resource):
            continue
        queue, branch = tree.of(claim.queue), path[: path.index(giver) + 1]
        if queue is None or not queue.reclaimable or any(_breaks(tree, left, name, claim) for name in branch):
            continue
        for name in branch:
            add(left.setdefault(name, dict(tree.used(name))), claim.requests, -1)
        units -= claim.requests[resource]
        chosen.append(claim)
    return tuple(chosen)


def _breaks(tree: QueueTree, left: dict[QueueName, Resources], name: QueueName, claim: Claim) -> bool:
    has = left.get(name) or tree.used(name)
    return any(
        has.get(resource, 0) - claim.requests.get(resource, 0) < floor
        for resource, floor in tree.guarantee(name).items()
        if claim.requests.get(resource, 0) > 0
    )
