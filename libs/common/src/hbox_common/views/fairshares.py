"""Explains the order of queues: the deserved amount first, then the part by weight, corrected by recent usage. Pure.

The division of scheduler-core's sessions (`hbox_common.model.fairshare`) over the present use and demand of queues, from the root down: the
children of a queue divide its share.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hbox_common.model import Job, QueueName, QueueTree, cards_named
from hbox_common.model.devices import VENDORS
from hbox_common.model.fairshare import ShareDemand, divide, remembering

from .queues import asked_of


@dataclass(frozen=True, slots=True)
class Memory:
    """What is known of history. `weight`: `usageWeight` of the policy that jobs are placed by; `half_life_h` 0 = none is kept."""

    cards: int = 0  #: that the cluster has
    recent: Mapping[QueueName, float] | None = None  #: cards that a queue with its descendants used on average recently
    half_life_h: float = 0.0
    weight: float = 0.0

    def of(self, name: QueueName) -> float:
        return (self.recent or {}).get(name, 0.0)


def fair_shares(tree: QueueTree, jobs: Sequence[Job], memory: Memory) -> dict[QueueName, dict[str, Any]]:
    """By queue. `part`: of the weights of all siblings that want more than they deserve, in its priority; `counts`: its part with history, both 0 where it
    wants no more; `share`: of the cluster's cards, if all who wait now went on waiting."""
    found: dict[QueueName, dict[str, Any]] = {}
    levels = [(memory.cards, tree.tops())]
    while levels:
        amount, names = levels.pop()
        found |= _level(tree, jobs, memory, amount, names)
        levels += [(found[name]["share"], below) for name in names if (below := tree.children(name))]
    return found


def _level(
    tree: QueueTree, jobs: Sequence[Job], memory: Memory, amount: int, names: Iterable[QueueName]
) -> dict[QueueName, dict[str, Any]]:
    siblings = list(names)
    claims = []
    for name in siblings:
        queue, used = tree[name], VENDORS.asked(tree.used(name))
        waiting = VENDORS.asked(asked_of(job for job in jobs if name in tree.path(job.queue)))
        limit = cards_named(queue.capability)
        wanted = used + waiting if limit is None else min(used + waiting, limit)
        claims.append(ShareDemand(VENDORS.asked(tree.entitlement(name)), wanted, float(queue.weight), queue.priority))
    used_parts = [memory.of(name) / memory.cards if memory.cards else 0.0 for name in siblings]
    remembered = remembering(claims, used_parts, memory.weight)
    eager = [claim.wanted > claim.deserved for claim in claims]
    parts = _parts(claims, [claim.weight for claim in claims], eager)
    counts = _parts(claims, [claim.weight for claim in remembered], eager)
    last = _parts(claims, [claim.last for claim in remembered], eager)  # where all have used more than twice their part
    shares, without = divide(amount, remembered), divide(amount, claims)
    return {
        name: {
            "weight": claims[place].weight,
            "priority": claims[place].priority,
            "recentCards": round(memory.of(name), 2),
            "part": round(parts[place] or 0.0, 4),
            "counts": round((last[place] if counts[place] is None else counts[place]) or 0.0, 4),
            "share": shares[place],
            "shareWithoutHistory": without[place],
        }
        for place, name in enumerate(siblings)
    }


def _parts(claims: Sequence[Any], weights: Sequence[float], eager: Sequence[bool]) -> list[float | None]:
    """Each one's part of the weights of all eager ones in its priority; None where these are 0 together."""
    sums: dict[int, float] = {}
    for claim, weight, wants in zip(claims, weights, eager, strict=True):
        sums[claim.priority] = sums.get(claim.priority, 0.0) + weight * wants
    return [
        weight * wants / sums[claim.priority] if sums[claim.priority] > 0 else None
        for claim, weight, wants in zip(claims, weights, eager, strict=True)
    ]
