"""Health of nodes: facts in the order in which each node's agent read them (HBOX_REPORTS), judgements of them (HBOX_INCIDENTS), and what follows."""

from typing import Annotated, ClassVar

from pydantic import WrapValidator

from hbox_common.health.gatejob import GateJob, JobOutcome
from hbox_common.health.report import Fact
from hbox_common.model import CardId, JobId, NodeName
from hbox_common.model.incident import Incident
from hbox_common.model.remedy import Decision, Outcome
from hbox_common.model.sickhardware import SickPolicy

from .base import About, Event, Stream, register
from .quickfacts import fact_of

HEARTBEAT_LASTS_S = 60


@register
class HealthReport(Event):
    """Facts that a node's agent read since its last report. One without facts is a heartbeat: the agent runs and has nothing new. A reader refuses a report
    whose `node` is not its subject's node."""

    about: ClassVar = About("hbox.v1.health.report.{node}", Stream.REPORTS, ("node-agent",), ("health-monitor", "cli"))
    node: NodeName
    boot_id: str  #: of the node's kernel; a reader discards facts of earlier boots
    agent: str  #: id of the agent's process; another one after each start
    facts: tuple[Annotated[Fact, WrapValidator(fact_of)], ...]
    report_only: tuple[str, ...] = ()  #: checks whose facts are recorded and cause no action
    log_seq: int = -1  #: of the last kernel record whose facts are published; a restarted agent continues after it
    cards: dict[
        str, int
    ] = {}  #: NVML's last index of each card of this boot by uuid, -1 of one that is listed no more; a restarted agent continues with it
    seq: int = 0  #: of a heartbeat: the number of the last fact before it; a restarted agent continues after it

    @property
    def last_seq(self) -> int:
        return self.facts[-1].seq if self.facts else self.seq

    @property
    def lasts_s(self) -> int:
        """A heartbeat is obsolete when the next one is published, and many agents publish them."""
        return 0 if self.facts else HEARTBEAT_LASTS_S

    @property
    def own_id(self) -> str:
        """A report that is published again, because the broker's answer was lost, is one message."""
        return f"{self.node}.{self.agent}.{self.facts[0].seq}" if self.facts else ""


@register
class IncidentChanged(Event):
    """An incident as it is from now on. The subject of an incident that belongs to no node has an empty key."""

    about: ClassVar = About("hbox.v1.health.incident.{node}", Stream.INCIDENTS, ("health-monitor",), ("cli",))
    incident: Incident


@register
class HealthEvictionAsked(Event):
    """Jobs have to leave hardware that an incident took out of use, each by its policy. The quota-ledger applies the request to all pods on the hardware, also
    after a restart, until a later message of the incident has `ended`."""

    about: ClassVar = About(
        "hbox.v1.health.evict.{node}.{incident}", Stream.STATE, ("health-monitor",), ("quota-ledger", "cli")
    )
    node: NodeName
    incident: str
    boot_id: str = ""
    #: pods on these cards, or on MIG instances of them; none named: all pods with cards on the node
    cards: tuple[CardId, ...] = ()
    #: if named, only pods of these jobs leave, and of them those that the node's verdict refuses now: their cards are not sick
    jobs: tuple[str, ...] = ()
    reason: str = ""  #: for the owners of the pods
    policy: SickPolicy = SickPolicy.RESTART  #: for jobs that, like their queues, state none
    ended: bool = False

    @property
    def closes(self) -> bool:
        return self.ended


@register
class DeviceErrorSeen(Event):
    """A fault concerns a pod: of its hardware, or of its program. Published once per incident and pod, also if the pod stays."""

    about: ClassVar = About(
        "hbox.v1.health.pod.{node}", Stream.EVENTS, ("health-monitor",), ("job-controller", "integrators", "cli")
    )
    node: NodeName
    incident: str
    pod: str  #: namespace/name
    job: JobId
    card: str  #: entity, such as gpu:UUID or rail:HCA
    code: str
    message: str
    at: float = 0.0  #: seconds since the epoch

    @property
    def own_id(self) -> str:
        return f"{self.incident}.{self.job}.{self.pod}.{self.code}.{self.at}"


@register
class RemediesDecided(Event):
    """All decisions on a node that are valid now. node-remedy executes each at most once, on this boot of the node only."""

    about: ClassVar = About(
        "hbox.v1.health.remedy.{node}",
        Stream.STATE,
        ("health-monitor",),
        ("node-remedy", "cli"),
        items=("decisions",),
        whole=True,
    )
    node: NodeName
    boot_id: str
    decisions: tuple[Decision, ...] = ()

    @property
    def closes(self) -> bool:
        return not self.decisions


@register
class RemedyObserved(Event):
    """A remedy began, ended, or was refused. A reader refuses a message whose `node` is not its subject's node."""

    about: ClassVar = About("hbox.v1.health.remedied.{node}", Stream.OUTCOMES, ("node-remedy",), ("health-monitor", "cli"))
    node: NodeName
    boot_id: str  #: of the boot in which the remedy began
    decision: Decision
    outcome: Outcome
    holders: tuple[str, ...] = ()  #: processes that hold the card, if it was refused or failed for them: PID NAME
    message: str = ""
    failures: tuple[str, ...] = ()  #: tests of a diagnosis that failed, each with its text
    at: float = 0.0  #: seconds since the epoch

    @property
    def own_id(self) -> str:
        """A result that is published again, because the broker's answer was lost, is one message."""
        return f"{self.node}.{self.decision.id}.{self.outcome}"


@register
class GateJobsDecided(Event):
    """All Jobs that have to run on a node now, to check its hardware. The binder creates each once, and deletes it if it still runs when it is not decided any
    more."""

    about: ClassVar = About(
        "hbox.v1.health.gate.{node}", Stream.STATE, ("health-monitor",), ("binder", "cli"), items=("jobs",), whole=True
    )
    node: NodeName
    jobs: tuple[GateJob, ...] = ()

    @property
    def closes(self) -> bool:
        return not self.jobs


@register
class GateJobObserved(Event):
    """A Job was created, ended, or was refused."""

    about: ClassVar = About("hbox.v1.health.gated.{node}", Stream.OUTCOMES, ("binder",), ("health-monitor", "cli"))
    node: NodeName
    job: str  #: id of the GateJob
    outcome: JobOutcome
    message: str = ""
    at: float = 0.0  #: seconds since the epoch

    @property
    def own_id(self) -> str:
        """An outcome that is published again is one message; a refusal may be followed by others."""
        return f"{self.node}.{self.job}.{self.outcome}" + (f".{self.at}" if self.outcome is JobOutcome.REFUSED else "")
