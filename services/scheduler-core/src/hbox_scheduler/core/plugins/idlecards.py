"""idle-cards: pods without cards leave on a node what its idle cards will need (requirements B7).

A pod that asks for no card takes of a node with cards what is free there beyond a share of cpu and memory for each idle card. The share of one card is
`percent` of what the node has divided by its cards, unless the policy, the node's pool (`pools`) or the node itself (labels `hbox.io/cpu-per-card` and
`hbox.io/memory-per-card`, as quantities; 0 keeps nothing) name an amount; it is never more than what the node has divided by its cards. Cards are physical
ones, also where a node offers each of them in slots; a card that is used in part counts with the part that is left, one that is sick or full not at all.

Nodes that are not meant for mixed work take no pod without cards at all: those of which the policy, their pool or their own label `hbox.io/cards-only` says
so.

Pods with cards, pods that ask for neither cpu nor memory, and pods of other schedulers and of DaemonSets are never refused for what is kept. What the latter
hold counts as held, as everything that is booked does: it comes out of what is lent first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS
from hbox_common.model.pools import POOL, POOLED
from hbox_common.model.resources import CPU, MEMORY, request_units

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows, rows_of
from ..cluster.interning import LabelColumn
from ..cluster.task import Task
from ..devices import ALL, free_percent
from ..explain.labels import Label
from ..framework.hooks import ShapeMask, ShapeRoom
from .arguments import Arguments, Given

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

#: Of a node, by resource: what each idle card keeps, as a quantity. Who may label nodes says so.
NODE_LABELS: Mapping[str, str] = {CPU: "hbox.io/cpu-per-card", MEMORY: "hbox.io/memory-per-card"}

#: Of a node: "true" where it takes pods with cards alone, "false" where it takes others whatever its pool says.
CARDS_ONLY = "hbox.io/cards-only"

_ANY = 1 << 30


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
        self._share = _share(arguments, "plugin idle-cards", Share(75.0, {}))
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
        return task.cards is None and not task.offline  # who goes at once keeps no card idle

    def room_by_amounts(self, columns: Columns) -> bool:
        """Where neither pools nor labels of nodes say what is kept."""
        return not self._pools and all(len(columns.descriptions.column(label).values) == 1 for label in NODE_LABELS.values())

    def shape_room(self, columns: Columns, rows: Rows, task: Task) -> Ints:
        idle = idle_cards(columns, rows)
        cards = np.maximum(np.count_nonzero(rows_of(columns.card_index, rows) >= 0, axis=1), 1)
        room = np.full(idle.shape, _ANY, dtype=np.int64)
        for resource in NODE_LABELS:
            if units := task.requests.get(resource, 0):
                column = columns.resource(resource)
                share = self._per_card(columns, rows, resource, columns.allocatable[column][rows] / cards)
                kept = np.ceil(idle * share).astype(np.int64)
                np.minimum(room, (columns.allocatable[column][rows] - columns.used[column][rows] - kept) // units, out=room)
        return room

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
    """`[n]`: sound cards that nobody uses, and of those used in part what is left; no more than the node has units left to be asked for, since of some
    pods nobody knows which cards they have."""
    units = np.zeros(columns.alive[rows].shape, dtype=np.int64)
    for name in VENDORS.named(columns.resources):
        column = columns.resources[name]
        units += np.maximum(columns.allocatable[column][rows] - columns.used[column][rows], 0)
    return np.asarray(np.minimum(free_percent(columns, rows).sum(axis=1) / ALL, units))


def _kept(share: Share, resource: str, even: Floats) -> Floats:
    units = share.units.get(resource)
    return even * (share.percent / 100) if units is None else np.full(even.shape, float(units))


def _labelled(labels: LabelColumn, resource: str) -> Floats:
    """By code; NaN where the node says nothing, or nothing that can be read."""
    said: Iterator[int | None] = (None if value is None else _written(resource, value) for value in labels.values)
    return np.array([np.nan if units is None else float(units) for units in said])


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
