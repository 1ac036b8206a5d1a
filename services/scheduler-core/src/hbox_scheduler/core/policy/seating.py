"""Slots: nodes and cards for equal pods, many at once.

The journal has what was booked, so that a gang of several tasks can be taken back whole.
"""

from typing import TypeAlias

from hbox_common.model import CardSlice

from ..cluster import Columns, Journal
from ..cluster.task import Task
from ..devices import pick, slices_of
from ..framework.views import Views
from .policy import Policy

#: A place for one pod: the node's row, and the slices of its cards.
Slot: TypeAlias = tuple[int, tuple[CardSlice, ...]]


def allocate(columns: Columns, views: Views, policy: Policy, *, journal: Journal, task: Task, pods: int) -> list[Slot]:
    """Book up to `pods` pods of the task, best places first, and return their slots."""
    found: list[Slot] = []
    cards = task.cards.count if task.cards is not None else 0
    while len(found) < pods:
        rows, counts = views.of(task).best(pods - len(found))
        if not len(rows):
            break
        keys = None
        if task.cards is not None:
            keys = policy.card_keys(columns, rows, task)
        batch = pick(columns, rows, counts, task, keys)
        journal.book(batch)
        slices = slices_of(columns, batch, cards)
        found.extend(zip(rows.repeat(counts).tolist(), slices, strict=True))
    return found
