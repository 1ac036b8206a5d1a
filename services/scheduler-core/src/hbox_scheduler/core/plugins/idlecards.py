"""idle-cards: pods without cards leave on a node the cpu and memory that its idle cards will need (requirements B7).

On a node with cards, a pod that requests no card may use the free cpu and memory beyond a share for each idle card. The share of one card is `percent` of the
node's amount divided by its cards, unless the policy, the node's pool (`pools`) or the node itself (labels `hbox.io/cpu-per-card` and
`hbox.io/memory-per-card`, as quantities; 0 keeps nothing) set an amount; it is never more than the node's amount divided by its cards. Cards are physical ones,
also if a node offers each in slots; a partly used card counts with its free part, an unhealthy or full card does not count.

If the NUMA nodes of a node are known (`cluster/zones.py`), a card's share is also kept on the card's own NUMA node, for resources that the kubelet allocates
exclusively: a pod that would get exclusive cores (Guaranteed, whole CPUs) is placed where none of them are kept. The kubelet chooses the zone of these cores,
and the scheduler predicts its choice. A card keeps there no more than the zone has for each of its cards, by the same percentage. Cards of unknown zone keep
cores only in the node's sums, and so do all cards for pods without exclusive cores.

A part of the kept amount is lent to small pods, bounded in sum (`hbox_common.model.lentfloor`).

Nodes that are not meant for mixed work accept no pod without cards: nodes marked so by the policy, their pool or their own label `hbox.io/cards-only`.

The plugin never rejects pods with cards, pods that request neither cpu nor memory, and pods of other schedulers and of DaemonSets. What the latter hold counts
as held, like every booking: it reduces the lent part first.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS
from hbox_common.model.lentfloor import MOST, PART, PERCENT, is_small
from hbox_common.model.numa import Zone
from hbox_common.model.pools import POOL, POOLED
from hbox_common.model.resources import CPU, MEMORY, MIB, request_units

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows, rows_of
from ..cluster.interning import LabelColumn
from ..cluster.task import Task
from ..cluster.zones import Kept
from ..devices import ALL, free_percent
from ..explain.labels import Label
from ..framework.hooks import ShapeMask, ShapeRoom
from ..framework.zones import known_rows
from .arguments import Arguments, Given

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

#: Labels of a node, by resource: the amount that each idle card keeps, as a quantity.
NODE_LABELS: Mapping[str, str] = {CPU: "hbox.io/cpu-per-card", MEMORY: "hbox.io/memory-per-card"}

#: Label of a node: "true" if it accepts only pods with cards, "false" if it accepts other pods whatever its pool's setting.
CARDS_ONLY = "hbox.io/cards-only"

_ANY = 1 << 30

#: Of a unit of zones so many base units of columns.
_BASE: Mapping[str, int] = {CPU: 1000, MEMORY: 1}


@dataclass(frozen=True, slots=True)
class Share:
    """What one idle card keeps: `units` by resource where an amount is named, else `percent` of what the node has for each of its cards. cards_only: the
    node takes no pods without cards."""

    percent: float
    units: Mapping[str, int]
    cards_only: bool = False


class IdleCards(ShapeRoom, ShapeMask):
    """Arguments: percent (75), cpu, memory (quantities; by the percentage where they are not written), cards-only (false), pools {<name>: {percent, cpu,
    memory, cards-only}}: what is not written for a pool is as for all."""

    name = "idle-cards"
    label = Label.PROPORTION_KEPT

    def __init__(self, conf: "PluginConf") -> None:
        """Raises InvalidRequest for arguments that are wrong."""
        arguments = Arguments(conf)
        self._share = _share(arguments, "plugin idle-cards", Share(PERCENT, {}))
        self._pools: dict[str, Share] = {}
        pools = arguments.nested("pools")
        for pool in arguments.mapping("pools"):
            given = pools.nested(pool)
            self._pools[pool] = _share(given, f"plugin idle-cards, pools.{pool}", self._share)
            given.done()
        arguments.done()

    def open(self, session: "Session") -> None:
        for resource, label in NODE_LABELS.items():
            for value in session.columns.descriptions.column(label).values:
                if value is not None and _written(resource, value) is None:
                    session.outcome.warn(
                        f"label {label}={value} of a node is not a quantity and counts as if it were not there; write it like 8, 500m or 64Gi"
                    )

        for value in session.columns.descriptions.column(CARDS_ONLY).values:
            if value not in (None, "true", "false"):
                session.outcome.warn(
                    f"label {CARDS_ONLY}={value} of a node counts as if it were not there; write true or false"
                )

    def shape_failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        if task.cards is not None:
            return
        labels, pools = columns.descriptions.column(CARDS_ONLY), columns.descriptions.column(POOL)
        if len(labels.values) == 1 and not (self._share.cards_only or any(own.cards_only for own in self._pools.values())):
            return
        closed = np.full(columns.alive[rows].shape, self._share.cards_only)
        for pool, own in self._pools.items():
            of_pool = pools.matching(lambda value, pool=pool: (value or POOLED) == pool, rows)  # type: ignore[misc]
            closed = np.where(of_pool, own.cards_only, closed)
        closed |= labels.matching(lambda value: value == "true", rows)
        closed &= ~labels.matching(lambda value: value == "false", rows)
        yield Label.CARDS_ONLY, closed & (rows_of(columns.card_index, rows) >= 0).any(axis=1)

    def limits(self, task: Task) -> bool:
        return task.cards is None and not task.offline  # offline pods leave at once and keep no card idle

    def room_by_amounts(self, columns: Columns) -> bool:
        """Where neither pools nor labels of nodes say what is kept."""
        return not self._pools and all(len(columns.descriptions.column(label).values) == 1 for label in NODE_LABELS.values())

    def shape_room(self, columns: Columns, rows: Rows, task: Task) -> Ints:
        idle = idle_cards(columns, rows)
        cards = np.maximum(np.count_nonzero(rows_of(columns.card_index, rows) >= 0, axis=1), 1)
        room = np.full(idle.shape, _ANY, dtype=np.int64)
        small = is_small(task.requests)
        for resource in NODE_LABELS:
            if units := task.requests.get(resource, 0):
                column = columns.resource(resource)
                share = self._per_card(columns, rows, resource, columns.allocatable[column][rows] / cards)
                kept = np.ceil(idle * share).astype(np.int64)
                if small:
                    kept -= np.minimum((kept * PART).astype(np.int64), MOST[resource])
                free = columns.allocatable[column][rows] - columns.used[column][rows]
                # If too little is free, or nothing is kept, idle cards are not the reason.
                np.minimum(room, np.where((kept > 0) & (free >= units), (free - kept) // units, _ANY), out=room)
        if columns.zones and task.aligned is not None:
            for place, row, by_zone in self._kept_by_zone(columns, rows, task):
                zone_room = columns.zones.room_above_kept(row, task.aligned, by_zone)
                if zone_room is not None:
                    room[place] = min(room[place], zone_room)
        return room

    def room_explanation(self, columns: Columns, row: int, task: Task) -> str:
        one = np.array([row])
        if not columns.zones or task.aligned is None:
            return ""
        for _, _, kept in self._kept_by_zone(columns, one, task):
            if columns.zones.room_above_kept(row, task.aligned, kept) == 0:
                zones, _ = columns.zones.zones(row)
                cards, _ = columns.card_sets.described(int(columns.card_set[row]))
                percent = free_percent(columns, one)[0]
                parts = []
                for place, zone in enumerate(zones):
                    idle = [c.index for p, c in enumerate(cards) if c.numa == zone.id and percent[p] > 0]
                    for resource, amounts in kept:
                        if amounts[place]:
                            parts.append(
                                f"zone {zone.id} keeps {_kept_text(resource, amounts[place], zone)} for cards {', '.join(map(str, idle))}"
                            )
                return f"{columns.names[row]}: {'; '.join(parts)}"
        return ""

    def _kept_by_zone(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[int, int, Kept]]:
        """Of these rows those with zones that keep something that the pod will have alone: the place among the rows, the row, and what its zones keep."""
        aligned = task.aligned
        asked = {name for container in aligned.containers for name, _ in container} if aligned is not None else set()
        named = [resource for resource in NODE_LABELS if resource in asked]
        known = list(known_rows(columns, rows)) if named else []
        if not known:
            return
        numbers = np.array([row for _, row in known])
        zones = [columns.zones.zones(row) for _, row in known]
        width = max(len(vacant) for _, vacant in zones)
        where = np.stack([_places(columns, row, vacant) for (_, row), (_, vacant) in zip(known, zones, strict=True)])
        idle, cards, lines = (
            np.zeros((len(known), width + 1)),
            np.zeros((len(known), width + 1)),
            np.arange(len(known))[:, None],
        )
        np.add.at(idle, (lines, where), free_percent(columns, numbers) / ALL)
        np.add.at(cards, (lines, where), 1)
        idle, cards = idle[:, :width], np.maximum(cards[:, :width], 1)
        for line, (now, _) in enumerate(zones):
            idle[line, : len(now)] = np.minimum(idle[line, : len(now)], _free_cards(now))
        kept = np.zeros((len(named), len(known), width), dtype=np.int64)
        of_node = np.maximum(np.count_nonzero(columns.card_index[numbers] >= 0, axis=1), 1)
        for place, resource in enumerate(named):
            column = columns.resource(resource)
            has = [[zone.free.get(resource, 0) for zone in vacant] + [0] * (width - len(vacant)) for _, vacant in zones]
            even = np.minimum(
                (columns.allocatable[column][numbers] / of_node)[:, None],
                np.array(has, dtype=np.float64) * _BASE[resource] / cards,
            )
            share = self._per_card(columns, np.repeat(numbers, width), resource, even.ravel()).reshape(even.shape)
            kept[place] = np.ceil(np.round(idle * share / _BASE[resource], 6))  # in units of zones
        for line, (place, row) in enumerate(known):
            own = kept[:, line, : len(zones[line][0])].tolist()
            if any(map(any, own)):
                yield place, row, tuple((resource, tuple(amounts)) for resource, amounts in zip(named, own, strict=True))

    def _per_card(self, columns: Columns, rows: Rows, resource: str, even: Floats) -> Floats:
        """`[n]`: what one idle card keeps of the resource. even: `[n]`, what the node has for each of its cards."""
        share = _kept(self._share, resource, even)
        if self._pools:
            pools = columns.descriptions.column(POOL)
            for pool, own in self._pools.items():
                of_pool = pools.matching(lambda value, pool=pool: (value or POOLED) == pool, rows)  # type: ignore[misc]
                share = np.where(of_pool, _kept(own, resource, even), share)
        labels = columns.descriptions.column(NODE_LABELS[resource])
        if len(labels.values) > 1:
            written = _labelled(labels, resource)[labels.codes[rows]]
            share = np.where(np.isnan(written), share, written)
        return np.asarray(np.minimum(share, even))


def idle_cards(columns: Columns, rows: Rows) -> Floats:
    """`[n]`: healthy unused cards and the free parts of partly used ones; at most the node's free units, since the cards of some pods are unknown."""
    units = np.zeros(columns.alive[rows].shape, dtype=np.int64)
    for name in VENDORS.named(columns.resources):
        column = columns.resources[name]
        units += np.maximum(columns.allocatable[column][rows] - columns.used[column][rows], 0)
    return np.asarray(np.minimum(free_percent(columns, rows).sum(axis=1) / ALL, units))


def _kept_text(resource: str, keeps: int, zone: Zone) -> str:
    free = max(0, zone.free.get(resource, 0))
    return f"{keeps} cpus of {free} free" if resource == CPU else f"{keeps // MIB} MiB of memory of {free // MIB} free"


def _places(columns: Columns, row: int, zones: Sequence[Zone]) -> Ints:
    """`[D]`: of each card of the row the place of its zone; -1 where it has none that is known."""
    place_of = {zone.id: place for place, zone in enumerate(zones)}
    cards, _ = columns.card_sets.described(int(columns.card_set[row]))
    found = np.full(columns.card_index.shape[1], -1, dtype=np.int64)
    found[: len(cards)] = [place_of.get(card.numa, -1) for card in cards]
    return found


def _free_cards(zones: Sequence[Zone]) -> list[float]:
    """Maximum number of free cards by zone, from the kubelet's free devices; only the kubelet knows the cards of some pods."""
    names = VENDORS.named(zones[0].free) if zones else ()
    return [float(sum(max(0, zone.free.get(name, 0)) for name in names)) if names else math.inf for zone in zones]


def _kept(share: Share, resource: str, even: Floats) -> Floats:
    units = share.units.get(resource)
    return even * (share.percent / 100) if units is None else np.full(even.shape, float(units))


def _labelled(labels: LabelColumn, resource: str) -> Floats:
    """By code; NaN if the node has no label or an unreadable one."""
    amounts: Iterator[int | None] = (None if value is None else _written(resource, value) for value in labels.values)
    return np.array([np.nan if units is None else float(units) for units in amounts])


@lru_cache(maxsize=4096)
def _written(resource: str, value: str) -> int | None:
    """Base units of a label's value; None where it is none."""
    try:
        return request_units(resource, value)
    except InvalidRequest:
        return None


def _share(given: Given, whose: str, default: Share) -> Share:
    percent = given.number("percent", default.percent, least=0, most=100)
    units = dict(default.units)
    for resource in NODE_LABELS:
        if text := given.text(resource):
            try:
                units[resource] = request_units(resource, text)
            except InvalidRequest as wrong:
                raise InvalidRequest(f"{whose}, argument {resource}: {wrong.message}", hint=wrong.hint) from wrong
    return Share(percent, units, given.switch("cards-only", default.cards_only))
