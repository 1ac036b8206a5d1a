"""What a step tells others, as messages. Several small ones rather than one that is too large: at most BATCH items each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hbox_common.events import BindDecided, ClaimsChanged, Event, EvictDecided, PlansAnswered
from hbox_common.model import Epoch, Index

from .core.step import Step

T = TypeVar("T")

BATCH = 512
SHARD = "0"


@dataclass(frozen=True, slots=True)
class Message:
    event: Event
    keys: tuple[str, ...]


def messages_of(step: Step, *, epoch: Epoch, index: Index) -> list[Message]:
    """The messages of one step that took the books to `index`, in the order in which they have to be published."""
    out: list[Message] = []
    previous = step.first
    for changes in _chunks(step.changes):
        last = changes[-1].index
        claims = tuple(change.claim for change in changes)
        out.append(Message(ClaimsChanged(epoch=epoch, previous=previous, index=last, claims=claims), (SHARD,)))
        previous = last
    if step.announce and not step.changes:
        out.append(Message(ClaimsChanged(epoch=epoch, previous=index, index=index, claims=()), (SHARD,)))
    for scheduler, answers in step.answers.items():
        chunks = _chunks(tuple(answers.values()))
        out += [Message(PlansAnswered(epoch=epoch, index=index, answers=tuple(some)), (scheduler,)) for some in chunks]
    out += [Message(EvictDecided(epoch=epoch, evictions=tuple(some)), (SHARD,)) for some in _chunks(step.evictions)]
    out += [Message(BindDecided(epoch=epoch, index=index, binds=tuple(some)), (SHARD,)) for some in _chunks(step.binds)]
    out += [Message(refused, (refused.queue,)) for refused in step.refused]
    out += [Message(used, (used.queue,)) for used in step.budgets]
    return out


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), BATCH):
        yield items[first : first + BATCH]
