"""Preview of a rule change: the claims that could be reclaimed from queues above their new share, and the queues that could reclaim them.

The change itself evicts nothing. Usage beyond a share is reclaimed when a queue below its share requests it; so the preview shows the most that can be evicted,
in eviction order: lowest priority first, then the newest; never non-preemptible claims, and no queue below its guarantee. A lower capability evicts
nothing: no new work starts until usage has fallen below it. Reclaims are checked by the same rules as plans (`rights`). Pure; the ledger answers with it
(`dry-run`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .cardmodels import is_model
from .cardparts import has_partitions, in_parts
from .claim import Claim
from .devices import VENDORS
from .devices.partitions import CARD
from .ids import JobId, QueueName
from .pools import by_pool
from .queue import Queue
from .queuefaults import faults
from .queuetree import QueueTree, TreeAmounts
from .resources import CPU, MEMORY, PODS, Resources, add
from .rights import CARDS_BY_NAME, AtParting, Named, Reclaim, Standing, excess, lacking, reclaimable, spare, units


@dataclass(frozen=True, slots=True)
class ReclaimPreview:
    """`units` of `resource` that may be reclaimed from `queue`, and the claims concerned; fewer if not enough of them are reclaimable. `to`: the queue that
    could reclaim them; empty: any queue below its share."""

    queue: QueueName
    resource: str
    units: int
    because: str
    claims: tuple[Claim, ...]
    to: QueueName = QueueName("")


@dataclass(frozen=True, slots=True)
class Excess:
    """A queue whose usage exceeds one of its rules by more than before. `more`: the increase."""

    queue: QueueName
    resource: str
    used: int
    limit: int
    more: int


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change of queues does. `faults`: that would be new, by queue; `over_deserved`: all that would use more than their share."""

    faults: tuple[tuple[QueueName, str], ...]
    gives: tuple[ReclaimPreview, ...]
    over_deserved: tuple[Excess, ...]
    over_capability: tuple[Excess, ...]


#: The shares by weight of a tree's queues, as things stand.
Shares = Callable[[QueueTree], Mapping[QueueName, Resources]]


def effect_of(tree: QueueTree, changed: Iterable[Queue], claims: Sequence[Claim], shares: Shares | None = None) -> Effect:
    """What these new rules would do to this tree with these claims. The tree stays as it is. shares: where weights count, by these rules and by others."""
    new = {queue.name: queue for queue in changed}
    own = {name: dict(tree.own(name)) for name in (*tree, *new)}
    after = QueueTree(own)
    after.update(tree)
    after.update(new)
    for claim in claims if after.by_model and not tree.by_model else ():  # models were not counted before the change
        add(own.setdefault(claim.queue, {}), {name: units for name, units in claim.models.items() if is_model(name)})
    if shares is not None:
        tree.divide(shares(tree))
        after.divide(shares(after))
    earlier = {name: set(faults(tree, name)) for name in after}
    wrong = [(name, fault) for name in sorted(after) for fault in faults(after, name) if fault not in earlier[name]]
    deserved = [one for name in sorted(after) for one in _over_deserved(tree, after, name)]
    over_capability = [one for name in sorted(after) for one in _over_capability(tree, after, name) if one.more > 0]
    return Effect(tuple(wrong), tuple(reclaim_preview(tree, after, claims)), tuple(deserved), tuple(over_capability))


def reclaim_preview(before: QueueTree, after: QueueTree, claims: Sequence[Claim]) -> list[ReclaimPreview]:
    """What may be asked back after the change and could not before. Cards and the like first; then cpu and memory."""
    of: dict[QueueName, list[Claim]] = {}
    for claim in claims:
        of.setdefault(claim.queue, []).append(claim)
    found: list[ReclaimPreview] = []
    for name in sorted(after):
        for resource in sorted(after.rights(name).entitlement, key=lambda r: (r in (CPU, MEMORY, PODS), r)):
            if (more := _excess(after, name, resource) - _excess(before, name, resource)) > 0:
                has, entitlement = after.used(name).get(resource, 0), after.rights(name).entitlement[resource]
                chosen = _chosen(after, name, of, resource, more)
                found.append(ReclaimPreview(name, resource, more, f"it uses {has} and would deserve {entitlement}", chosen))
            if (asks := _lacking(after, name, resource) - _lacking(before, name, resource)) > 0:
                found.extend(_from_siblings(after, name, of, resource, asks))
    return found


def _from_siblings(
    tree: QueueTree, name: QueueName, of: dict[QueueName, list[Claim]], resource: str, asks: int
) -> Iterable[ReclaimPreview]:
    parent = QueueName(tree[name].parent)
    siblings = tree.children(parent) if parent in tree else tree.tops()
    for reclaimee in siblings:
        spare = min(asks, _spare(tree, reclaimee, resource)) if reclaimee != name else 0
        if spare > 0:
            asks -= spare
            because = f"queue {name} could ask for {spare} more of its share"
            yield ReclaimPreview(reclaimee, resource, spare, because, _chosen(tree, reclaimee, of, resource, spare), to=name)


def _over_deserved(before: QueueTree, after: QueueTree, name: QueueName) -> Iterable[Excess]:
    for resource, entitlement in sorted(after.rights(name).entitlement.items()):
        if (over := _excess(after, name, resource)) > 0:
            yield Excess(name, resource, entitlement + over, entitlement, over - _excess(before, name, resource))


def _over_capability(before: QueueTree, after: QueueTree, name: QueueName) -> Iterable[Excess]:
    known_before = before.amounts(name).capability
    for resource, limit in sorted(after.amounts(name).capability.items()):
        used = _in_use(after, name, resource)
        known = known_before.get(resource)
        if used > limit:
            yield Excess(
                name,
                resource,
                used,
                limit,
                used - limit - (max(0, _in_use(before, name, resource) - known) if known is not None else 0),
            )


def _in_use(tree: QueueTree, name: QueueName, resource: str) -> int:
    """The amount that counts against the queue's limit; of cards with their parts, rounded up."""
    amounts = tree.used(name)
    if by_pool(resource)[0] not in VENDORS or not has_partitions(amounts):
        return amounts.get(resource, 0)
    return -(-in_parts(amounts, tree.amounts(name).capability).get(resource, 0) // CARD)


def _excess(tree: QueueTree, name: QueueName, resource: str) -> int:
    return excess(tree.rights(name), Named(tree.used(name)), resource)


def _spare(tree: QueueTree, name: QueueName, resource: str) -> int:
    return spare(tree.rights(name), Named(tree.used(name)), resource)


def _lacking(tree: QueueTree, name: QueueName, resource: str) -> int:
    return lacking(tree.rights(name), Named(tree.used(name)), resource)


def _chosen(
    tree: QueueTree, reclaimee: QueueName, of: dict[QueueName, list[Claim]], resource: str, asked: int
) -> tuple[Claim, ...]:
    """The claims that the ledger would evict, in order, if a sibling of the reclaimee requested this amount of the resource."""
    reclaim, rule = Reclaim(TreeAmounts(tree)), AtParting(tree.rights, CARDS_BY_NAME)
    chosen: list[Claim] = []
    there = [claim for name in dict.fromkeys((reclaimee, *tree.below(reclaimee))) for claim in of.get(name, ())]
    gangs: dict[JobId, list[Claim]] = {}
    for claim in there:
        gangs.setdefault(claim.job, []).append(claim)
    standing = {job: Standing(len(held), max(claim.min_member for claim in held)) for job, held in gangs.items()}
    named = sorted(
        (claim for claim in there if reclaimable(tree.of(claim.queue), preemptable=claim.preemptable)),
        key=lambda c: (c.priority, -c.created_at, c.pod),
    )
    for unit in units(named, lambda claim: claim.job, standing.__getitem__):
        path = tree.path(unit[0].queue)
        loss: Resources = {}
        for claim in unit:
            add(loss, claim.amounts)
        if asked <= 0:
            break
        if reclaimee not in path or not loss.get(resource):
            continue
        branch = path[: path.index(reclaimee) + 1][::-1]
        if not rule.gives(branch, {resource}, loss, reclaim.used) or reclaim.guaranteed(branch, loss):
            continue
        reclaim.leaves(branch, loss)
        asked -= loss[resource]
        chosen += unit
    return tuple(chosen)
