"""The pure half of leader election on a Lease: which process may acquire it, and when.

Theory of operation. Every write of the lease object is conditional on its resourceVersion, so of two candidates one fails. A candidate judges the holder by its
own monotonic clock only: the lease has expired if no change was observed for the lease duration. Wall clocks of different machines are never compared (unlike
the official client's election). The token, `leaseTransitions`, increases with every acquisition, also by the same identity, so that a resource can reject
writes with an older token.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seen:
    """The lease as last read. `at`: monotonic seconds when this resourceVersion was first seen."""

    resource_version: str
    holder: str
    duration_s: float
    transitions: int
    at: float


@dataclass(frozen=True, slots=True)
class Create:
    token: int


@dataclass(frozen=True, slots=True)
class Take:
    """Write ourselves in, under this resourceVersion."""

    resource_version: str
    token: int


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


FIRST_TOKEN = 1


def observe(before: Seen | None, now: Seen) -> Seen:
    """What is known after reading `now`: an unchanged lease keeps the moment when it was first seen so."""
    if before is not None and before.resource_version == now.resource_version:
        return before
    return now


def decide(seen: Seen | None, *, now: float, retry_s: float) -> Create | Take | Wait:
    """What a candidate does. `seen`: None where there is no lease; `retry_s`: the longest wait before looking again."""
    if seen is None:
        return Create(FIRST_TOKEN)
    if not seen.holder:
        return Take(seen.resource_version, seen.transitions + 1)
    left_s = seen.at + seen.duration_s - now
    if left_s <= 0:
        return Take(seen.resource_version, seen.transitions + 1)
    return Wait(min(retry_s, left_s))


def is_ours(seen: Seen | None, *, identity: str, token: int) -> bool:
    """Whether the lease still carries this identity and token, whatever the outcome of our last write."""
    return seen is not None and seen.holder == identity and seen.transitions == token
