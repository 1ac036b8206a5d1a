"""Kept places whose cards others have by now.

Which cards a pod without slices gets is its kubelet's choice, and the ledger's claim follows what the kubelet says. Between a plan and that word a place may be
kept, for a nomination or a successor, on a card that somebody turns out to have. The place then goes to another card of the node: else one card counts twice,
another looks idle, and the plan for the place is refused.
"""

from collections.abc import Container, Iterable
from dataclasses import replace

import numpy as np

from hbox_common.model import NodeName, PodUid

from ..cluster import Booking, Bookings, Columns
from ..devices import PodSlices


def move_off_taken(
    bookings: Bookings, columns: Columns, node: NodeName, *, kept: Container[PodUid], leaving: Iterable[PodUid]
) -> None:
    """Books the `kept` places of a node anew whose cards are held by pods that do not leave, on cards of the same model that nobody else has or keeps. Where
    there are too few, and for parts of cards, which no kubelet chooses, a place stays as it is."""
    row = columns.row_of.get(node)
    if row is None:
        return
    gone, there = set(leaving), bookings.on(node)
    taken = {s.index for one in there if one.pod not in kept and one.pod not in gone for s in one.slices}
    places = [one for one in there if one.pod in kept]
    free = [
        int(position)
        for position in np.flatnonzero(columns.card_ok[row])
        if not any(s.index == columns.card_index[row, position] for one in places for s in one.slices)
        and columns.card_index[row, position] not in taken
    ]
    free.sort(key=lambda position: bool(columns.card_pods[row, position]))  # idle ones before those that others leave
    for place in places:
        if (moved := _moved(columns, row, place, taken, free)) is not None:
            bookings.put(moved)


def _moved(columns: Columns, row: int, place: Booking, taken: set[int], free: list[int]) -> Booking | None:
    """The place without cards of `taken`, in whose stead it has some of `free`, which are then gone from there; None: it stays as it is."""
    slices_stay = isinstance(place.slices, PodSlices) or not all(s.whole for s in place.slices)
    if slices_stay or not any(s.index in taken for s in place.slices):
        return None
    position_of = {int(index): position for position, index in enumerate(columns.card_index[row]) if index >= 0}
    left = list(free)
    slices = [s for s in place.slices if s.index not in taken]
    for s in (s for s in place.slices if s.index in taken):
        model = columns.card_model[row, position_of[s.index]] if s.index in position_of else None
        other = next((position for position in left if columns.card_model[row, position] == model), None)
        if other is None:
            return None
        left.remove(other)
        slices.append(replace(s, index=int(columns.card_index[row, other]), memory_mib=int(columns.card_memory[row, other])))
    free[:] = left
    return replace(place, slices=tuple(sorted(slices, key=lambda s: s.index)))
