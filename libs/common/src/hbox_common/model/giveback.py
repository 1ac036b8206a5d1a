"""What a change of rules would have given back: by those who hold more than their new share, and to those who could ask for a larger one.

Nothing is evicted by the change itself. What is beyond a share goes when somebody below theirs asks; so this is the most that can go, in the order in
which it would: lowest priority first, then the newest; nobody who may not be preempted, and no queue below its guarantee. A lower capability evicts nobody:
nothing new starts until use has fallen below it. Who may take what from whom is judged as for every plan (`rights`). Pure; the ledger answers with it
(`dry-run`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .claim import Claim
from .ids import QueueName
from .queue import Queue
from .queuefaults import faults
from .queuetree import QueueTree, TreeAmounts
from .resources import CPU, MEMORY, PODS, add
from .rights import CARDS_BY_NAME, AtParting, Named, Reclaim, excess, lacking, reclaimable, spare


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
            if (more := _excess(after, name, resource) - _excess(before, name, resource)) > 0:
                has, due = after.used(name).get(resource, 0), after.due(name)[resource]
                chosen = _chosen(after, name, of, resource, more)
                found.append(GiveBack(name, resource, more, f"it uses {has} and would deserve {due}", chosen))
            if (asks := _lacking(after, name, resource) - _lacking(before, name, resource)) > 0:
                found.extend(_from_siblings(after, name, of, resource, asks))
    return found


def _from_siblings(
    tree: QueueTree, name: QueueName, of: dict[QueueName, list[Claim]], resource: str, asks: int
) -> Iterable[GiveBack]:
    parent = QueueName(tree[name].parent)
    beside = tree.children(parent) if parent in tree else tree.tops()
    for giver in beside:
        spare = min(asks, _spare(tree, giver, resource)) if giver != name else 0
        if spare > 0:
            asks -= spare
            because = f"queue {name} could ask for {spare} more of its share"
            yield GiveBack(giver, resource, spare, because, _chosen(tree, giver, of, resource, spare), to=name)


def _beyond_share(before: QueueTree, after: QueueTree, name: QueueName) -> Iterable[Beyond]:
    for resource, due in sorted(after.due(name).items()):
        if (over := _excess(after, name, resource)) > 0:
            yield Beyond(name, resource, due + over, due, over - _excess(before, name, resource))


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


def _excess(tree: QueueTree, name: QueueName, resource: str) -> int:
    return excess(tree.rights(name), Named(tree.used(name)), resource)


def _spare(tree: QueueTree, name: QueueName, resource: str) -> int:
    return spare(tree.rights(name), Named(tree.used(name)), resource)


def _lacking(tree: QueueTree, name: QueueName, resource: str) -> int:
    return lacking(tree.rights(name), Named(tree.used(name)), resource)


def _chosen(
    tree: QueueTree, giver: QueueName, of: dict[QueueName, list[Claim]], resource: str, units: int
) -> tuple[Claim, ...]:
    """Whom the ledger would let go for a claimant beside the giver that asks for `units` of the resource, in that order."""
    reclaim, rule = Reclaim(TreeAmounts(tree)), AtParting(tree.rights, CARDS_BY_NAME)
    chosen: list[Claim] = []
    there = [claim for name in dict.fromkeys((giver, *tree.below(giver))) for claim in of.get(name, ())]
    for claim in sorted(there, key=lambda c: (c.priority, -c.created_at, c.pod)):
        path, loss = tree.path(claim.queue), claim.amounts
        if units <= 0:
            break
        if giver not in path or not loss.get(resource):
            continue
        if not reclaimable(tree.of(claim.queue), preemptable=claim.preemptable):
            continue
        branch = path[: path.index(giver) + 1][::-1]
        if not rule.gives(branch, {resource}, loss, reclaim.used) or reclaim.guaranteed(branch, loss):
            continue
        reclaim.leaves(branch, loss)
        units -= loss[resource]
        chosen.append(claim)
    return tuple(chosen)
