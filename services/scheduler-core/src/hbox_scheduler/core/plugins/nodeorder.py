"""nodeorder: kube-scheduler's scores, weighted (sources: volcano-nodeorder). Each is 0 to 100 before its weight."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import TaintEffect
from hbox_common.model.devices import VENDORS
from hbox_common.model.resources import CPU, MEMORY, MIB

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows, cells_of
from ..cluster.entities import Member
from ..cluster.task import Task
from ..framework.hooks import CandidateScore, PodScore, ShapeScore
from . import podaffinity, topologyspread
from .arguments import Arguments
from .nodeaffinity import term_mask
from .predicates import judged
from .taints import untolerated

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

#: Argument -> weight that it has where nothing is written.
WEIGHTS = {
    "leastrequested": 1,
    "mostrequested": 0,
    "nodeaffinity": 2,
    "podaffinity": 2,
    "balancedresource": 1,
    "tainttoleration": 3,
    "imagelocality": 1,
    "podtopologyspread": 2,
}

#: Counted for pods that ask for nothing (kube-scheduler's DefaultMilliCPURequest and DefaultMemoryRequest).
_NON_ZERO = {CPU: 100, MEMORY: 200 * MIB}

#: Image sizes, in bytes, between which locality counts (kube-scheduler's ImageLocality).
_IMAGE_LEAST, _IMAGE_MOST = 23 * 2**20, 1000 * 2**20


#: Tasks of which the amounts are kept.
_TASKS = 4096


class NodeOrder(ShapeScore, PodScore, CandidateScore):
    """`<name>.weight` sets a weight; 0 switches a score off."""

    name = "nodeorder"
    fills = False
    by_amounts = True
    by_requests = True
    sees_plain_pods = False

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._weights = {name: arguments.number(f"{name}.weight", weight, least=0) for name, weight in WEIGHTS.items()}
        arguments.done()
        self.reads_images = self._weights["imagelocality"] > 0
        self._session: Session | None = None
        self._asked: dict[Task, _Asked] = {}

    def open(self, session: "Session") -> None:
        self._session = session
        self._image_scores: dict[tuple[str, ...], Floats] = {}

    def concerns(self, member: Member) -> bool:
        """Whether a score by more than how full a node is differs between nodes."""
        assert self._session is not None
        weights, constraints, task = self._weights, member.constraints, member.task
        if weights["nodeaffinity"] and task.preferred:
            return True
        if (
            weights["imagelocality"]
            and (images := self._images(member, self._session.columns)) is not None
            and images.min() < images.max()
        ):
            return True
        if weights["podtopologyspread"] and constraints.spread:
            return True
        if weights["podaffinity"] and (constraints.preferred_affinity or constraints.preferred_anti_affinity):
            return True
        population = self._session.population
        if (
            weights["podaffinity"]
            and member.selectable
            and any(any(population.term_counts(constraint)) for constraint in podaffinity.SCORED)
        ):
            return True
        return bool(weights["tainttoleration"]) and any(
            untolerated(taints, task.tolerations, (TaintEffect.PREFER_NO_SCHEDULE,))
            for taints in self._session.columns.descriptions.taint_sets
        )

    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        """How full a node is, and how evenly."""
        weights, asked = self._weights, self._asked.get(task)
        if asked is None:
            if len(self._asked) >= _TASKS:
                self._asked.clear()
            asked = self._asked[task] = _asked(columns, task)
        has = cells_of(columns.allocatable, asked.columns, rows)
        fractions = (cells_of(columns.used, asked.columns, rows) + asked.units) / np.maximum(has, 1)
        np.minimum(fractions, 1.0, out=fractions)
        there = has > 0
        lacks = not there.all()  # on most clusters every node has what most pods ask for
        if lacks:
            fractions[~there] = 0.0
        requested = fractions[:_REQUESTED]
        total = np.zeros(has.shape[1], dtype=np.float64)
        if weights["leastrequested"]:
            free = 1.0 - requested
            if lacks:
                free[~there[:_REQUESTED]] = 0.0
            total += weights["leastrequested"] * 100.0 * (np.add.reduce(free, axis=0) / _REQUESTED)
        if weights["mostrequested"]:
            total += weights["mostrequested"] * 100.0 * (np.add.reduce(requested, axis=0) / _REQUESTED)
        if weights["balancedresource"]:
            even = asked.balanced
            total += weights["balancedresource"] * 100.0 * _balance(fractions[even], there[even] if lacks else None)
        return total

    def score(self, member: Member, columns: Columns) -> Floats | None:
        """The pod's images that a node has."""
        weight = self._weights["imagelocality"]
        images = self._images(member, columns) if weight else None
        return None if images is None else weight * images

    def normalised(self, member: Member, columns: Columns, candidates: Bools) -> Floats | None:
        assert self._session is not None
        total = np.zeros(columns.size, dtype=np.float64)
        weights, population = self._weights, self._session.population
        if weights["nodeaffinity"]:
            total += weights["nodeaffinity"] * _node_affinity(member, columns, candidates)
        if weights["tainttoleration"]:
            total += weights["tainttoleration"] * _taint_toleration(member, columns, candidates)
        if weights["podaffinity"] and (near := podaffinity.score(population, member, candidates)) is not None:
            total += weights["podaffinity"] * near
        if weights["podtopologyspread"] and member.constraints.spread:
            spread = topologyspread.score(population, member, candidates, *judged(member, columns))
            if spread is not None:
                total += weights["podtopologyspread"] * spread
        return total

    def _images(self, member: Member, columns: Columns) -> Floats | None:
        """Bytes of the pod's images that a node has already, each counted by how widespread it is."""
        assert self._session is not None
        held, wanted = self._session.cluster.facts.images, member.images
        if not wanted or not held:
            return None
        known = self._image_scores.get(wanted)
        if known is None:
            out = np.zeros(columns.size, dtype=np.float64)
            for image in wanted:
                if (sizes := held.sizes(image, columns)) is not None:
                    out += sizes * np.count_nonzero(sizes) / max(len(self._session.rows), 1)
            most = _IMAGE_MOST * len(wanted)
            known = 100.0 * (np.clip(out, _IMAGE_LEAST, most) - _IMAGE_LEAST) / (most - _IMAGE_LEAST)
            self._image_scores[wanted] = known
        return known


@dataclass(frozen=True, slots=True)
class _Asked:
    """The amounts by which a pod is scored, K of them: columns `[K]` and units `[K, 1]`. First what counts as requested, cpu and memory; `balanced`: those that
    are to be used evenly."""

    columns: Ints
    units: Ints
    balanced: Ints


#: How many amounts count as requested.
_REQUESTED = len(_NON_ZERO)


def _asked(columns: Columns, task: Task) -> _Asked:
    requests = task.requests
    amounts = [(name, requests.get(name, 0) or least) for name, least in _NON_ZERO.items()]
    even = [(name, requests.get(name, 0)) for name in (CPU, MEMORY)]
    even += [(cards, requests[cards]) for cards in VENDORS.named(requests) if requests[cards]]
    amounts += [one for one in even if one not in amounts]
    return _Asked(
        np.array([columns.resource(name) for name, _ in amounts], dtype=np.int64),
        np.array([[units] for _, units in amounts], dtype=np.int64),
        np.array([amounts.index(one) for one in even], dtype=np.int64),
    )


def _balance(fractions: Floats, there: Bools | None) -> Floats:
    """`[n]`: 1 less the standard deviation of how full the node is in cpu, memory and, for pods that ask for cards, cards (so Volcano has it; kube-scheduler
    by default leaves cards out). fractions: `[K, n]`, 0 where the node does not have the resource; there: `[K, n]`, None where all have all."""
    count: int | Ints = len(fractions) if there is None else np.maximum(np.add.reduce(there, axis=0), 1)
    off = fractions - np.add.reduce(fractions, axis=0) / count
    np.multiply(off, off, out=off)
    if there is not None:
        off[~there] = 0.0
    return np.asarray(1.0 - np.sqrt(np.add.reduce(off, axis=0) / count))


def _node_affinity(member: Member, columns: Columns, candidates: Bools) -> Floats:
    out = np.zeros(columns.size, dtype=np.float64)
    for preferred in member.task.preferred:
        out += preferred.weight * term_mask(columns, slice(0, columns.size), preferred.term)
    most = out[candidates].max(initial=0.0)
    return out * (100.0 / most) if most > 0 else out


def _taint_toleration(member: Member, columns: Columns, candidates: Bools) -> Floats:
    counts = np.array(
        [
            len(untolerated(taints, member.task.tolerations, (TaintEffect.PREFER_NO_SCHEDULE,)))
            for taints in columns.descriptions.taint_sets
        ],
        dtype=np.float64,
    )[columns.descriptions.taints[: columns.size]]
    most = counts[candidates].max(initial=0.0)
    return 100.0 * (1.0 - counts / most) if most > 0 else np.full(columns.size, 100.0)
