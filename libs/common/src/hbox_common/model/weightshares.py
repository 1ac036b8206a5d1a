"""Entitlements of queues by weight: water filling, the one function used by ledger, engine and previews.

The total is divided among the queues with demand, by weight; no queue gets more than its demand (holds and waits for) or its limit, and the remainder is
divided among the others (Volcano's `proportion`, sources: volcano-proportion):

    at most     its capability, and what remains after the guarantees of all others
    at least    its guarantee

Beyond Volcano: a queue first gets the amount that its object `deserved` names, and takes part by weight beyond it (KAI-Scheduler's order; sources:
kai-fair-share). So a queue with explicit amounts keeps them, and weights divide the rest.

In a tree the children of a queue divide that queue's amount. Guarantees of some children without demand are added to it: they are lent to others as every
guarantee is, so siblings need not wait for them.

One resource at a time; amounts in base units. Shares are fractional: `whole` returns the integer part that can be held.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from .cardmodels import is_model
from .hostports import is_host_port
from .ids import DEFAULT_QUEUE, QueueName
from .pools import POOLED, by_pool
from .queue import Queue
from .queuetree import QueueTree
from .resources import PODS, Resources, add

#: By how much divisions may be off, as a part and in units; no two fractions of weights are that near.
_OFF, _MOST_OFF = 1e-9, 1e-6


class Demand(NamedTuple):
    """One queue, with all below it, among its siblings. `weight` 0: it takes no part, and has its guarantee alone; `last`: the weight that counts once none
    with a weight wants more (history, `fairshare`)."""

    weight: float
    asked: float  #: that it holds and waits for
    guarantee: int = 0
    deserved: int = 0  #: by its object
    most: float = inf  #: its capability
    last: float = 0.0
    kept: float = 0.0  #: guarantees below it without demand (`kept_below`)


def kept_below(below: Iterable[tuple[float, float, int]]) -> float:
    """Guarantees below a queue without demand. below: for each child its demand, its own result of this function, and its guarantee."""
    return sum(max(kept, guarantee - asked, 0) for asked, kept, guarantee in below)


def divide_by_weight(amount: float, siblings: Sequence[Demand]) -> list[float]:
    """The entitlement of each sibling to `amount`, in order. The sum exceeds the amount only if guarantees or deserved amounts do."""
    unpromised = amount - sum(one.guarantee for one in siblings)
    wanted = [max(0.0, min(one.asked, one.most, max(0.0, unpromised + one.guarantee))) for one in siblings]
    first = [min(one.deserved, want) for one, want in zip(siblings, wanted, strict=True)]
    rest = amount - sum(first)
    more = [want - has for want, has in zip(wanted, first, strict=True)]
    given = fill(rest, more, [one.weight for one in siblings])
    if any(one.last > 0 for one in siblings):
        left = [0.0 if has > 0 else want for has, want in zip(given, more, strict=True)]
        last = fill(rest - sum(given), left, [one.last for one in siblings])
        given = [has + then for has, then in zip(given, last, strict=True)]
    return [max(has + then + one.kept, one.guarantee) for has, then, one in zip(first, given, siblings, strict=True)]


def fill(amount: float, wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The amount divided by weight, no share larger than wanted, all of it divided while any sibling with a weight wants more."""
    given = [0.0] * len(wanted)
    hungry = sorted((i for i, want in enumerate(wanted) if want > 0 < weights[i]), key=lambda i: wanted[i] / weights[i])
    rest, total = max(amount, 0.0), sum(weights[i] for i in hungry)
    for place, i in enumerate(hungry):  # who wants the least for its weight is sated first
        if wanted[i] * total > rest * weights[i]:
            for j in hungry[place:]:
                given[j] = rest * weights[j] / total
            break
        given[i] = wanted[i]
        rest, total = rest - wanted[i], total - weights[i]
    return given


def whole(share: float) -> int:
    """The integer part of a share: fractions of a unit cannot be held."""
    return int(share + min(_OFF * max(1.0, share), _MOST_OFF))


def shares_by_weight(
    tree: QueueTree, total: Mapping[str, int], waiting: Mapping[QueueName, Resources]
) -> dict[QueueName, Resources]:
    """Each queue's entitlement by weight of each resource, in whole units. total: the amounts to divide; waiting: the amounts that each queue's own jobs wait
    for, in addition to its usage (`tree.used`). Pods, host ports, models of cards, and amounts of pools other than `pooled` are not divided."""
    names = [
        name
        for name, units in total.items()
        if units > 0 and name != PODS and not is_model(name) and not is_host_port(name) and not by_pool(name)[1]
    ]
    asked = {name: Resources(tree.used(name)) for name in (*tree, DEFAULT_QUEUE)}
    for queue, amounts in waiting.items():
        for above in tree.path(queue) if tree.may_use(queue, POOLED) else ():
            add(asked.setdefault(above, {}), amounts)
    kept = {name: _kept(tree, name, asked) for name in names}
    found: dict[QueueName, Resources] = {}
    tops = tree.tops() if DEFAULT_QUEUE in tree else (*tree.tops(), DEFAULT_QUEUE)
    levels: list[tuple[Mapping[str, float], tuple[QueueName, ...]]] = [({name: total[name] for name in names}, tops)]
    while levels:
        there, siblings = levels.pop()
        queues = [tree.of(name) or Queue(name) for name in siblings]
        weights = [queue.weight if _takes_part(tree, queue.name) else 0 for queue in queues]
        rules = [tree.amounts(name) for name in siblings]
        guarantees = [tree.guarantee(name) for name in siblings]
        shares: list[dict[str, float]] = [{} for _ in siblings]
        for name in names:
            level = [
                Demand(
                    weight,
                    asked.get(queue.name, {}).get(name, 0),
                    guarantee.get(name, 0),
                    amounts.effective_deserved.get(name, 0),
                    amounts.capability.get(name, inf),
                    kept=kept[name].get(queue.name, 0.0),
                )
                for queue, amounts, weight, guarantee in zip(queues, rules, weights, guarantees, strict=True)
            ]
            for share, given in zip(shares, divide_by_weight(there[name], level), strict=True):
                share[name] = given
        for sibling, share in zip(siblings, shares, strict=True):
            if sibling in found:  # in a circle
                continue
            found[sibling] = {name: whole(units) for name, units in share.items()}
            if below := tree.children(sibling):
                levels.append((share, below))
    return found


def _takes_part(tree: QueueTree, name: QueueName) -> bool:
    """Whether anything new may start in the queue or below it."""
    return any(tree.refusal(one) is None for one in _leaves(tree, name))


def _leaves(tree: QueueTree, name: QueueName) -> Iterable[QueueName]:
    return [one for one in (name, *tree.below(name)) if not tree.children(one)]


def _kept(tree: QueueTree, resource: str, asked: Mapping[QueueName, Resources]) -> dict[QueueName, float]:
    """By queue, `kept_below`."""
    if not any(tree.amounts(queue).guarantee.get(resource, 0) for queue in tree):
        return {}
    order, seen = list(tree.tops()), set[QueueName]()
    for queue in order:
        if queue not in seen:
            seen.add(queue)
            order += tree.children(queue)
    found: dict[QueueName, float] = {}
    for queue in reversed(order):
        below = [one for one in tree.children(queue) if one in found]
        found[queue] = kept_below(
            (asked.get(one, {}).get(resource, 0), found[one], tree.guarantee(one).get(resource, 0)) for one in below
        )
    return found
