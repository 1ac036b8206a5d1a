"""What the ledger keeps of a live claim, and of a gang that has not started whole yet."""

from dataclasses import dataclass, field
from enum import StrEnum

from hbox_common.model import Claim, Index, JobId, PlanId, Resources

from .fabrics import Bound


class Decision(StrEnum):
    """The decision on a claim that has no result yet. It is sent again until it has one."""

    NONE = "none"
    BIND = "bind"
    REVOKE = "revoke"
    EVICT = "evict"


@dataclass(slots=True)
class ClaimRecord:
    """A live claim and what was decided on it. Times are seconds since the epoch."""

    claim: Claim
    resource_version: str  #: of the pod when it was planned: fences the binding
    deadline: float  #: until when its binding may begin; 0 = none
    changed_at: float
    generation: int = 1  #: counts the decisions on this claim
    decision: Decision = Decision.NONE
    reason: str = ""  #: of an eviction or revocation
    beneficiary: PlanId = PlanId("")  #: of an eviction: the plan for which; over a restart by its nomination
    notice_s: int = -1  #: of an eviction: see `Evict.notice_s`; not kept over a restart
    blocked: str = ""  #: why its pod may not be evicted now, where the open decision is that; not kept over a restart
    forced: bool = False  #: found bound: counts even where it over-books
    traceparent: str = ""
    rank: int = -1  #: of the pod in its job, which its binding writes on it; -1: none
    layout: str = ""  #: assignment of cards to containers, from its plan: used by its bind only
    volume_claims: tuple[str, ...] = ()  #: of its pod, for its binding alone: they are bound to volumes before it
    slots: tuple[int, ...] = ()  #: one a slice; -1 for forced claims
    sent_at: float = 0.0  #: when the open decision was last sent
    sendings: int = 0
    posted: Index = Index(0)  #: of the change that posted it; 0: before these books were read
    cards: Resources = field(default_factory=dict)  #: used, by model, in thousandths; kept in the database alone


@dataclass(slots=True)
class Gang:
    """A job on its way from nothing bound to `min_member` bound. At `deadline` it is unwound, which is called off when its members may not be evicted and
    the rest of them get places after all."""

    job: JobId
    min_member: int
    deadline: float
    unwinding: bool = False
    finished: int = 0  #: members that succeeded meanwhile
    #: domains in which it was planned and has to be; not kept over a restart
    bounds: tuple[Bound, ...] = field(default=(), compare=False)
    judged: int = field(default=0, compare=False)  #: changes of fabrics by which `bounds` were looked at
    #: unwound since the fabric changed before it began; not kept over a restart
    moved: bool = field(default=False, compare=False)
    why: str = field(default="", compare=False)  #: it unwinds, if it is not its deadline; not kept over a restart

    def keep(self, known: "Gang | None") -> None:
        """Take over what no row has from the same gang in earlier books."""
        if known is not None:
            self.bounds, self.moved, self.why = known.bounds, known.moved, known.why

    @property
    def reason(self) -> str:
        """Why it unwinds."""
        return self.why or f"its gang of {self.min_member} did not start whole in time"
