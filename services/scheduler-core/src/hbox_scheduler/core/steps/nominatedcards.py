"""Nominated placements whose cards were taken by another pod.

The kubelet chooses the cards of a pod without slices, and the ledger's claim follows the kubelet's report. Between a plan and that report, a place may be
reserved, for a nomination or a successor, on a card that turns out to be taken. The place then moves to another card of the node: otherwise one card counts
twice, another seems idle, and the ledger rejects the plan for the place.
"""

from collections.abc import Container, Iterable
from dataclasses import replace

import numpy as np

from hbox_common.model import NodeName, PodUid
from hbox_common.model.devices.cardids import numbered

from ..cluster import Booking, Bookings, Columns
from ..devices import PodSlices


def move_off_taken(
    bookings: Bookings, columns: Columns, node: NodeName, *, kept: Container[PodUid], leaving: Iterable[PodUid]
) -> None:
    """Rebook the `kept` places of a node whose cards are held by pods that do not leave, on cards of the same model that are neither used nor reserved. If
    there are too few, and for parts of cards, which no kubelet chooses, a place stays as it is."""
    row = columns.row_of.get(node)
    if row is None:
        return
    gone, booked = set(leaving), bookings.on(node)
    others = [one for one in booked if one.pod not in kept and one.pod not in gone]
    taken = {position for one in others for position in columns.positions(row, one.slices)} - {-1}
    places = [one for one in booked if one.pod in kept]
    keeps = {position for one in places for position in columns.positions(row, one.slices)}
    free = [
        int(position) for position in np.flatnonzero(columns.card_ok[row]) if position not in keeps and position not in taken
    ]
    free.sort(key=lambda position: bool(columns.card_pods[row, position]))  # idle ones before those that others leave
    for place in places:
        if (moved := _moved(columns, row, place, taken, free)) is not None:
            bookings.put(moved)


def _moved(columns: Columns, row: int, place: Booking, taken: set[int], free: list[int]) -> Booking | None:
    """The place without the cards of `taken`, replaced by some of `free`, from which these are removed; None: it stays as it is."""
    slices_stay = isinstance(place.slices, PodSlices) or not all(s.whole for s in place.slices)
    placed = list(zip(place.slices, columns.positions(row, place.slices), strict=True))
    if slices_stay or not any(position in taken for _, position in placed):
        return None
    left = list(free)
    slices = [s for s, position in placed if position not in taken]
    for s, position in ((s, position) for s, position in placed if position in taken):
        model = columns.card_model[row, position]
        other = next((position for position in left if columns.card_model[row, position] == model), None)
        if other is None:
            return None
        left.remove(other)
        index, memory_mib = int(columns.card_index[row, other]), int(columns.card_memory[row, other])
        slices.append(replace(s, index=index, card=numbered(index), memory_mib=memory_mib))
    free[:] = left
    return replace(place, slices=columns.named(row, sorted(slices, key=lambda s: s.index)))
