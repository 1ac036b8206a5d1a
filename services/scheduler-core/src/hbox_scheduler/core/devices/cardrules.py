"""The rules of plain card requests, in the order in which a node is judged, with the label of each.

A request for whole cards is judged by the memory of the empty card, then by whether the card is in use: what pods hold of it does not matter. The labels of
shared cards (slots, memory, compute that others hold) are for requests of slices.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hbox_common.model import VENDORS, CardRequest
from hbox_common.model.devices import ALL_CORES

from ..cluster import Columns
from ..cluster.arrays import Bools, Ints, Rows, rows_of
from ..cluster.task import Task
from ..explain.labels import Label

#: More than any slice counts.
ANY_MIB = 1 << 60


@dataclass(frozen=True, slots=True)
class Bounded(CardRequest):
    """A request that is limited to some cards by a quota, or to some models by its queue."""

    most_mib: int = ANY_MIB  #: that a slice of one card may count; negative: no card is paid for
    excluded: tuple[str, ...] = ()  #: models, as resources
    #: what a pod that asks container by container may count of each resource of its namespace's quotas
    left: tuple[tuple[str, int], ...] = ()


def memory_needed(request: CardRequest, card_memory: Ints) -> Ints:
    """MiB that each card would have to give; as `CardRequest.memory_on`, over an array."""
    if request.whole:
        return card_memory
    if request.memory_mib:
        return np.full(card_memory.shape, request.memory_mib, dtype=np.int64)
    return np.asarray(card_memory * request.memory_percent // ALL_CORES)


def affordable(request: CardRequest, card_memory: Ints) -> Bools | None:
    """Cards that the namespace's quotas cover; None = all. They do not cover cards of unknown size."""
    if not isinstance(request, Bounded) or request.most_mib == ANY_MIB:
        return None
    return np.asarray((memory_needed(request, card_memory) <= request.most_mib) & (card_memory > 0))


def beyond_walls(columns: Columns, rows: Rows, request: CardRequest) -> Bools | None:
    """Cards of models of which the queue may have no more; None = no model is at its limit."""
    if not isinstance(request, Bounded) or not request.excluded:
        return None
    return columns.models_counted(request.excluded)[rows_of(columns.card_model, rows)]


def _none(cards: Bools) -> Bools:
    """`[n]`: nodes of which no card is left."""
    return np.asarray(~cards.any(axis=1))


def _of_vendor(columns: Columns, rows: Rows, task: Task) -> Bools:
    """`[n]`: nodes whose cards are of the task's vendor."""
    vendor = VENDORS.of(task.requests)
    if vendor is None:
        return np.ones(len(columns.alive[rows]), dtype=np.bool_)
    return np.asarray(columns.allocatable[columns.resource(vendor.cards), rows] > 0)


def failed_rules(columns: Columns, rows: Rows, task: Task, request: CardRequest) -> Iterator[tuple[str, Bools]]:
    """Label and mask `[n]` of each rule, over all cards of a node: the rule after which no card is left gives the label. If cards are left, but fewer than
    requested, the label is AllocatedCardsInsufficientRequest."""
    present = (columns.card_index[rows] >= 0) & _of_vendor(columns, rows, task)[:, None]
    yield Label.DEVICE_INSUFFICIENT, np.count_nonzero(present, axis=1) < request.count
    left = present & columns.card_ok[rows]
    yield Label.CARD_NOT_HEALTH, _none(left)
    if request.models:
        left = left & columns.models_allowed(request.models)[columns.card_model[rows]]
        yield Label.CARD_TYPE_MISMATCH, _none(left)
    if (beyond := beyond_walls(columns, rows, request)) is not None:
        left = left & ~beyond
        yield Label.QUEUE_MODEL, _none(left)
    rules = _whole_rules if request.whole else _slice_rules
    for label, fails, remaining in rules(columns, rows, request, present, left):
        left = remaining
        yield label, fails
    yield Label.CARDS_TOO_FEW, np.count_nonzero(left, axis=1) < request.count


#: Label, mask `[n]` of the nodes without a card left, and the cards left `[n, D]`.
_Rule = tuple[str, Bools, Bools]


def _whole_rules(columns: Columns, rows: Rows, request: CardRequest, present: Bools, left: Bools) -> Iterator[_Rule]:  # noqa: ARG001  as `_slice_rules`
    memory = columns.card_memory[rows]
    if request.memory_mib:  # of a request for all cores, or for more than a card has
        left = left & ((request.memory_mib <= memory) | (memory == 0))
        yield Label.CARD_INSUFFICIENT_MEMORY, _none(left), left
    left = left & (columns.card_pods[rows] == 0)
    yield Label.CARDS_IN_USE, _none(left), left
    if (paid := affordable(request, memory)) is not None:
        left = left & paid
        yield Label.CARD_QUOTA, _none(left), left


def _slice_rules(columns: Columns, rows: Rows, request: CardRequest, present: Bools, left: Bools) -> Iterator[_Rule]:
    """HAMi's checks in HAMi's order (sources: hami-fit)."""
    pods, memory, cores = columns.card_pods[rows], columns.card_memory[rows], columns.card_cores_used[rows]
    used = pods > 0
    left = left & ~(used & (pods >= columns.card_shares[rows]))
    exhausted = _none(left)
    yield Label.CARDS_IN_USE, exhausted & ~(present & (columns.card_shares[rows] > 1)).any(axis=1), left
    yield Label.CARD_SLOTS_EXHAUSTED, exhausted, left
    if (paid := affordable(request, memory)) is not None:
        left = left & paid
        yield Label.CARD_QUOTA, _none(left), left
    left = left & (columns.card_memory_used[rows] + memory_needed(request, memory) <= memory) & (memory > 0)
    yield Label.CARD_INSUFFICIENT_MEMORY, _none(left), left
    left = left & (cores + request.cores <= ALL_CORES)
    yield Label.CARD_INSUFFICIENT_CORE, _none(left), left
    left = left & ~(used & (cores >= ALL_CORES))
    yield Label.CARD_UNITS_EXHAUSTED, _none(left), left
