"""Requests that sums of cards cannot answer: container by container, of several kinds, with preferences, or on cards that are divided in fixed sizes.

`VENDORS.fit` decides them for one node. It is called once for all nodes in the same state: a state is a number, the sum of what is booked on each card times a
weight of that amount and position, and of the codes of the node's properties (`CardSets`). So the states of all rows take a few array operations, and the state
after one more pod is an addition. The ids of cards distinguish nodes only if the request names one of these ids. Weights have 64 bits: two states have the same
number as rarely as two random numbers are equal, and the ledger would reject the resulting plan.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, CardRequest, CardSlice
from hbox_common.model.devices import (
    NODE_POLICY,
    SPREAD,
    Ask,
    CardAllocation,
    DeviceLabel,
    Fitted,
    PodDevices,
    Refused,
    effective,
    format_layout,
)

from ..cluster import Columns
from ..cluster.arrays import Floats, Ints, Rows, rows_of

#: Answers that are kept, of all requests together; and requests.
_MOST, _REQUESTS = 262_144, 1024

#: How many pods of one request are counted on a node at most, where their number matters.
DEEP = 64

#: Models that may not be had, as resources.
Excluded: TypeAlias = tuple[str, ...]

#: Whether one pod may have these slices.
Pays: TypeAlias = Callable[[Sequence[CardSlice]], bool]


class PodSlices(tuple[CardSlice, ...]):
    """What a pod takes of each card in the books, and which container gets what of it (`hbox_common.model.devices.layout`)."""

    layout: str

    @classmethod
    def of(cls, fitted: Fitted, devices: PodDevices) -> "PodSlices":
        found = cls(effective(fitted.layout, devices))
        found.layout = format_layout(fitted.layout, devices.init)
        return found

    @classmethod
    def written(cls, slices: tuple[CardSlice, ...], layout: str) -> tuple[CardSlice, ...]:
        """The slices with their written layout; without one, the plain slices."""
        if not layout:
            return slices
        found = cls(slices)
        found.layout = layout
        return found


def layout_of(request: CardRequest | None, slices: tuple[CardSlice, ...]) -> str:
    """Which container gets which of these slices; empty where the pod has no more than one."""
    if isinstance(slices, PodSlices):
        return slices.layout
    return (
        ""
        if request is None or request.containers == 1 or not slices
        else _in_one(slices, request.container, request.containers)
    )


@lru_cache(maxsize=4096)
def _in_one(slices: tuple[CardSlice, ...], container: int, containers: int) -> str:
    return format_layout(((),) * container + (slices,) + ((),) * (containers - container - 1))


@dataclass(slots=True)
class _Answer:
    """Of one state."""

    found: Fitted | Refused
    slices: PodSlices | None = None
    after: int = 0  #: the state that the pod leads to
    room: dict[int, int] = field(default_factory=dict)  #: how many pods fit, by how many were counted at most


class _Request:
    """What is known of one request, by state."""

    def __init__(self, devices: PodDevices, excluded: Excluded) -> None:
        wished = devices.wished
        self.devices, self.excluded = devices, excluded
        #: of cards that it may have, or may not, by the names that vendors' annotations have for this
        self.ids = frozenset(one.strip() for name, value in wished.items() if "uuid" in name for one in value.split(","))
        self.ranks = _ranks(wished, devices)
        self.answers: dict[int, _Answer] = {}


def _ranks(wished: Mapping[str, str], devices: PodDevices) -> int:
    """Whether nodes are ranked by what their vendors say of them: 1 the highest first, -1 the lowest, 0 not at all."""
    if NODE_POLICY in wished:
        return -1 if wished[NODE_POLICY].strip().lower() == SPREAD else 1
    return int(any(VENDORS.kind(ask.kind).always_fits for ask in devices.asks))


class StateFits:
    """Of the columns that share one `CardSets`: answers are kept by what rows have and what is booked there, so that views of the columns share them."""

    def __init__(self) -> None:
        self._requests: OrderedDict[tuple[PodDevices, Excluded], _Request] = OrderedDict()
        self._kept = 0

    def room(
        self,
        columns: Columns,
        rows: Rows,
        devices: PodDevices,
        *,
        most: int = 1,
        most_mib: int | None = None,
        pays: Pays | None = None,
        excluded: Excluded = (),
    ) -> Ints:
        """`[n]`: how many such pods fit on each row, of which `most` are counted. most_mib: that a slice of one card may have; None = any. pays: whether one
        pod may have these slices."""
        known = self._known(devices, excluded)
        if most_mib is not None:
            pays = _smaller(most_mib, pays)
        found = self._by_state(columns, rows, known, lambda walk: self._room(walk, most, pays))
        return found.astype(np.int64)

    def usage(self, columns: Columns, rows: Rows, devices: PodDevices) -> Floats:
        """`[n]`: how full the vendors' cards are, with what they add for what the pod would take; 0 where it does not fit: HAMi's score of a node."""
        known = self._known(devices, ())
        return self._by_state(columns, rows, known, lambda walk: _score(self.answer(walk))).astype(np.float64)

    def ranks(self, devices: PodDevices) -> int:
        """The order of the pod's nodes by `usage`: 1 the fullest first, -1 the idlest, 0 as the policy decides."""
        return self._known(devices, ()).ranks

    def take(self, columns: Columns, row: int, devices: PodDevices, pods: int, excluded: Excluded = ()) -> list[PodSlices]:
        """The slices of so many pods on one row, which must have room for all of them together."""
        walk = _Walk(columns, row, self._known(devices, excluded))
        for _ in range(pods):
            walk.on(self.answer(walk))
        return walk.taken

    def refused(self, columns: Columns, rows: Rows, devices: PodDevices) -> list[Refused | None]:
        """`[n]`: why no such pod fits on each row; None where one does."""
        known = self._known(devices, ())
        answers: list[Refused | None] = []

        def find(walk: "_Walk") -> float:
            found = self.answer(walk).found
            answers.append(found if isinstance(found, Refused) else None)
            return len(answers) - 1

        places = self._by_state(columns, rows, known, find).astype(np.int64).tolist()
        return [answers[place] for place in places]

    def answer(self, walk: "_Walk") -> _Answer:
        """What is known of the state that a walk has come to."""
        known = walk.known
        found = known.answers.get(walk.state)
        if found is None:
            found = _ask(walk)
            if self._kept >= _MOST:
                for one in self._requests.values():
                    one.answers.clear()
                self._kept = 0
            known.answers[walk.state] = found
            self._kept += 1
        return found

    def _known(self, devices: PodDevices, excluded: Excluded) -> _Request:
        key = devices, excluded
        found = self._requests.get(key)
        if found is None:
            found = self._requests[key] = _Request(devices, excluded)
            if len(self._requests) > _REQUESTS:
                _, oldest = self._requests.popitem(last=False)
                self._kept -= len(oldest.answers)
        return found

    @staticmethod
    def _by_state(columns: Columns, rows: Rows, known: _Request, find: Callable[["_Walk"], float]) -> Floats:
        of_rows = states(columns, rows, ids=known.ids)
        distinct, first, which = np.unique(of_rows, return_index=True, return_inverse=True)
        numbers = _numbers(columns, rows)
        found = [
            find(_Walk(columns, numbers[place], known, state))
            for state, place in zip(distinct.tolist(), first.tolist(), strict=True)
        ]
        return np.array(found, dtype=np.float64)[which.reshape(-1)]

    def _room(self, walk: "_Walk", most: int, pays: Pays | None) -> int:
        first = self.answer(walk)
        if pays is None and (known := first.room.get(most)) is not None:
            return known
        answer, count = first, 0
        while count < most and answer.slices is not None and (pays is None or pays(answer.slices)):
            count += 1
            walk.on(answer)
            if count < most:
                answer = self.answer(walk)
        if pays is None:
            first.room[most] = count
        return count


def _smaller(most_mib: int, pays: Pays | None) -> Pays:
    return lambda slices: all(s.memory_mib <= most_mib for s in slices) and (pays is None or pays(slices))


class _Walk:
    """From the state of one row to those that follow when pods of one request come, one after the other."""

    def __init__(self, columns: Columns, row: int, known: _Request, state: int | None = None) -> None:
        self.columns, self.row, self.known = columns, row, known
        if state is None:
            state = int(states(columns, np.array([row], dtype=np.int64), ids=known.ids)[0])
        self.state = state
        self.taken: list[PodSlices] = []
        self._used: dict[int, CardAllocation] | None = None

    def on(self, answer: _Answer) -> None:
        """One more pod comes."""
        assert answer.slices is not None, "more pods than cards"
        self.taken.append(answer.slices)
        if self._used is not None:
            _book(self._used, answer.slices)
        self.state = answer.after

    @property
    def used(self) -> Mapping[int, CardAllocation]:
        """What is given away now, by card."""
        if self._used is None:
            self._used = allocations(self.columns, self.row)
            for own in self.taken:
                _book(self._used, own)
        return self._used


def _ask(walk: _Walk) -> _Answer:
    columns, row, known = walk.columns, walk.row, walk.known
    cards, facts = columns.card_sets.described(int((columns.card_ids if known.ids else columns.card_set)[row]))
    well = columns.card_ok[row].tolist()
    if known.excluded:
        models = columns.models_counted(known.excluded)[columns.card_model[row]].tolist()
        well = [ok and not excluded for ok, excluded in zip(well, models, strict=True)]
    judged = [
        card if ok or card.effective_traits.cordoned else replace(card, healthy=False)
        for card, ok in zip(cards, well, strict=False)
    ]
    try:
        found = VENDORS.fit(judged, walk.used, known.devices, facts)
    except InvalidRequest:  # a preference that was not known when the pod was placed
        found = Refused({DeviceLabel.CUSTOM: 0}, len(judged))
    if isinstance(found, Refused):
        return _Answer(found)
    slices = PodSlices.of(found, known.devices)
    return _Answer(found, slices, after(walk.state, columns, row, slices))


def _score(answer: _Answer) -> float:
    return answer.found.score if isinstance(answer.found, Fitted) else 0.0


def _book(used: dict[int, CardAllocation], slices: Sequence[CardSlice]) -> None:
    for s in slices:
        used.setdefault(s.index, CardAllocation()).book(s)


def allocations(columns: Columns, row: int) -> dict[int, CardAllocation]:
    """What is given away of each card of a row, by index; cards of which nothing is are left out."""
    parts = columns.parts.of(row) if columns.parts else {}
    figures = zip(
        columns.card_index[row].tolist(),
        columns.card_cores_used[row].tolist(),
        columns.card_memory_used[row].tolist(),
        columns.card_pods[row].tolist(),
        strict=True,
    )
    return {
        index: CardAllocation(cores, memory_mib, pods, parts.get(index, ()))
        for index, cores, memory_mib, pods in figures
        if cores or memory_mib or pods or index in parts
    }


def _numbers(columns: Columns, rows: Rows) -> list[int]:
    return list(range(len(columns.card_set))[rows]) if isinstance(rows, slice) else rows.tolist()


# States.

_CODE, _CORES, _MEMORY, _PODS, _OK = range(5)
_BITS = (1 << 64) - 1


@lru_cache(maxsize=16)
def _weights(cards: int) -> Ints:
    """`[5, cards]`, the same for a position whatever the number of cards."""
    return np.array([[_random(f"{what} {position}") for position in range(cards)] for what in range(5)], dtype=np.int64)


@lru_cache(maxsize=65_536)
def _random(what: str) -> int:
    """A signed 64-bit number that looks random and is the same in every process."""
    return int.from_bytes(blake2b(what.encode(), digest_size=8).digest(), signed=True)


def states(columns: Columns, rows: Rows, *, ids: Collection[str] = ()) -> Ints:
    """`[n]`: what rows have and what is booked on their cards, as numbers. ids: rows with cards of these are the same only where all their ids are."""
    weights = _weights(columns.card_index.shape[1])
    codes = rows_of(columns.card_set, rows)
    if ids and (named := columns.card_sets.naming(ids)):
        by_ids = rows_of(columns.card_ids, rows)
        codes = np.where(np.isin(by_ids, named), by_ids, codes)
    found: Ints = codes * weights[_CODE, 0] + (
        rows_of(columns.card_cores_used, rows) * weights[_CORES]
        + rows_of(columns.card_memory_used, rows) * weights[_MEMORY]
        + rows_of(columns.card_pods, rows) * weights[_PODS]
        + rows_of(columns.card_ok, rows) * weights[_OK]
    ).sum(axis=1)
    if columns.parts:
        place = {row: number for number, row in enumerate(_numbers(columns, rows))}
        for row in columns.parts.rows:
            if row in place:
                more = sum(count * _random(f"{index}:{part}") for (index, part), count in columns.parts.items(row))
                found[place[row]] = _wrapped(int(found[place[row]]) + more)
    return found


def after(state: int, columns: Columns, row: int, slices: Sequence[CardSlice]) -> int:
    """The state of a row once these slices are booked too."""
    weights = _weights(columns.card_index.shape[1])
    position = {index: number for number, index in enumerate(columns.card_index[row].tolist())}
    for s in slices:
        cores, memory, pods = weights[[_CORES, _MEMORY, _PODS], position[s.index]].tolist()
        state += s.cores * cores + s.memory_mib * memory + s.slots * pods
        if s.part:
            state += _random(f"{s.index}:{s.part}")
    return _wrapped(state)


def _wrapped(number: int) -> int:
    """As int64 sums wrap."""
    number &= _BITS
    return number - (1 << 64) if number >> 63 else number


def fits_of(columns: Columns) -> StateFits:
    """The answers that are shared by these columns and all views of them."""
    kept = columns.card_sets.kept
    if not isinstance(kept, StateFits):
        kept = columns.card_sets.kept = StateFits()
    return kept


@lru_cache(maxsize=4096)
def devices_of(request: CardRequest, kind: str) -> PodDevices:
    """What a request asks for, container by container; `kind`: of its cards, where it does not say."""
    if request.devices is not None:
        return request.devices
    annotation = VENDORS.kind(kind).models_annotation
    wishes = ((annotation, ",".join(request.models)),) if request.models and annotation else ()
    ask = Ask(kind, request.count, request.cores, request.memory_mib, request.memory_percent, container=request.container)
    return PodDevices((ask,), request.containers, wishes=wishes)
