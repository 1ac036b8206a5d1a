"""The messages about a step. Several small ones rather than one that is too large: at most BATCH items and about BYTES bytes each.

An item's size is estimated from above, by its variable parts: the number of its resources and cards, and the characters of user-defined fields.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from hbox_common.events import (
    Bind,
    BindDecided,
    ClaimsChanged,
    Event,
    Evict,
    EvictDecided,
    EvictedPod,
    HeldNomination,
    Leaving,
    PlanAnswer,
    PlansAnswered,
    VictimsStayed,
)
from hbox_common.model import CardSlice, Epoch, Index, PodUid

from .core.step import Change, Step

T = TypeVar("T")

BATCH = 512
BYTES = 2**20
SHARD = "0"


@dataclass(frozen=True, slots=True)
class Message:
    event: Event
    keys: tuple[str, ...]


def messages_of(step: Step, *, epoch: Epoch, index: Index) -> list[Message]:
    """The messages of one step that took the books to `index`, in the order in which they have to be published."""
    out: list[Message] = []
    previous = step.first
    for changes in _chunks(step.changes, _claim_bytes):
        last = changes[-1].index
        claims = tuple(change.claim for change in changes)
        out.append(Message(ClaimsChanged(epoch=epoch, previous=previous, index=last, claims=claims), (SHARD,)))
        previous = last
    if step.announce and not step.changes:
        out.append(Message(ClaimsChanged(epoch=epoch, previous=index, index=index, claims=()), (SHARD,)))
    still = partial(ClaimsChanged, epoch=epoch, previous=index, index=index, claims=())
    nominations = [one for one in step.nominations.values() if one is not None]
    out += [Message(still(nominations=tuple(some)), (SHARD,)) for some in _chunks(nominations, _nomination_bytes)]
    ended = [plan for plan, one in step.nominations.items() if one is None]
    out += [Message(still(ended=tuple(some)), (SHARD,)) for some in _chunks(ended, len)]
    leaving = [Leaving(pod_uid=pod, grace_s=seconds) for pod, seconds in step.leaving.items()]
    out += [Message(still(leaving=tuple(some)), (SHARD,)) for some in _chunks(leaving, lambda one: 40 + len(one.pod_uid))]
    for scheduler, answers in step.answers.items():
        chunks = _chunks(tuple(answers.values()), _answer_bytes)
        out += [Message(PlansAnswered(epoch=epoch, index=index, answers=tuple(some)), (scheduler,)) for some in chunks]
    out += [Message(VictimsStayed(epoch=epoch, pods=tuple(some)), (SHARD,)) for some in _chunks(step.stayed, _pod_bytes)]
    out += [
        Message(EvictDecided(epoch=epoch, evictions=tuple(some)), (SHARD,)) for some in _chunks(step.evictions, _evict_bytes)
    ]
    out += [
        Message(BindDecided(epoch=epoch, index=index, binds=tuple(some)), (SHARD,)) for some in _chunks(step.binds, _bind_bytes)
    ]
    for receipt in step.receipts:
        out += [
            Message(receipt.model_copy(update={"pods": tuple(some)}), (receipt.queue, receipt.job))
            for some in _chunks(receipt.pods, _evicted_bytes)
        ]
    out += [Message(refused, (refused.queue,)) for refused in step.refused]
    out += [Message(used, (used.queue,)) for used in step.budgets]
    out += [Message(event, event.keys) for event in step.public]
    return out


def _chunks(items: Sequence[T], bytes_of: Callable[[T], int]) -> Iterator[Sequence[T]]:
    first, size = 0, 0
    for place, item in enumerate(items):
        own = bytes_of(item)
        if place > first and (place - first >= BATCH or size + own > BYTES):
            yield items[first:place]
            first, size = place, 0
        size += own
    if first < len(items):
        yield items[first:]


def _slices_bytes(slices: Sequence[CardSlice]) -> int:
    return 60 * len(slices) + sum([len(s.part) for s in slices])


def _claim_bytes(change: Change) -> int:
    claim = change.claim
    names = sum(map(len, claim.requests)) + 10 * len(claim.requests) + sum(map(len, claim.models)) + 10 * len(claim.models)
    texts = len(claim.namespace) + len(claim.pod) + len(claim.node) + len(claim.queue) + 4 * len(claim.reason)
    return 600 + names + texts + _slices_bytes(claim.slices)


def _nomination_bytes(nomination: HeldNomination) -> int:
    plan, moved = nomination.plan, nomination.moved
    slices = sum(_slices_bytes(one.slices) + len(one.layout) for one in plan.placements) + 2 * sum(
        _slices_bytes(claim.slices) for claim in moved
    )
    volumes = sum(len(claim) + 5 for one in plan.placements for claim in one.volume_claims)
    resources = sum(map(len, (*plan.requests, *nomination.models, *(claim.requests for claim in moved))))
    return 1000 + 800 * (len(plan.placements) + len(plan.victims)) + 1500 * len(moved) + slices + volumes + 60 * resources


def _bind_bytes(bind: Bind) -> int:
    return (
        800
        + len(bind.namespace)
        + len(bind.pod)
        + len(bind.node)
        + len(bind.queue)
        + _slices_bytes(bind.slices)
        + len(bind.layout)
        + sum(len(claim) + 5 for claim in bind.volume_claims)
    )


def _evict_bytes(evict: Evict) -> int:
    return 600 + len(evict.namespace) + len(evict.pod) + 4 * len(evict.reason)


def _evicted_bytes(pod: EvictedPod) -> int:
    return 100 + len(pod.pod) + len(pod.pod_uid) + len(pod.node) + len(pod.to)


def _answer_bytes(answer: PlanAnswer) -> int:
    return 300 + 4 * len(answer.message)


def _pod_bytes(pod: PodUid) -> int:
    return 10 + len(pod)
