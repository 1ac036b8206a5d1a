"""Cards, whole and in shares, by the rules of `hbox_common.model.validate_claim`.

An unused card accepts any request that it is large enough for. A used card accepts a share if its cores (100 in all), its memory and its number of pods permit,
and never a whole-card request. A card of unknown memory (0) can only be used whole. A pod that requests k cards gets k distinct ones.

These are the rules of plain requests, where one container requests equal cards of one kind. Other requests, and plain ones on cards whose amounts do not
suffice to decide, are decided node by node (`statefits`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import lru_cache

import numpy as np

from hbox_common.model import VENDORS, CardRequest, CardSlice, Resources, charge
from hbox_common.model.devices import ALL_CORES, DeviceLabel, Refused

from ..cluster import Batch, Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows, rows_of
from ..cluster.task import Task
from ..explain.cards import NodeCards
from ..explain.labels import Label
from .cardrules import ANY_MIB, Bounded, affordable, beyond_walls, failed_rules, memory_needed
from .rdmaadapters import Adapters, missing, ordered
from .statefits import DEEP, devices_of, fits_of

#: The whole of a card, in percent.
ALL = ALL_CORES

_UNLIMITED = 1 << 30

_ORDER = {label: place for place, label in enumerate(DeviceLabel)}


@lru_cache(maxsize=4096)
def bounded_request(request: CardRequest) -> Bounded:
    """The same request, to be bounded."""
    if isinstance(request, Bounded):
        return request
    return Bounded(**{field.name: getattr(request, field.name) for field in fields(CardRequest)})


def cores_of(request: CardRequest) -> int:
    """Percent of each card's cores that a slice has."""
    return ALL if request.whole else request.cores


def seats(columns: Columns, rows: Rows, request: CardRequest) -> Ints:
    """`[n, D]`: how many pods with one slice of this request each card takes now."""
    usable = rows_of(columns.card_ok, rows)
    if request.models:
        usable = usable & columns.models_allowed(request.models)[rows_of(columns.card_model, rows)]
    pods = rows_of(columns.card_pods, rows)
    memory = rows_of(columns.card_memory, rows)
    if (paid := affordable(request, memory)) is not None:
        usable = usable & paid
    if (beyond := beyond_walls(columns, rows, request)) is not None:
        usable = usable & ~beyond
    if request.whole:
        return np.asarray(usable & (pods == 0), dtype=np.int64)
    need = memory_needed(request, memory)
    free = memory - rows_of(columns.card_memory_used, rows)
    fits = np.where(need > 0, free // np.maximum(need, 1), np.where(free >= 0, _UNLIMITED, 0))
    cores = ALL - rows_of(columns.card_cores_used, rows)
    np.minimum(fits, cores // request.cores if request.cores else np.where(cores > 0, _UNLIMITED, 0), out=fits)
    np.minimum(fits, np.maximum(rows_of(columns.card_shares, rows) - pods, pods == 0), out=fits)
    fits[~(usable & (memory > 0)) | (fits < 0)] = 0
    return fits


def free_percent(columns: Columns, rows: Rows) -> Ints:
    """`[n, D]`: what each usable card has left, in percent: of its cores or its memory, whichever is less; rounded to the nearest."""
    memory = rows_of(columns.card_memory, rows)
    pods = rows_of(columns.card_pods, rows)
    used = rows_of(columns.card_memory_used, rows)
    left = np.where(memory > 0, (ALL * (memory - used) + memory // 2) // np.maximum(memory, 1), ALL * (pods == 0))
    np.minimum(left, ALL - rows_of(columns.card_cores_used, rows), out=left)
    left[~rows_of(columns.card_ok, rows) | (left < 0) | ((pods > 0) & (pods >= rows_of(columns.card_shares, rows)))] = 0
    return left


def _judged(columns: Columns, rows: Rows) -> Bools | None:
    """`[n]`: rows on whose cards amounts do not say all; None = there are none."""
    if not columns.any_judged:
        return None
    judged = rows_of(columns.card_judged, rows)
    return judged if judged.any() else None


def _kind(task: Task) -> str:
    return (VENDORS.of(task.requests) or VENDORS.default).kind


def _room(columns: Columns, rows: Rows, task: Task, most: int) -> Ints:
    """As `CardFit.capacity`, node by node."""
    request = task.cards
    assert request is not None
    return fits_of(columns).room(
        columns,
        rows,
        devices_of(_unbounded(request), _kind(task)),
        most=most,
        pays=_pays(task.requests, request.left) if isinstance(request, Bounded) and request.left else None,
        most_mib=request.most_mib if isinstance(request, Bounded) and request.most_mib != ANY_MIB else None,
        excluded=request.excluded if isinstance(request, Bounded) else (),
    )


def _pays(requests: Resources, left: Sequence[tuple[str, int]]) -> Callable[[Sequence[CardSlice]], bool]:
    """Whether what is left of a namespace's quotas pays for these slices of a pod."""

    def pays(slices: Sequence[CardSlice]) -> bool:
        counted = charge(requests, slices)
        return all(counted.get(name, 0) <= units for name, units in left)

    return pays


def _unbounded(request: CardRequest) -> CardRequest:
    """The request itself, which is the same for all that bound it."""
    return (
        CardRequest(**{one.name: getattr(request, one.name) for one in fields(CardRequest)})
        if isinstance(request, Bounded)
        else request
    )


class CardFit:
    """Room plugin: enough cards with enough left."""

    def __init__(self, most: int = 1) -> None:
        """most: pods of a request by containers that are counted on a node; where they are placed one by one, it matters only whether there is one."""
        self._most = most

    def capacity(self, columns: Columns, rows: Rows, task: Task) -> Ints | None:
        """For shares of several cards a lower bound, since pods could share cards in other ways."""
        request = task.cards
        if request is None:
            return None
        if request.devices is not None:
            return _room(columns, rows, task, self._most)
        fits = seats(columns, rows, request)
        each = fits.sum(axis=1) if request.count == 1 else np.count_nonzero(fits, axis=1) // request.count
        found = np.asarray(each, dtype=np.int64)
        if (judged := _judged(columns, rows)) is not None:
            found[judged] = _room(columns, np.arange(len(columns.alive))[rows][judged], task, DEEP)
        return found

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        """The rules of plain requests (`cardrules`), or node by node those of the vendor."""
        request = task.cards
        if request is None:
            return
        if request.devices is not None or _judged(columns, rows) is not None:
            yield from _refusals(columns, rows, task)
            return
        yield from failed_rules(columns, rows, task, request)


def pick(columns: Columns, rows: Ints, counts: Ints, task: Task, keys: Floats | None = None) -> Batch:
    """Choose cards for `counts[n]` pods of the task on each of `rows[n]`, which must have the room.

    Returns the batch to book, its card cells row by row and pod by pod. Order of choice: `keys` `[n, D]` where given, lowest first; else
    whole cards by index, and shares where the least is left (best fit).
    """
    request = task.cards
    nothing = np.zeros(0, dtype=np.int64)
    if request is None:
        return Batch(rows, counts, task.amount, nothing, nothing, 0, nothing, task.ports, aligned=task.aligned)
    if request.devices is not None or _judged(columns, rows) is not None:
        slices = _each(columns, rows, counts, task, keys)
        return Batch(rows, counts, task.amount, nothing, nothing, 0, nothing, task.ports, slices, task.aligned)
    if columns.zones and task.aligned is not None:
        keys = _by_zones(columns, rows, task, keys)
    if task.rdma and columns.any_adapters:
        keys = _by_adapters(columns, rows, counts, task, keys)
    if keys is None and len(rows) == 1 and request.whole and not request.models and type(request) is CardRequest:
        return _first_free(columns, rows, counts, task, request.count * int(counts[0]))
    fits = seats(columns, rows, request)
    if keys is None and not request.whole:
        keys = free_percent(columns, rows).astype(np.float64)
    wanted = counts * request.count
    if len(rows) == 1 and wanted[0] == 1:
        return _best_card(columns, rows, task, np.flatnonzero(fits[0]), None if keys is None else keys[0])
    np.minimum(fits, wanted[:, None] if request.count == 1 else 1, out=fits)
    if keys is None:
        order = np.broadcast_to(np.arange(fits.shape[1]), fits.shape)
    else:
        order = np.argsort(np.where(fits > 0, keys, np.inf), axis=1, kind="stable")
        fits = np.take_along_axis(fits, order, axis=1)
    # Seats laid out row after row, in order of choice; each row gives away its first `wanted`.
    laid = np.repeat(order.ravel(), fits.ravel())
    on_row = fits.sum(axis=1)
    starts = np.cumsum(on_row) - on_row
    rank = np.arange(len(laid)) - np.repeat(starts, on_row)
    positions = laid[rank < np.repeat(wanted, on_row)]
    card_rows = np.repeat(rows, wanted)
    assert len(positions) == len(card_rows), "more pods than seats"
    need = memory_needed(request, columns.card_memory[card_rows, positions])
    return Batch(rows, counts, task.amount, card_rows, positions, cores_of(request), need, task.ports, aligned=task.aligned)


def _best_card(columns: Columns, rows: Ints, task: Task, fitting: Ints, keys: Floats | None) -> Batch:
    """As `pick`, for one pod with one slice, as most with shares are: no card but the best has to be known. `fitting`: positions; `keys`: `[D]`."""
    request = task.cards
    assert request is not None
    assert len(fitting), "more pods than seats"
    best = 0 if keys is None else int(keys[fitting].argmin())
    positions = fitting[best : best + 1]
    need = memory_needed(request, columns.card_memory[rows, positions])
    once = np.ones(1, dtype=np.int64)
    return Batch(rows, once, task.amount, rows, positions, cores_of(request), need, task.ports, aligned=task.aligned)


#: Between cards of the zones that a pod is aligned to, and all others: more than any key.
_ELSEWHERE = 1e15


def _by_zones(columns: Columns, rows: Ints, task: Task, keys: Floats | None) -> Floats | None:
    """`[n, D]`: the keys, cards that are not in the NUMA nodes to which the pod's CPUs and devices will be aligned behind all others."""
    found: Floats | None = None
    for place, row in enumerate(rows.tolist()):
        if row not in columns.zones or task.aligned is None:
            continue
        wanted = columns.zones.zones_of(row, task.aligned)
        cards, _ = columns.card_sets.described(int(columns.card_set[row]))
        elsewhere = [position for position, card in enumerate(cards) if card.numa >= 0 and card.numa not in wanted]
        if not wanted or not elsewhere:
            continue
        if found is None:
            found = _keys(columns, rows, task, keys).copy()
        found[place, elsewhere] += _ELSEWHERE
    return keys if found is None else found


def _by_adapters(columns: Columns, rows: Ints, counts: Ints, task: Task, keys: Floats | None) -> Floats | None:
    """`[n, D]`: the keys, with the cards first that these pods take so that each has an RDMA adapter of its own (`rails.ordered`); on rows where no adapters
    are known as before."""
    found: Floats | None = None
    for place, adapters, order in _rails(columns, rows, task, keys, counts.tolist()):
        if adapters is None:
            continue
        if found is None:
            found = _keys(columns, rows, task, keys).copy()
        found[place] = _ELSEWHERE
        found[place, list(order)] = np.arange(len(order))
    return keys if found is None else found


def without_adapters(columns: Columns, rows: Rows, task: Task) -> Floats | None:
    """`[n]`: of the cards that the pod would get on each row, the share without an RDMA adapter of its own below the same host bridge (`rdmaadapters.missing`);
    0 if unknown. None: adapters do not affect the choice of its cards."""
    request = task.cards
    if request is None or request.devices is not None:
        return None
    numbers = np.arange(len(columns.alive))[rows]
    keys = _by_zones(columns, numbers, task, None) if columns.zones and task.aligned is not None else None
    found = np.zeros(len(numbers), dtype=np.float64)
    for place, adapters, order in _rails(columns, numbers, task, keys, [1] * len(numbers)):
        if adapters is not None:
            found[place] = missing(adapters, order[: request.count])
    return found


def _rails(
    columns: Columns, rows: Ints, task: Task, keys: Floats | None, counts: Sequence[int]
) -> Iterator[tuple[int, Adapters | None, tuple[int, ...]]]:
    """Place among the rows, adapters by position (None: unknown), and the usable cards in the order in which so many pods get them."""
    request = task.cards
    assert request is not None
    if request.devices is not None:
        return
    usable, pods = seats(columns, rows, request) > 0, columns.card_pods[rows] > 0
    base = _keys(columns, rows, task, keys)
    for place, row in enumerate(rows.tolist()):
        cards, _ = columns.card_sets.described(int(columns.card_set[row]))
        adapters = tuple([card.adapters for card in cards])
        if not any(adapters):
            yield place, None, ()
            continue
        own = base[place]
        open_ = np.flatnonzero(usable[place])
        open_ = open_[np.argsort(own[open_], kind="stable")]
        elsewhere = frozenset(np.flatnonzero(own >= _ELSEWHERE).tolist())
        used = frozenset(np.flatnonzero(pods[place]).tolist())
        # Several pods may share a card that is not taken whole: then the first order holds for all of them.
        count = counts[place] if request.whole else 1
        yield place, adapters, ordered(adapters, tuple(open_.tolist()), elsewhere, used, cards=request.count, pods=count)


def _keys(columns: Columns, rows: Ints, task: Task, keys: Floats | None) -> Floats:
    """`[n, D]`: the default order of choice, as numbers."""
    if keys is not None:
        return keys
    if task.cards is not None and not task.cards.whole:
        return free_percent(columns, rows).astype(np.float64)
    width = columns.card_index.shape[1]
    return np.broadcast_to(np.arange(width, dtype=np.float64), (len(rows), width))


def _each(
    columns: Columns, rows: Ints, counts: Ints, task: Task, keys: Floats | None
) -> list[tuple[int, tuple[CardSlice, ...]]]:
    """Row and slices of each pod, in the order of the rows."""
    request = task.cards
    assert request is not None
    fits, devices = fits_of(columns), devices_of(_unbounded(request), _kind(task))
    excluded = request.excluded if isinstance(request, Bounded) else ()
    found: list[tuple[int, tuple[CardSlice, ...]]] = []
    for place, (row, count) in enumerate(zip(rows.tolist(), counts.tolist(), strict=True)):
        if request.devices is not None or columns.card_judged[row]:
            own: Sequence[tuple[CardSlice, ...]] = fits.take(columns, row, devices, count, excluded)
        else:
            one = slice(place, place + 1)
            batch = pick(columns, rows[one], counts[one], task, keys[one] if keys is not None else None)
            own = slices_of(columns, batch, request.count)
        found += ((row, slices) for slices in own)
    return found


def _refusals(columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
    """As `CardFit.failures`, node by node: the last of the labels that its cards have."""
    assert task.cards is not None
    found = fits_of(columns).refused(columns, rows, devices_of(_unbounded(task.cards), _kind(task)))
    last = [
        None if one is None else max(one.cards, key=_ORDER.__getitem__, default=DeviceLabel.NODE_INSUFFICIENT) for one in found
    ]
    for label in DeviceLabel:
        fails = np.array([one is label for one in last], dtype=np.bool_)
        if fails.any():
            yield str(label), fails
    if isinstance(task.cards, Bounded):
        room = _room(columns, rows, task, 1)
        fits = np.array([one is None for one in found], dtype=np.bool_)
        yield Label.CARD_QUOTA if task.cards.most_mib != ANY_MIB or task.cards.left else Label.QUEUE_MODEL, fits & (room == 0)


#: Weight of the policy's score next to the vendors' figures of nodes: these differ by a thousandth or more, and the policy's sum is some thousands at most.
TIE_BREAK = 1e-7


def ranked_by_devices(columns: Columns, rows: Rows, task: Task) -> Floats | None:
    """`[n]`: scores of the nodes by their vendors' rules, the highest first, if the pod requests that or these rules alone decide; else None."""
    request = task.cards
    if request is None or request.devices is None:
        return None
    fits = fits_of(columns)
    sign = fits.ranks(request.devices)
    return sign * fits.usage(columns, rows, request.devices) if sign else None


def usage_of_ranked(columns: Columns, rows: Rows, task: Task) -> Floats | None:
    """`[n]`: as `ranked_by_devices`, but the vendors' own figure, whether the highest or the lowest is first."""
    request = task.cards
    if request is None or request.devices is None or not fits_of(columns).ranks(request.devices):
        return None
    return fits_of(columns).usage(columns, rows, request.devices)


def node_cards(columns: Columns, rows: Rows, task: Task) -> list[NodeCards | None]:
    """`[n]`: labels of the cards of each row, as HAMi counts them (sources: hami-labels); None if a pod fits, or requests no card."""
    if task.cards is None:
        return [None] * len(columns.alive[rows])
    found = fits_of(columns).refused(columns, rows, devices_of(_unbounded(task.cards), _kind(task)))
    numbers = list(range(len(columns.alive)))[rows] if isinstance(rows, slice) else rows.tolist()
    results = [None if one is None else _node_cards(columns.names[row], one) for row, one in zip(numbers, found, strict=True)]
    if isinstance(task.cards, Bounded):
        bound = str(Label.CARD_QUOTA if task.cards.most_mib != ANY_MIB or task.cards.left else Label.QUEUE_MODEL)
        room = CardFit().capacity(columns, rows, task)
        assert room is not None
        for place, (row, own) in enumerate(zip(numbers, room.tolist(), strict=True)):
            if results[place] is None and own <= 0:
                cards = int(np.count_nonzero(columns.card_index[row] >= 0))
                results[place] = NodeCards(columns.names[row], cards, 0, {bound: 0})
    return results


def _node_cards(node: str, found: Refused) -> NodeCards:
    failed = sum(count for label, count in found.cards.items() if label is not DeviceLabel.TOO_FEW)
    fitting = 0 if DeviceLabel.NODE_INSUFFICIENT in found.cards else max(found.of - failed, 0)
    labels = {str(label): count for label, count in found.cards.items()}
    return NodeCards(node, found.of, fitting, labels, found.container)


def _first_free(columns: Columns, rows: Ints, counts: Ints, task: Task, cards: int) -> Batch:
    """As `pick`, for whole cards of any model on one row."""
    row = rows.item()
    positions = np.flatnonzero(columns.card_ok[row] & (columns.card_pods[row] == 0))[:cards]
    assert len(positions) == cards, "more pods than seats"
    memory_mib = columns.card_memory[row, positions]
    return Batch(rows, counts, task.amount, rows.repeat(cards), positions, ALL, memory_mib, task.ports, aligned=task.aligned)


@lru_cache(maxsize=65_536)
def _slices(cells: bytes, cores: int) -> tuple[CardSlice, ...]:
    """From the bytes of index and memory in turn."""
    pairs = np.frombuffer(cells, dtype=np.int64).reshape(-1, 2).tolist()
    return tuple(CardSlice(index, cores, memory) for index, memory in pairs)


def slices_of(columns: Columns, batch: Batch, cards: int) -> list[tuple[CardSlice, ...]]:
    """The slices of each pod of a batch, `cards` to a pod. Equal ones are one object: a gang's pods mostly take the same cards everywhere."""
    if batch.slices:
        return [slices for _, slices in batch.slices]
    if not cards:
        return [()] * int(batch.counts.sum())
    indexes = columns.card_index[batch.card_rows, batch.card_positions]
    cells = np.stack((indexes, batch.memory_mib), axis=1).tobytes()
    width = 16 * cards
    cores, pods = batch.cores, len(cells) // width
    if cells == cells[:width] * pods:
        return [_slices(cells[:width], cores)] * pods
    return [_slices(cells[start : start + width], cores) for start in range(0, len(cells), width)]
