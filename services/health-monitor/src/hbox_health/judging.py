"""From reports of agents to incidents, verdicts and evictions, by the incident engine (`core/judge/incidents.py`).

Each event changes the engine's memory. The changes are stored in one transaction and published after it; reports are acknowledged last. If the database
does not answer, the changes wait in memory, and the broker delivers the reports again; each fact counts once. After a kill -9 the broker delivers
unacknowledged reports again. Verdicts and requests of evictions are derived from the memory, so a restart publishes their differences from the stream.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NoReturn

from hbox_common.bus import Delivery
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import Conflict, Unavailable
from hbox_common.events import DeviceErrorSeen, GateJobsDecided, HealthEvictionAsked, HealthReport, RemediesDecided
from hbox_common.model import CardId, Claim, Incident, IncidentState, JobId, NodeName, NodeState, Verdict
from hbox_common.model.claim import KUBELET_GAVE
from hbox_common.model.devices import VENDORS
from hbox_common.model.healthorder import HealthOrder
from hbox_common.model.node import uses_adapters
from hbox_common.model.sickhardware import SickPolicy

from . import metrics
from .adapters.incidentstore import KEPT_S, IncidentStore
from .adapters.outbox import Outbox
from .core import OWNER, Judged, Scopes
from .core.judge.courses import Policies
from .core.judge.facts import Assessor, box_of
from .core.judge.happenings import (
    AgentSeen,
    Effect,
    Event,
    FactSeen,
    IncidentChanged,
    JobsSeen,
    Measured,
    NodeSeen,
    PodOnCards,
    TellOwner,
    Tick,
    VerdictChanged,
    VerdictSeen,
)
from .core.judge.happenings import Scopes as Seen
from .core.judge.incidents import Incidents
from .core.judge.memory import Memory, NodeMemory
from .core.judge.rules import Rules
from .core.judge.timing import lost_cards
from .gating import Gating, observed
from .incidentlog import IncidentLog
from .nodemessages import of_own_nodes
from .remedying import Remedying, results

log = logging.getLogger(__name__)

#: Incidents that changed so many seconds before a start are published again.
REPUBLISHED_S = 3600.0
#: Longest sleep of the loop, and the time after which a failed transaction is tried again.
LOOP_S, RETRY_S = 5.0, 1.0
FORGET_EVERY_S, COUNT_EVERY_S = 3600.0, 1.0

_Request = tuple[NodeName, str]


class Judging:
    """`judged`: receives the scopes of a node whenever they change. `state_of`, `unit_of`: of a node.
    Nothing is judged before `synced`."""

    def __init__(
        self,
        store: IncidentStore,
        outbox: Outbox,
        judged: Callable[[Judged], None],
        *,
        state_of: Callable[[NodeName], NodeState | None],
        unit_of: Callable[[NodeName], str],
        policies: Policies,
        rules: Rules,
        policy: SickPolicy,
    ) -> None:
        self._state_of, self._unit_of = state_of, unit_of
        self._store, self._outbox, self._judged, self._policy = store, outbox, judged, policy
        self._policies, self._assess = policies, Assessor(rules)
        self._engine = Incidents(policies, self._assess)
        self._epoch = wall_s() - monotonic_s()
        self._synced = self._pods_known = False
        self._first: dict[NodeName, NodeState] = {}  #: nodes until `synced`
        self._standing: dict[_Request, HealthEvictionAsked] = {}  #: requests in the stream
        self._remedying, self._gating = Remedying(outbox), Gating(outbox)
        self._effects: list[Effect] = []
        self._changed: set[str] = set()
        self._orders: dict[str, HealthOrder] = {}  #: applied, and not stored yet
        self._notices: list[DeviceErrorSeen] = []  #: not stored yet
        self._states: dict[str, IncidentState] = {}  #: of open incidents, as counted
        self._logged = IncidentLog()
        self.taken_over = asyncio.Event()  #: another process leads
        self._lost = metrics.LostCards()
        self._flushing, self._wake = asyncio.Lock(), asyncio.Event()

    @property
    def _now(self) -> float:
        """Seconds since the epoch by the clock of the start: a clock that is set meanwhile ends no debounce. It never runs behind what is stored."""
        return self._epoch + monotonic_s()

    async def begin(self) -> None:
        """Continue from the database. Earlier processes cannot write to it any more."""
        await self._store.begin()
        memory, recent = await self._store.load(since=wall_s() - REPUBLISHED_S)
        for order in await self._store.orders(since=wall_s() - REPUBLISHED_S):
            self._outbox.ordered(order)
        self._epoch = max([wall_s(), *(incident.changed for incident in recent)]) - monotonic_s()
        self._engine = Incidents(self._policies, self._assess, memory, self._now)
        for name in memory.nodes:
            self._judge(NodeName(name))
        for incident in recent:
            self._outbox.incident(incident)
            self._note_state(incident)
            self._logged.note(incident)
        for notice in await self._store.notices():
            self._outbox.device_error(notice)
        self._count()

    # --- events

    def node(self, state: NodeState) -> None:
        if self._synced:
            self._step(node_event(state, self._unit_of(state.name)))
            if not state.gone:
                self._without_pods([state.name])
        else:
            self._first[state.name] = state

    def verdict_seen(self, verdict: Verdict) -> None:
        """A verdict as the scheduler and the ledger receive it."""
        if self._synced:
            rails = tuple(f"rail:{name}" for name in verdict.rails_off)
            scopes = Seen(verdict.cards, rails, verdict.multi_gpu, verdict.multi_node, verdict.healthy, verdict.incidents)
            self._step(VerdictSeen(verdict.node, scopes))

    def note(self, asked: HealthEvictionAsked | RemediesDecided | GateJobsDecided) -> None:
        """A request or decision that was in the stream at the start."""
        if self._synced:
            return
        if isinstance(asked, RemediesDecided):
            self._remedying.note(asked)
        elif isinstance(asked, GateJobsDecided):
            self._gating.note(asked)
        elif not asked.ended:
            self._standing[asked.node, asked.incident] = asked

    def synced(self) -> None:
        """All nodes and requests of the stream were passed to `node` and `note`."""
        self._synced = True
        gone = [NodeName(name) for name in self._engine.dump().nodes if name not in self._first]
        for state in self._first.values():
            self._step(node_event(state, self._unit_of(state.name)))
        for name in gone:
            self._step(NodeSeen(name, gone=True))
        self._step(Tick())
        self._first.clear()
        standing = {node for node, _ in self._standing} | set(self._remedying.nodes) | set(self._gating.nodes)
        self._changed |= standing | set(self._engine.dump().nodes)

    def republish(self) -> None:
        """The stream of requests was lost: publish all open incidents again, with their requests."""
        self._standing.clear()
        for incident in self._open():
            self._outbox.incident(incident)
        self._request({name: self._wanted(name) for name in self._engine.dump().nodes})
        self._remedying.lost()
        self._gating.lost()
        for name, node in self._engine.dump().nodes.items():
            self._remedying.publish(name, node)
            self._gating.publish(name, node, self._policies)

    def pods(self, node: NodeName, claims: Iterable[Claim], spanning: Collection[JobId] = ()) -> None:
        """The live claims of cards of a node; `spanning`: those of their jobs that are gangs on several nodes."""
        memory = self._engine.dump().nodes.get(node)
        parents = {} if memory is None else memory.parents
        state = self._state_of(node)
        pods = tuple(pod_on_cards(claim, parents, state, spans=claim.job in spanning) for claim in claims)
        if pods or memory is not None:
            self._step(JobsSeen(node, pods))

    def pods_known(self, holding: Collection[NodeName]) -> None:
        """All claims were passed to `pods`: no node but `holding` has pods with cards, so that a sick card there may be reset. Pods that ended while no
        health-monitor ran are forgotten."""
        self._pods_known = True
        nodes = self._engine.dump().nodes
        for name in [NodeName(name) for name, node in nodes.items() if node.pods and name not in holding]:
            self._step(JobsSeen(name, ()))
        self._without_pods([NodeName(name) for name in nodes])

    def _without_pods(self, names: Iterable[NodeName]) -> None:
        """Pass on that no pod uses cards of these nodes, if their users are still unknown."""
        nodes = self._engine.dump().nodes
        for name in names if self._pods_known else ():
            if nodes[name].known is not None:
                self._step(JobsSeen(name, ()))

    async def on_reports(self, deliveries: Sequence[Delivery]) -> None:
        for report in of_own_nodes(deliveries, HealthReport):
            metrics.REPORTS.inc()
            self._step(AgentSeen(report.node, report.boot_id, heartbeat=not report.facts))
            for fact in report.facts:
                if fact.check not in report.report_only:
                    self._step(FactSeen(report.node, report.boot_id, fact))
        await self.flush()

    async def on_remedies(self, deliveries: Sequence[Delivery]) -> None:
        for result in results(deliveries):
            self._step(result)
        await self.flush()

    async def on_jobs(self, deliveries: Sequence[Delivery]) -> None:
        for seen in observed(deliveries):
            self._step(seen)
        await self.flush()

    def use(self, rules: Rules, policies: Policies) -> None:
        """Judge by other tables and policies. What is open was judged by the former tables, until its source reports it again."""
        self._assess.rules, self._policies = rules, policies
        self._engine.use(policies)
        if self._synced:
            self._step(Tick())

    @property
    def memory(self) -> Memory:
        return self._engine.dump()

    def pending(self, id_: str) -> HealthOrder | None:
        """An order that was applied while the database did not answer."""
        return self._orders.get(id_)

    async def order(self, order: HealthOrder, event: Event) -> None:
        """Apply an order of an operator; it is stored on return. Raises Unavailable; the order then is stored later."""
        self._orders[order.id] = order
        self._step(event)
        await self.flush()

    async def run(self) -> NoReturn:
        """Let time pass, and store and publish what changed; until cancelled."""
        forget_at = count_at = monotonic_s()
        while True:
            due = self._engine.due
            try:
                async with asyncio.timeout(LOOP_S if due is None else min(max(due - self._now, 0.0), LOOP_S)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if due is not None and due <= self._now:
                self._step(Tick())
            try:
                await self.flush()
                self._remedying.renew(self._engine.dump().nodes)
                if monotonic_s() >= count_at:  # each report wakes this loop
                    self._lost.count(lost_cards(self._engine.dump()), monotonic_s())
                    count_at = monotonic_s() + COUNT_EVERY_S
                if monotonic_s() >= forget_at:
                    await self._store.forget(before=wall_s() - KEPT_S)
                    forget_at = monotonic_s() + FORGET_EVERY_S
            except Unavailable as e:
                log.warning("incidents cannot be stored: %s", e)
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    def _step(self, event: Event) -> None:
        effects = self._engine.step(event, self._now)
        self._effects += effects
        self._notices += [_notice(effect) for effect in effects if isinstance(effect, TellOwner)]
        self._wake.set()

    # --- what follows

    async def flush(self) -> None:
        """Store and publish what changed. Raises Unavailable; the changes then wait for the next call."""
        async with self._flushing:
            changed = self._changed | self._engine.changed()
            effects, self._effects, self._changed = self._effects, [], set()
            orders, notices = list(self._orders.values()), list(self._notices)
            sent = set(self._outbox.sent)
            if not changed and not effects and not orders and not sent:
                return
            wanted = {name: self._wanted(name) for name in changed if name} if self._synced else {}
            incidents = {effect.incident.id: effect.incident for effect in effects if isinstance(effect, IncidentChanged)}
            try:
                await self._store.save(self._engine.dump(), changed, incidents.values(), orders, notices, sent)
            except Conflict:
                self.taken_over.set()
                raise
            except Unavailable:
                self._changed |= changed
                self._effects = effects + self._effects
                raise
            self._outbox.sent -= sent
            del self._notices[: len(notices)]
            for order in orders:
                del self._orders[order.id]
                self._outbox.ordered(order)
            for notice in notices:
                self._outbox.device_error(notice)
            self._publish(effects, wanted)

    def _publish(self, effects: Sequence[Effect], wanted: dict[str, dict[str, HealthEvictionAsked]]) -> None:
        """Requests end before the verdict returns their hardware, and begin after the verdict took it: no new pod comes between."""
        self._request(wanted, ended=True)
        for effect in effects:
            match effect:
                case IncidentChanged(incident):
                    self._outbox.incident(incident)
                    self._log(incident)
                case Measured(step, family, seconds):
                    metrics.measured(step, family, seconds)
                case _:
                    pass  # notices are in `_notices`, cordons follow from the verdicts (core/monitor.py), evictions from `wanted`, remedies from the memory
        for node in dict.fromkeys(effect.node for effect in effects if isinstance(effect, VerdictChanged)):
            self._judge(node)
        self._request(wanted)
        for name in wanted:
            self._remedying.publish(name, self._engine.dump().nodes.get(name))
            self._gating.publish(name, self._engine.dump().nodes.get(name), self._policies)
        self._count()

    def _note_state(self, incident: Incident) -> None:
        if incident.state is IncidentState.CLOSED:
            self._states.pop(incident.id, None)
        else:
            self._states[incident.id] = incident.state

    def _log(self, incident: Incident) -> None:
        """Count each entry into a state, and log what is news."""
        if self._states.get(incident.id) is not incident.state:
            metrics.entered(incident)
        self._note_state(incident)
        if self._logged.note(incident):
            log.log(
                logging.INFO if incident.state is IncidentState.CLOSED else logging.WARNING, "incident %s on %s is %s: %s", incident.id,
                incident.entity, incident.state, incident.why, extra={"node": incident.node},
            )  # fmt: skip

    def _judge(self, name: NodeName) -> None:
        memory = self._engine.dump().nodes.get(name)
        self._judged(Judged(name, Scopes() if memory is None else scopes_of(memory)))

    def _wanted(self, name: str) -> dict[str, HealthEvictionAsked]:
        """Requests that apply to a node, by incident."""
        node = self._engine.dump().nodes.get(name)
        return {
            incident.id: HealthEvictionAsked(
                node=NodeName(name),
                incident=incident.id,
                boot_id=node.boot_id,
                cards=tuple(map(CardId, incident.leaving)),
                jobs=tuple(incident.leaving_jobs),
                reason=incident.published.why,
                policy=self._policy,
            )
            for incident in (node.open.values() if node is not None else ())
            if node is not None and incident.leaving and incident.published is not None
        }

    def _request(self, wanted: dict[str, dict[str, HealthEvictionAsked]], *, ended: bool = False) -> None:
        """Publish what of the nodes' requests differs from the stream. `ended`: only those that end."""
        for key, asked in list(self._standing.items()):
            if key[0] in wanted and key[1] not in wanted[key[0]]:
                self._outbox.evict(asked.model_copy(update={"ended": True}))
                del self._standing[key]
        if ended:
            return
        for requests in wanted.values():
            for asked in requests.values():
                known = self._standing.get((asked.node, asked.incident))
                if known is None or (known.cards, known.jobs) != (asked.cards, asked.jobs):
                    self._outbox.evict(asked)
                    self._standing[asked.node, asked.incident] = asked

    def _open(self) -> Iterable[Incident]:
        memory = self._engine.dump()
        groups = [group.incident for group in memory.groups.values() if group.incident is not None]
        every = [*(one for node in memory.nodes.values() for one in node.open.values()), *memory.jobs.values(), *groups]
        return [one.published for one in every if one.published is not None]

    def _count(self) -> None:
        metrics.count_incidents(self._open())
        metrics.WAITING.set(len(self._engine.dump().breaker.queue))
        self._lost.count(lost_cards(self._engine.dump()), monotonic_s())


def _notice(seen: TellOwner) -> DeviceErrorSeen:
    return DeviceErrorSeen(
        node=seen.node, incident=seen.incident, pod=seen.pod, job=JobId(seen.job), card=seen.card, code=seen.code, message=seen.text,
        at=wall_s(),
    )  # fmt: skip


def node_event(state: NodeState, unit: str) -> NodeSeen:
    """A node as the judgement sees it."""
    known = (*state.cards, *state.lost)
    parents = {str(card.id): str(card.parent_id) for card in known if card.parent_id}
    labels = state.labels
    if not box_of(labels) and known:
        labels = labels | {"hbox.io/gpu-model": known[0].model}
    return NodeSeen(
        state.name,
        tuple(dict.fromkeys([*(str(card.id) for card in known), *parents.values()])),
        parents,
        unit=unit,
        refused=tuple(str(card.id) for card in state.cards if not card.healthy),
        offered=tuple({str(id_): None for card in state.cards if card.healthy for id_ in (card.id, card.parent_id) if id_}),
        labels=labels,
        unschedulable=state.unschedulable,
        ours=state.unschedulable and state.cordoned_by == OWNER,
        gone=state.gone,
    )


def pod_on_cards(claim: Claim, parents: dict[str, str], node: NodeState | None, *, spans: bool) -> PodOnCards:
    """A claim's pod. The ledger knows its policy for sick hardware, and applies it. `spans`: its gang is on several nodes."""
    cards = [str(one.card) for one in claim.slices]
    both = (*cards, *(parents[card] for card in cards if card in parents))
    wide = spans and node is not None and uses_adapters(node, claim.requests, claim.slices)
    given = ""
    if claim.reason == KUBELET_GAVE and claim.queue and node is not None:
        given = next((name for name in claim.requests if name in VENDORS), "devices")
    return PodOnCards(
        f"{claim.namespace}/{claim.pod}",
        claim.job,
        claim.queue,
        tuple(dict.fromkeys(both)),
        multi_node=wide,
        uid=claim.pod_uid,
        given=given,
    )


def scopes_of(node: NodeMemory) -> Scopes:
    """The verdict of a node, with the reasons of its incidents."""
    found, reasons = node.verdict, dict[str, None]()
    for incident in sorted(node.open.values(), key=lambda one: (one.opened, one.id)):
        if incident.published is not None and incident.id in found.incidents:
            reasons[f"{', '.join(incident.cards) or incident.entity}: {incident.published.why}"] = None
    return Scopes(
        cards=tuple(map(CardId, found.cards)),
        rails_off=tuple(rail.removeprefix("rail:") for rail in found.rails_off),
        multi_gpu=found.multi_gpu,
        multi_node=found.multi_node,
        node=found.node,
        ordered=found.ordered,
        incidents=found.incidents,
        reason="; ".join(reasons),
        boot_id=node.boot_id,
    )
