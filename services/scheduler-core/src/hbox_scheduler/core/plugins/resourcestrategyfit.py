"""resource-strategy-fit: each resource packed or spread by its own strategy; nodes with scarce resources kept free of pods that do not need them; and
cpu and memory kept for the idle cards of a node (sources: volcano-resource-strategy-fit)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, is_host_port
from hbox_common.model.resources import CPU, GIB, MEMORY, PODS

from ..cluster import Columns
from ..cluster.arrays import Floats, Ints, Rows
from ..cluster.task import Task
from ..explain.labels import Label
from ..framework.hooks import ShapeRoom, ShapeScore
from .arguments import Arguments, Given
from .idlecards import idle_cards

if TYPE_CHECKING:
    from ..framework.conf import PluginConf

_PLUGIN = "plugin resource-strategy-fit"
_ANY = 1 << 30
_MOST, _LEAST = "MostAllocated", "LeastAllocated"


@dataclass(frozen=True, slots=True)
class _Strategy:
    most: bool
    weight: float


@dataclass(frozen=True, slots=True)
class _Kept:
    """For each idle unit of a resource: cores, and GiB."""

    cpu: float
    memory_gib: float


class ResourceStrategyFit(ShapeRoom, ShapeScore):
    """Arguments: resourceStrategyFitWeight (10), resources {<name or prefix*>: {type: MostAllocated | LeastAllocated, weight (1)}} (cpu and memory, each
    LeastAllocated, where none is named), sra {enable (false), resources, weight (10), resourceWeight {<name>: (1)}}, proportional {enable (false),
    resources, resourceProportion {<name>.cpu (1), <name>.memory (1)}}: cores and GiB."""

    name = "resource-strategy-fit"
    label = Label.PROPORTION_KEPT
    fills = False
    by_amounts = True
    by_requests = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._weight = arguments.number("resourceStrategyFitWeight", 10, least=0)
        self._strategies = {
            name: _strategy(name, row) for name, row in arguments.mapping("resources").items()
        } or dict.fromkeys((CPU, MEMORY), _Strategy(most=False, weight=1.0))
        self._sra_weight, self._scarce = _scarce(arguments.nested("sra"))
        self._kept = _kept(arguments.nested("proportional"))
        arguments.done()

    def limits(self, task: Task) -> bool:
        """Pods that ask for none of these resources leave what the idle units will need."""
        return bool(self._kept) and not any(task.requests.get(name, 0) for name in self._kept)

    def shape_room(self, columns: Columns, rows: Rows, task: Task) -> Ints:
        room = np.full(columns.alive[rows].shape, _ANY, dtype=np.int64)
        for name, kept in self._kept.items():
            idle = _idle(columns, rows, name)
            for resource, units in ((CPU, 1000 * kept.cpu), (MEMORY, GIB * kept.memory_gib)):
                at = columns.resource(resource)
                left = columns.allocatable[at][rows] - columns.used[at][rows] - np.ceil(idle * units).astype(np.int64)
                asked = task.requests.get(resource, 0)
                fits = left // asked if asked else np.where(left < 0, 0, _ANY)
                np.minimum(room, np.where(idle > 0, fits, _ANY), out=room)
        return room

    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        return self._fit(columns, rows, task) + self._spared(columns, rows, task)

    def _fit(self, columns: Columns, rows: Rows, task: Task) -> Floats:
        total = np.zeros(columns.alive[rows].shape, dtype=np.float64)
        weights = 0.0
        for name, units in task.requests.items():
            strategy = self._of(name)
            if units <= 0 or strategy is None or name == PODS:
                continue
            column = columns.resource(name)
            allocatable = columns.allocatable[column][rows]
            share = (columns.used[column][rows] + units) / np.maximum(allocatable, 1)
            fits = share <= 1.0
            total += strategy.weight * np.where(fits & (allocatable > 0), share if strategy.most else 1.0 - share, 0.0)
            weights += strategy.weight
        return total * (100.0 * self._weight / weights) if weights else total

    def _spared(self, columns: Columns, rows: Rows, task: Task) -> Floats:
        """Nodes without scarce resources; a node that lacks a requested resource gains nothing."""
        total = np.zeros(columns.alive[rows].shape, dtype=np.float64)
        all_weights = sum(self._scarce.values())
        if not all_weights or not self._sra_weight:
            return total
        useless = np.zeros(total.shape, dtype=np.bool_)
        for name, units in task.requests.items():
            if units > 0 and not is_host_port(name):
                useless |= columns.allocatable[columns.resource(name), rows] == 0
        for name, weight in self._scarce.items():
            total += weight * (columns.allocatable[columns.resource(name), rows] == 0)
        return np.where(useless, 0.0, total * (100.0 * self._sra_weight / all_weights))

    def _of(self, name: str) -> _Strategy | None:
        found = self._strategies.get(name)
        if found is not None:
            return found
        prefixes = [key for key in self._strategies if key.endswith("*") and name.startswith(key[:-1])]
        return self._strategies[max(prefixes, key=len)] if prefixes else None


def _idle(columns: Columns, rows: Rows, name: str) -> Floats:
    """`[n]`: free units of the resource; of cards the physical ones, however many slots a node offers each in."""
    column = columns.resource(name)
    allocatable = columns.allocatable[column][rows]
    left: Floats = np.maximum(allocatable - columns.used[column][rows], 0).astype(np.float64)
    if name not in VENDORS.cards:
        return left
    known = (columns.card_index[rows] >= 0).any(axis=1)
    return np.asarray(np.where(known & (allocatable > 0), idle_cards(columns, rows), left))


def _strategy(name: str, row: Any) -> _Strategy:
    if not isinstance(row, Mapping) or row.get("type") not in (_MOST, _LEAST):
        raise InvalidRequest(f"{_PLUGIN}, resources.{name}: {row!r}", hint=f"write {{type: {_MOST} or {_LEAST}, weight: 1}}")
    given = Given(f"{_PLUGIN}, resources.{name}", row)
    most, weight = given.text("type") == _MOST, given.number("weight", 1.0, least=0)
    given.done()
    return _Strategy(most, weight)


def _scarce(given: Given) -> tuple[float, Mapping[str, float]]:
    """The weight of it all, and those of the scarce resources."""
    enabled, names = given.switch("enable", False), given.names("resources")
    weight, weights = given.number("weight", 10.0, least=0), given.nested("resourceWeight")
    found = {name: weights.number(name, 1.0, least=0) for name in names}
    weights.done()
    given.done()
    return (weight, found) if enabled else (0.0, {})


def _kept(given: Given) -> Mapping[str, _Kept]:
    enabled, names, shares = given.switch("enable", False), given.names("resources"), given.nested("resourceProportion")
    found = {
        name: _Kept(shares.number(f"{name}.cpu", 1.0, least=0), shares.number(f"{name}.memory", 1.0, least=0)) for name in names
    }
    shares.done()
    given.done()
    return found if enabled else {}
