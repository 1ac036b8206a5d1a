"""An incident engine with nodes that obey: cordons take effect at once."""

from dataclasses import dataclass, field
from typing import TypeVar

from hbox_common.model import Incident, IncidentState, NodeName
from hbox_common.model.remedy import REPAIRS
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.finding import Action, Blame, Finding, Scope, Severity
from hbox_health.core.judge.happenings import (
    Cordon,
    Effect,
    Event,
    Found,
    IncidentChanged,
    JobsSeen,
    NodeSeen,
    PodOnCards,
    Scopes,
    Tick,
    Uncordon,
    VerdictChanged,
)
from hbox_health.core.judge.incidents import Incidents
from hbox_health.core.judge.memory import Memory

E = TypeVar("E", bound=Effect)

GPU, OTHER = "gpu:GPU-a", "gpu:GPU-b"
CATALOGUE, RECOVERY = "nvidia-xid-catalogue", "nvidia-recovery-action"


def finding(
    action: Action,
    entity: str = GPU,
    *,
    kind: str = "xid",
    code: str = "48",
    severity: Severity = Severity.FATAL_GPU,
    blame: Blame = Blame.HARDWARE,
    scope: Scope = Scope.GPU,
    authority: str = CATALOGUE,
) -> Finding:
    return Finding(entity, kind, code, severity, blame, scope, action, authority, f"{kind} {code}")


def reset(entity: str = GPU, code: str = "48") -> Finding:
    return finding(Action.RESET, entity, code=code)


def lost(entity: str = GPU) -> Finding:
    return finding(Action.REBOOT, entity, code="79", severity=Severity.FATAL_NODE, scope=Scope.NODE)


def port_down(hca: str = "mlx5_0") -> Finding:
    return finding(
        Action.ISOLATE_RAIL,
        f"rail:{hca}",
        kind="port",
        code="down",
        severity=Severity.DEGRADED,
        scope=Scope.RAIL,
        authority="gpud",
    )


def of_program(entity: str = GPU, code: str = "31") -> Finding:
    return finding(Action.NOTIFY_OWNER, entity, code=code, severity=Severity.INFO, blame=Blame.USER, scope=Scope.JOB)


@dataclass
class World:
    policies: Policies = field(default_factory=lambda: Policies(verbs=REPAIRS, validator=True))
    memory: Memory | None = None
    obey: bool = True
    now: float = 1_000_000.0
    effects: list[Effect] = field(default_factory=list)
    incidents: dict[str, Incident] = field(default_factory=dict)
    verdicts: dict[str, Scopes] = field(default_factory=dict)
    cordoned: set[str] = field(default_factory=set)
    records: int = 0

    def __post_init__(self) -> None:
        self.engine = Incidents(self.policies, lambda _event, _node, _now: None, self.memory)
        self.units: dict[str, str] = {}

    def nodes(self, count: int, *, unit: str = "") -> list[str]:
        names = [f"n{index}" for index in range(count)]
        for name in names:
            self.units[name] = unit
            self.seen(name)
        return names

    def seen(
        self, node: str = "n0", *, unschedulable: bool | None = None, ours: bool | None = None, **more: object
    ) -> list[Effect]:
        closed = node in self.cordoned
        event = NodeSeen(
            NodeName(node),
            (GPU, OTHER),
            unit=self.units.get(node, ""),
            unschedulable=closed if unschedulable is None else unschedulable,
            ours=closed if ours is None else ours,
            **more,  # type: ignore[arg-type]
        )
        return self.step(event)

    def step(self, event: Event) -> list[Effect]:
        effects = self.engine.step(event, self.now)
        self.effects += effects
        out = list(effects)
        for effect in effects:
            match effect:
                case IncidentChanged(incident):
                    self.incidents[incident.id] = incident
                case VerdictChanged(node, _, scopes):
                    self.verdicts[node] = scopes
                case Cordon(node) if self.obey:
                    self.cordoned.add(node)
                    out += self.seen(node)
                case Uncordon(node) if self.obey:
                    self.cordoned.discard(node)
                    out += self.seen(node)
                case _:
                    pass
        return out

    def record(
        self,
        *findings: Finding,
        node: str = "n0",
        boot: str = "b1",
        identity: str = "",
        wait: float | None = 0.0,
        pid: int | None = None,
    ) -> list[Effect]:
        self.records += 1
        return self.step(Found(NodeName(node), boot, findings, record=identity or str(self.records), wait_s=wait, pid=pid))

    def state(self, source: str, *findings: Finding, node: str = "n0", boot: str = "b1", group: str = "") -> list[Effect]:
        return self.step(Found(NodeName(node), boot, findings, source=source, group=group))

    def boots(self, boot: str, node: str = "n0") -> list[Effect]:
        return self.step(Found(NodeName(node), boot, ()))

    def pods(self, *pods: PodOnCards, node: str = "n0") -> list[Effect]:
        return self.step(JobsSeen(NodeName(node), pods))

    def after(self, seconds: float) -> list[Effect]:
        """Let time pass, with a tick whenever the engine is due."""
        end, out = self.now + seconds, []
        while (due := self.engine.due) is not None and due <= end:
            self.now = due
            out += self.step(Tick())
        self.now = end
        return out

    def open(self, node: str = "n0") -> list[Incident]:
        return [i for i in self.incidents.values() if i.node == node and i.state is not IncidentState.CLOSED]

    def only(self, node: str = "n0") -> Incident:
        (incident,) = self.open(node)
        return incident

    def verdict(self, node: str = "n0") -> Scopes:
        return self.verdicts.get(node, Scopes())

    def sent(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]


def pod(name: str = "ns/p1", *cards: str, job: str = "ns/j1", queue: str = "q1", **more: object) -> PodOnCards:
    return PodOnCards(name, job, queue, cards or (GPU,), **more)  # type: ignore[arg-type]
