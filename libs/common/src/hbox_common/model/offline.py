"""Offline work (spot): jobs of the PriorityClass `offline`, on what nobody else wants now (ADR 42).

What such a pod holds counts under names of its own (`pools`): `RESOURCE@~offline`. So it is in nobody's share, wall, line, guarantee or loan, and is a
reason to hold nobody back; an administrator limits it in a queue by the amounts of the pool `~offline`. It takes from nobody, and goes first for anybody's pod
that is not offline, whatever queues, priorities, classes and minimum run times say.

Whether a claim is offline is decided when it is made, by job-controller's word on the job's class, and stands for as long as the claim does.
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
