"""Offline (spot) work: jobs of the PriorityClass `offline`, on resources that no other job uses (ADR 42).

The amounts of such a pod count under separate names (`pools`): `RESOURCE@~offline`. So they belong to no queue's share, limit, guarantee or loan and block no
other job; an administrator limits them per queue by the amounts of the pool `~offline`. Offline work preempts nothing, and is evicted first for any pod that is
not offline, whatever queues, priorities, classes and minimum run times.

Whether a claim is offline is decided at its creation from the job's class as published by job-controller, and does not change later.
"""

#: The PriorityClass.
OFFLINE_CLASS = "offline"

#: The pool in which offline work counts, wherever it is. No node is of it: no label's value begins with `~`.
OFFLINE = "~offline"


def is_offline(priority_class: str) -> bool:
    """Whether a job of this PriorityClass is offline work."""
    return priority_class == OFFLINE_CLASS


def counts_in(pool: str, *, offline: bool) -> str:
    """The pool in which something counts that is on a node of `pool` (`pools.counted_as`)."""
    return OFFLINE if offline else pool
