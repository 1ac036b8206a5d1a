"""Constraints between pods: affinity, anti-affinity and topology spread, as in Kubernetes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from .ids import PodUid
from .job import Match, MatchOperator
from .topology import SubGangPolicy
from .wire import wire_names


@dataclass(frozen=True, slots=True)
class Selector:
    """A Kubernetes LabelSelector: all matches hold. No matches = every pod."""

    matches: tuple[Match, ...] = ()


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A podAffinityTerm: pods of these namespaces that the selector picks, in one domain of the topology key (a node label)."""

    topology_key: str
    selector: Selector | None  #: None = no pod
    namespaces: tuple[str, ...] = ()  #: empty, and no namespace selector = the pod's own
    namespace_selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A preference: weight 1 to 100."""

    weight: int
    term: PodTerm


@dataclass(frozen=True, slots=True)
class Spread:
    """A topologySpreadConstraint."""

    max_skew: int
    topology_key: str
    hard: bool  #: whenUnsatisfiable: DoNotSchedule
    selector: Selector | None
    min_domains: int = 1
    honor_affinity: bool = True  #: nodeAffinityPolicy
    honor_taints: bool = False  #: nodeTaintsPolicy


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """What a pod wants of its neighbours."""

    __pydantic_config__: ClassVar = wire_names(
        affinity="near", anti_affinity="apart", preferred_affinity="rather_near", preferred_anti_affinity="rather_apart"
    )

    affinity: tuple[PodTerm, ...] = ()  #: required affinity
    anti_affinity: tuple[PodTerm, ...] = ()  #: required anti-affinity
    preferred_affinity: tuple[WeightedTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedTerm, ...] = ()
    spread: tuple[Spread, ...] = ()

    def __bool__(self) -> bool:
        """Whether it wants anything. Asked by value: what came over the bus is never the object `NO_CONSTRAINTS`."""
        return bool(
            self.affinity or self.anti_affinity or self.preferred_affinity or self.preferred_anti_affinity or self.spread
        )


NO_CONSTRAINTS = PodConstraints()


@dataclass(frozen=True, slots=True)
class GangPart:
    """What a pod is in a gang with minima by task, or sub-groups; and these."""

    role: str = ""
    labels: dict[str, str] = field(default_factory=dict)  #: those that the sub-groups are formed by
    min_task_member: dict[str, int] = field(default_factory=dict)
    sub_gangs: tuple[SubGangPolicy, ...] = ()


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The data on a pod that other pods' constraints and policies need besides its requests: referenced labels, its own constraints, and annotations.

    `annotations` are its own annotations over those of its PodGroup.
    """

    __pydantic_config__: ClassVar = wire_names(constraints="wishes", annotations="notes")

    uid: PodUid
    namespace: str
    labels: dict[str, str] = field(default_factory=dict)
    constraints: PodConstraints = field(default_factory=lambda: NO_CONSTRAINTS)
    annotations: dict[str, str] = field(default_factory=dict)
    started_at: float | None = None  #: seconds since the epoch; set together with notes, if a policy may read it
    budgets: tuple[str, ...] = ()  #: PodDisruptionBudgets of its namespace that select it
    part: GangPart | None = None
    leaving: bool = False  #: it is being deleted

    @property
    def has_pod_constraints(self) -> bool:
        """Whether it has to do with others."""
        return bool(self.labels) or bool(self.constraints)


def holds(match: Match, value: str | None) -> bool:
    """Whether a label's value (None = there is no such label) satisfies an expression. Labels of pods know no Gt and Lt."""
    match match.operator:
        case MatchOperator.IN:
            return value in match.values
        case MatchOperator.NOT_IN:
            return value not in match.values
        case MatchOperator.EXISTS:
            return value is not None
        case MatchOperator.DOES_NOT_EXIST:
            return value is None
    return False


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Kubernetes' rule: no selector selects nothing, an empty one everything."""
    return selector is not None and all(holds(match, labels.get(match.key)) for match in selector.matches)
