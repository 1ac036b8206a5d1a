"""predicates: what kube-scheduler filters. Resources are not among it: the engine itself never over-books a node."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Bools, Rows
from ..cluster.entities import Member
from ..cluster.task import Task
from ..explain.labels import Label
from ..framework.hooks import PodMask, ShapeMask
from . import podaffinity, topologyspread
from .arguments import Arguments
from .nodeaffinity import NodeAffinity
from .nodecondition import KubeletPolicy, NodeCondition
from .taints import Taints
from .volumes import VolumeReach

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

#: Volcano's switches of features that belong to other plugins, or to the engine, here; its timeouts, since nothing here waits in a cycle; and its volume
#: scores, which are off without the feature gate StorageCapacityScoring.
_ALSO = (
    "predicate.CacheEnable", "predicate.ProportionalEnable", "predicate.DynamicResourceAllocationEnable", "predicate.GPUSharingEnable",
    "predicate.GPUNumberEnable", "volumebinding.bindTimeoutSeconds", "volumebinding.weight", "volumebinding.shape",
    "dynamicresources.filterTimeoutSeconds",
)  # fmt: skip


class Predicate(Protocol):
    """Which nodes a task may use, from what they are; bookings play no part."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        """Label and `[n]` mask of the nodes that fail, in the order in which reasons are given. A node may fail several."""
        ...


class Predicates(ShapeMask, PodMask):
    """Each rule can be switched off by its `predicate.<Rule>Enable`."""

    name = "predicates"
    sees_plain_pods = False

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._affinity = arguments.switch("predicate.NodeAffinityEnable", True)
        self._taints = arguments.switch("predicate.TaintTolerationEnable", True)
        self._pods = arguments.switch("predicate.PodAffinityEnable", True)
        self._spread = arguments.switch("predicate.PodTopologySpreadEnable", True)
        self._volumes = arguments.switch("predicate.VolumeBindingEnable", True)
        for switch in ("NodePorts", "NodeVolumeLimits", "VolumeZone"):
            arguments.switch(f"predicate.{switch}Enable", True)
        arguments.done(also=_ALSO)
        self._session: Session | None = None
        self._rules: list[Predicate] = [NodeCondition()]
        if self._affinity:
            self._rules.append(NodeAffinity())
        if self._taints:
            self._rules.append(Taints())
        if self._volumes:
            self._rules.append(VolumeReach())
        self._rules.append(KubeletPolicy())

    def open(self, session: "Session") -> None:
        self._session = session

    def concerns(self, member: Member) -> bool:
        """True if it has constraints about other pods, or other pods may have some about it."""
        assert self._session is not None
        constraints = member.constraints
        if constraints.affinity or constraints.anti_affinity or constraints.spread:
            return True
        return self._pods and member.selectable and any(self._session.population.term_counts("anti_affinity"))

    def settled(self, member: Member) -> bool:
        """Whether no rule about other pods concerns it."""
        assert self._session is not None
        constraints = member.constraints
        if self._spread and constraints.spread:
            return False
        return not self._pods or not (
            constraints.affinity or constraints.anti_affinity or any(self._session.population.term_counts("anti_affinity"))
        )

    def shape_failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        """The rules about what a node is."""
        for rule in self._rules:
            yield from rule.failures(columns, rows, task)

    def failures(self, member: Member, columns: Columns) -> Iterator[tuple[str, Bools]]:
        """The rules about other pods."""
        assert self._session is not None
        population = self._session.population
        if self._pods:
            yield from podaffinity.failures(population, member)
        if self._spread and member.constraints.spread:
            yield from topologyspread.failures(population, member, *judged(member, columns))


def judged(member: Member, columns: Columns) -> tuple[Bools, Bools]:
    """`[N]` nodes that the member's selector and affinity allow, and `[N]` those whose taints it tolerates."""
    rows = slice(0, columns.size)
    eligible, untainted = np.ones(columns.size, dtype=np.bool_), np.ones(columns.size, dtype=np.bool_)
    for _, fails in NodeAffinity().failures(columns, rows, member.task):
        eligible &= ~fails
    for label, fails in Taints().failures(columns, rows, member.task):
        if label == Label.UNTOLERATED_TAINT:
            untainted &= ~fails
    return eligible, untainted
