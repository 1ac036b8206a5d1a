"""What pods want of each other: affinity, anti-affinity and topology spread, as Kubernetes has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .ids import PodUid
from .job import Match, MatchOperator
from .topology import SubGangPolicy


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
class Wishes:
    """What a pod wants of its neighbours."""

    near: tuple[PodTerm, ...] = ()  #: required affinity
    apart: tuple[PodTerm, ...] = ()  #: required anti-affinity
    rather_near: tuple[WeightedTerm, ...] = ()
    rather_apart: tuple[WeightedTerm, ...] = ()
    spread: tuple[Spread, ...] = ()

    def __bool__(self) -> bool:
        """Whether it wants anything. Asked by value: what came over the bus is never the object `NO_WISHES`."""
        return bool(self.near or self.apart or self.rather_near or self.rather_apart or self.spread)


NO_WISHES = Wishes()


@dataclass(frozen=True, slots=True)
class GangPart:
    """What a pod is in a gang with minima by task, or sub-groups; and these."""

    role: str = ""
    labels: dict[str, str] = field(default_factory=dict)  #: those that the sub-groups are formed by
    min_task_member: dict[str, int] = field(default_factory=dict)
    sub_gangs: tuple[SubGangPolicy, ...] = ()


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What is to be known of a pod besides what it asks for: the labels that somebody asks about, what it wants of others, what policies read on it.

    `notes` are its own annotations over those of its PodGroup.
    """

    uid: PodUid
    namespace: str
    labels: dict[str, str] = field(default_factory=dict)
    wishes: Wishes = NO_WISHES
    notes: dict[str, str] = field(default_factory=dict)
    started_at: float | None = None  #: seconds since the epoch; told where a policy may read it, with notes
    budgets: tuple[str, ...] = ()  #: PodDisruptionBudgets of its namespace that select it
    part: GangPart | None = None

    @property
    def social(self) -> bool:
        """Whether it has to do with others."""
        return bool(self.labels) or bool(self.wishes)


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
