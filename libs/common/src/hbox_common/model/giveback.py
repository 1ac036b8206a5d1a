"""What a change of rules would have given back: by those who hold more than their new share, and to those who could ask for a larger one.

Nothing is evicted by the change itself. What is beyond a share goes when somebody below theirs asks; so this is the most that can go, in the order in
which it would: lowest priority first, then the newest; nobody who may not be preempted, and no queue below its guarantee. A lower capability evicts nobody:
nothing new starts until use has fallen below it. Pure; the ledger answers with it (`dry-run`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .claim import Claim
from .ids import QueueName
from .queue import Queue
from .queuefaults import faults
from .queuetree import QueueTree
from .resources import CPU, MEMORY, PODS, Resources, add


@dataclass(frozen=True, slots=True)
class GiveBack:
    """`units` of `resource` that `queue` may have to give back, and with which claims; fewer where too few of them may be taken. `to`: who could ask for it;
    empty: anybody below its share."""

    queue: QueueName
    resource: str
    units: int
    because: str
    claims: tuple[Claim, ...]
    to: QueueName = QueueName("")


@dataclass(frozen=True, slots=True)
class Beyond:
    """A queue that would use more of a resource than a rule of its says. `more`: by how much more than now."""

    queue: QueueName
    resource: str
    used: int
    limit: int
    more: int


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change of queues does. `faults`: that would be new, by queue; `over_deserved`: all that would use more than their share."""

    faults: tuple[tuple[QueueName, str], ...]
    gives: tuple[GiveBack, ...]
    over_deserved: tuple[Beyond, ...]
    over_capability: tuple[Beyond, ...]


def effect_of(tree: QueueTree, changed: Iterable[Queue], claims: Sequence[Claim]) -> Effect:
    """What these new rules would do to this tree with these claims. The tree stays as it is."""
    new = {queue.name: queue for queue in changed}
    own = {name: dict(tree.own(name)) for name in (*tree, *new)}
    after = QueueTree(own)
    after.update(tree)
    after.update(new)
    for claim in claims if after.by_model and not tree.by_model else ():  # until now nobody had to count by model
        add(own.setdefault(claim.queue, {}), claim.models)
    said = {name: set(faults(tree, name)) for name in after}
    wrong = [(name, fault) for name in sorted(after) for fault in faults(after, name) if fault not in said[name]]
    deserved = [one for name in sorted(after) for one in _beyond_share(tree, after, name)]
    walls = [one for name in sorted(after) for one in _beyond_wall(tree, after, name) if one.more > 0]
    return Effect(tuple(wrong), tuple(give_back(tree, after, claims)), tuple(deserved), tuple(walls))


def give_back(before: QueueTree, after: QueueTree, claims: Sequence[Claim]) -> list[GiveBack]:
    """What may be asked back after the change and could not before. Cards and the like first; then cpu and memory."""
    of: dict[QueueName, list[Claim]] = {}
    for claim in claims:
        of.setdefault(claim.queue, []).append(claim)
    found: list[GiveBack] = []
    for name in sorted(after):
        for resource in sorted(after.due(name), key=lambda r: (r in (CPU, MEMORY, PODS), r)):
            if (more := _beyond(after, name, resource) - _beyond(before, name, resource)) > 0:
                has, due = after.used(name).get(resource, 0), after.due(name)[resource]
                chosen = _chosen(after, name, of, resource, more)
                found.append(GiveBack(name, resource, more, f"it uses {has} and would deserve {due}", chosen))
            if (asks := _short(after, name, resource) - _short(before, name, resource)) > 0:
                found.extend(_from_siblings(after, name, of, resource, asks))
    return found


def _from_siblings(
    tree: QueueTree, name: QueueName, of: dict[QueueName, list[Claim]], resource: str, asks: int
) -> Iterable[GiveBack]:
    parent = QueueName(tree[name].parent)
    beside = tree.children(parent) if parent in tree else tree.tops()
    for giver in beside:
        spare = min(asks, _beyond(tree, giver, resource)) if giver != name else 0
        if spare > 0:
            asks -= spare
            because = f"queue {name} could ask for {spare} more of its share"
            yield GiveBack(giver, resource, spare, because, _chosen(tree, giver, of, resource, spare), to=name)


def _beyond_share(before: QueueTree, after: QueueTree, name: QueueName) -> Iterable[Beyond]:
    for resource, due in sorted(after.due(name).items()):
        if (over := _beyond(after, name, resource)) > 0:
            yield Beyond(name, resource, due + over, due, over - _beyond(before, name, resource))


def _beyond_wall(before: QueueTree, after: QueueTree, name: QueueName) -> Iterable[Beyond]:
    was, queue = before.get(name), after[name]
    for resource, limit in sorted(queue.capability.items()):
        used = after.used(name).get(resource, 0)
        known = was.capability.get(resource) if was is not None else None
        if used > limit:
            yield Beyond(
                name,
                resource,
                used,
                limit,
                used - limit - (max(0, before.used(name).get(resource, 0) - known) if known is not None else 0),
            )


def _beyond(tree: QueueTree, name: QueueName, resource: str) -> int:
    """What it uses beyond its share; nothing where it names none."""
    due = tree.due(name).get(resource)
    return 0 if due is None else max(0, tree.used(name).get(resource, 0) - due)


def _short(tree: QueueTree, name: QueueName, resource: str) -> int:
    return max(0, tree.due(name).get(resource, 0) - tree.used(name).get(resource, 0))


def _chosen(
    tree: QueueTree, giver: QueueName, of: dict[QueueName, list[Claim]], resource: str, units: int
) -> tuple[Claim, ...]:
    left: dict[QueueName, Resources] = {}
    chosen: list[Claim] = []
    there = [claim for name in dict.fromkeys((giver, *tree.below(giver))) for claim in of.get(name, ())]
    for claim in sorted(there, key=lambda c: (c.priority, -c.created_at, c.pod)):
        path = tree.path(claim.queue)
        if units <= 0:
            break
        if giver not in path or not claim.preemptable or not claim.amounts.get(resource):
            continue
        queue, branch = tree.of(claim.queue), path[: path.index(giver) + 1]
        if queue is None or not queue.reclaimable or any(_breaks(tree, left, name, claim) for name in branch):
            continue
        for name in branch:
            add(left.setdefault(name, dict(tree.used(name))), claim.amounts, -1)
        units -= claim.amounts[resource]
        chosen.append(claim)
    return tuple(chosen)


def _breaks(tree: QueueTree, left: dict[QueueName, Resources], name: QueueName, claim: Claim) -> bool:
    has = left.get(name) or tree.used(name)
    return any(
        has.get(resource, 0) - claim.amounts.get(resource, 0) < floor
        for resource, floor in tree.guarantee(name).items()
        if claim.amounts.get(resource, 0) > 0
    )
