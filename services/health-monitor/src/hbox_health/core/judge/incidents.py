"""Incidents: findings of all nodes over time become judgements with a state, isolation as small as the fault, and decisions on cordons, evictions and remedies.

`Incidents.step` is pure. It changes what the event concerns and then reviews only the nodes that changed or whose time has come:

    state       entered when                                            left when
    ----------  ------------------------------------------------------  ----------------------------------------------------------
    suspect     a finding opens the incident                            a reason lasted for its debounce, or all ended
    confirmed   ... it has; the fault is isolated                       pods have to leave, or a remedy may run
    draining    pods are on what the remedy needs                       they are gone
    repairing   the remedy was requested                                it is done (validating), failed or refused (confirmed)
    validating  repaired, or the card or a boot took the reasons back   a check passed (closed) or failed, or a new fault (confirmed)
    closed      no reason is left

An incident has one or more reasons, each of which ends separately. What the breaker, an exemption or a hand holds back is still judged, and named in `held_by`.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from hbox_common.model import IncidentState, NodeName, StepResult
from hbox_common.model.remedy import Verb

from . import gate, interventions, timing
from .courses import Policies, course_of
from .happenings import (
    AgentSeen,
    Effect,
    Event,
    Exempted,
    ExemptionEnds,
    FactSeen,
    Found,
    HoldersStopped,
    JobEnded,
    JobObserved,
    JobsSeen,
    Maintenance,
    NodeSeen,
    OperatorAccepts,
    OperatorCloses,
    Remedied,
    Tick,
    Validated,
    VerdictSeen,
    Waiting,
)
from .intake import end_reason, replace_source, take
from .inventory import learn, review_ports
from .isolation import mute, restrict
from .joining import accept, count, joins
from .memory import MOST_BOOTS, MOST_RECORDS, Counted, Memory, NodeMemory
from .plugins import keep_pods, record_kubelet_choice, review_plugin
from .remedies import act, remedied, validated
from .sharing import faults, review_cluster
from .standing import advance, flaps, refused, release_held, silence
from .unchanged import Unchanged
from .work import NODE, NODE_FAULT, Site, Work, key_of, of_entity, repaired

#: Judges one fact of a node (`facts.Assessor`).
Assess: TypeAlias = Callable[[FactSeen, NodeMemory, float], Found | None]


class Incidents:
    """`now`: seconds since the epoch, of the monitor's clock; the engine ignores steps back. Times that agents report decide nothing."""

    def __init__(self, policies: Policies, assess: Assess, memory: Memory | None = None, now: float = 0.0) -> None:
        """`now`: of a start. No agent counts as silent for the time before."""
        memory = memory or Memory()
        memory.breaker.limits = policies.limits
        self.work = Work(policies, memory, dirty=dict.fromkeys(["", *memory.nodes]))
        self.assess = assess
        self._unchanged = Unchanged()
        self.stale = 0  #: reports of an earlier boot, which were ignored
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._waiting: tuple[str, ...] = tuple(memory.breaker.queue)
        for node in memory.nodes.values():
            node.agent_seen = None if node.agent_seen is None else max(node.agent_seen, now)
            node.cards_out = {card: node.cards_out.get(card, now) for card in node.verdict.cards}
            for timed in node.timed.values():
                timed.isolated = True  # if it was not, no process saw when
            for step in (step for incident in node.open.values() for step in incident.steps):
                if step.result is StepResult.RUNNING:
                    step.at = max(step.at, now)  # results of the time before are read after the start
            if not node.open:
                node.known = []  # the pods of a node without incidents are not stored
        seen = [(node.agent_seen, name) for name, node in memory.nodes.items() if node.agent_seen is not None]
        self._agents = {
            name: at for at, name in sorted(seen)
        }  #: when each agent that is not silent reported last, oldest first

    def dump(self) -> Memory:
        """All that the engine remembers. `Incidents(policies, assess, dump)` continues from there."""
        return self.work.memory

    def use(self, policies: Policies) -> None:
        """Other policies, and other rules of `assess`, from the next step on."""
        self.work.policies = policies
        self._unchanged.forget_all()
        self.work.memory.breaker.limits = policies.limits
        self.work.dirty |= {"": None, **{name: None for name, node in self.work.memory.nodes.items() if node.open}}

    def changed(self) -> set[str]:
        """Nodes whose memory changed since the last call; "" for what belongs to no node."""
        changed, self.work.changed = self.work.changed, set()
        return changed

    @property
    def due(self) -> float | None:
        """When the next `Tick` changes something."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        times = [self._heap[0][0]] if self._heap else []
        times += [at + self.work.policies.silent_s for at in itertools.islice(self._agents.values(), 1)]
        return min(times, default=None)

    def step(self, event: Event, now: float) -> list[Effect]:
        work = self.work
        work.now = max(now, work.now)
        work.out = []
        match event:
            case Tick():
                pass
            case JobEnded(job):
                self._job_ended(job)
            case Exempted(exemption):
                interventions.exempt(work, exemption)
            case ExemptionEnds(id_):
                interventions.end_exemption(work, id_)
            case NodeSeen(gone=True):
                self._gone(event.node)
            case AgentSeen():
                self._agent_seen(work.site(event.node), event)
            case JobsSeen():
                self._jobs_seen(event)
            case FactSeen():
                self._fact_seen(work.site(event.node), event)
            case VerdictSeen():
                self._verdict_seen(event)
            case NodeSeen() if not self._node_seen(work.site(event.node), event):
                pass
            case _:
                work.dirty[event.node] = None
                self._of_node(work.site(event.node), event)
        while self._heap and self._heap[0][0] <= work.now:
            at, due = heapq.heappop(self._heap)
            if self._due.get(due) == at:
                work.dirty[due] = None
        self._find_silent()
        self._settle()
        return work.out

    def _find_silent(self) -> None:
        while (first := next(iter(self._agents.items()), None)) is not None:
            name, at = first
            if self.work.now < at + self.work.policies.silent_s:
                return
            del self._agents[name]
            self.work.dirty[name] = None

    def _of_node(self, site: Site, event: Event) -> None:
        match event:
            case Found():
                self._found(site, event)
            case Remedied():
                remedied(site, event)
            case JobObserved():
                gate.job_observed(site, event)
            case Validated():
                validated(site, event)
            case HoldersStopped(_, entity, stopped):
                for incident in of_entity(site.node, entity) if stopped else ():
                    incident.holders, incident.retry_at = [], 0.0
            case OperatorCloses(_, entity, id_):
                interventions.close(site, entity, id_)
            case OperatorAccepts():
                accept(site)
            case Maintenance(_, until, why):
                interventions.maintain(site, until, why)

    def _settle(self) -> None:
        """Review until nothing changes: a review may complete a group, or make room in the breaker's queue for another node."""
        breaker = self.work.memory.breaker
        refused = None
        while True:
            while self.work.dirty:
                name = next(iter(self.work.dirty))
                del self.work.dirty[name]
                if name:
                    self._review(name)
                else:
                    self._schedule("", review_cluster(self.work))
            following = breaker.next(self.work.now) if breaker.queue else None
            if following is None or following == refused:
                break
            refused = following
            self.work.dirty[following] = None
        waiting = tuple(breaker.queue)
        if waiting != self._waiting:
            self._waiting = waiting
            self.work.out.append(Waiting(tuple(NodeName(name) for name in waiting)))

    # --- what is seen

    def _job_ended(self, job: str) -> None:
        self.work.memory.ended_jobs[job] = self.work.now
        incident = self.work.memory.jobs.pop(job, None)
        if incident is not None:
            self.work.close("", incident, "the job ended")

    def _gone(self, name: NodeName) -> None:
        memory = self.work.memory
        node = memory.nodes.pop(name, None)
        self._unchanged.forget(name)
        for incident in node.open.values() if node is not None else ():
            self.work.close(name, incident, "the node is gone")
        memory.breaker.gone(name)
        for key in list(memory.groups):
            self.work.leave(key, name)
        self._due.pop(name, None)
        self._agents.pop(name, None)
        self.work.dirty.pop(name, None)
        self.work.changed.add(name)

    def _jobs_seen(self, event: JobsSeen) -> None:
        """Costs nothing for a node without incidents and faults."""
        node = self.work.node(event.node)
        chosen = record_kubelet_choice(node, event.pods, self.work.now)
        node.pods, node.known = list(event.pods), None if event.known is None else list(event.known)
        if node.open or node.faults or chosen:
            self.work.dirty[event.node] = None

    def _fact_seen(self, site: Site, event: FactSeen) -> None:
        """A fact that finds nothing and ends nothing costs no review, and is not stored: its number only guards against late deliveries."""
        node = site.node
        if not self._same_boot(site, event.boot_id) or event.fact.seq <= node.seq:
            return
        node.seq = event.fact.seq
        if self._unchanged.means_nothing(site.name, node, event.fact):
            return
        is_first = node.counted.since is None
        if learn(node, event.fact):
            self.work.changed.add(site.name)
        if count(node, event.fact, site.now):
            self.work.changed.add(site.name)
            if (
                is_first
                or node.accepted is None
                or any(incident.state is IncidentState.VALIDATING for incident in node.open.values())
            ):
                self.work.dirty[site.name] = None
        found = self.assess(event, node, site.now)
        self._unchanged.note(site.name, node, event.fact, findings=found is not None and bool(found.findings))
        if found is None:
            return
        if found.findings or node.held or any(r.source == found.source for i in node.open.values() for r in i.reasons.values()):
            self.work.dirty[site.name] = None
        self._found(site, replace(found, read_at=event.fact.at))

    def _node_seen(self, site: Site, event: NodeSeen) -> bool:
        """False: nothing changed."""
        node, breaker = site.node, self.work.memory.breaker
        seen = (
            list(event.cards),
            event.unit,
            event.labels,
            event.parents,
            list(event.refused),
            None if event.offered is None else list(event.offered),
            event.unschedulable,
            event.ours,
        )
        known = (node.cards, node.unit, node.labels, node.parents, node.refused, node.offered, node.unschedulable, node.ours)
        if seen == known and bool(event.cards) is (site.name in breaker.nodes):
            return False
        self._unchanged.forget(site.name)
        by_hand = node.unschedulable and node.ours and not event.unschedulable and not node.asked
        node.cards, node.unit, node.labels, node.parents = list(event.cards), event.unit, event.labels, event.parents
        node.refused, node.offered = list(event.refused), None if event.offered is None else list(event.offered)
        if event.cards:
            breaker.seen(site.name, event.unit)
        else:
            breaker.gone(site.name)
        if (event.unschedulable, event.ours) != (node.unschedulable, node.ours):
            node.asked = ""  # the decision took effect, or another did: decide again
        node.unschedulable, node.ours = event.unschedulable, event.ours
        if by_hand:
            mute(site)
        return True

    def _agent_seen(self, site: Site, event: AgentSeen) -> None:
        """Costs nothing for an agent that reports as always."""
        if not self._same_boot(site, event.boot_id):
            return
        if site.node.agent_seen is None:
            if not event.heartbeat:
                return
            self.work.dirty[site.name] = None
        site.node.agent_seen = site.now
        self._agents.pop(site.name, None)
        self._agents[site.name] = site.now
        silent = site.node.open.get(key_of(NODE, "agent-silent"))
        if silent is not None:
            for reason in silent.reasons.values():
                end_reason(site, reason)
            self.work.dirty[site.name] = None

    def _verdict_seen(self, event: VerdictSeen) -> None:
        """Costs no review; what it measures is stored with the next change of the node."""
        node = self.work.memory.nodes.get(event.node)
        if node is not None and node.timed:
            timing.read_back(self.work.site(event.node), event.scopes)

    def _same_boot(self, site: Site, boot_id: str) -> bool:
        """Whether a report is about the node's present boot. The first report of a new boot ends what a boot cures."""
        node = site.node
        if not boot_id or boot_id == node.boot_id:
            return True
        if boot_id in node.earlier_boots:
            self.stale += 1
            return False
        if node.boot_id:
            node.earlier_boots = [*node.earlier_boots, node.boot_id][-MOST_BOOTS:]
            self._booted(site)
        self._unchanged.forget(site.name)
        node.boot_id, node.seq = boot_id, 0
        self.work.dirty[site.name] = None
        return True

    def _booted(self, site: Site) -> None:
        node = site.node
        node.records, node.bursts, node.resetting, node.faults, node.held, node.counted = {}, {}, {}, [], {}, Counted()
        for incident in node.open.values():
            if incident.kind == NODE_FAULT and not incident.ticket:
                node.repairs += [(site.now, Verb.REBOOT, card) for card in incident.cards or [""]]
            gate.restart(incident)
            incident.remedy = None
            if incident.state is IncidentState.REPAIRING:
                incident.state = IncidentState.CONFIRMED
            for reason in incident.reasons.values():
                reason.cured = reason.cured or course_of(reason.finding).cured_by_boot
            repaired(site, incident, Verb.REBOOT)

    def _found(self, site: Site, event: Found) -> None:
        node = site.node
        if not self._same_boot(site, event.boot_id) or event.earlier_boot:
            return
        if event.record:
            if event.record in node.records:
                return
            node.records[event.record] = None
            if len(node.records) > MOST_RECORDS:
                del node.records[next(iter(node.records))]
        if event.source:
            replace_source(site, event)
        for finding in event.findings:
            take(site, event, finding)

    # --- review of one node

    def _review(self, name: str) -> None:
        site = self.work.site(name)
        node = site.node
        faults(site)
        release_held(site)
        silence(site)
        flaps(site)
        refused(site)
        review_plugin(site)
        joins(site)
        review_ports(site)
        interventions.end_maintenance(site)
        for key, incident in list(node.open.items()):
            incident.held_by = list(incident.holders)
            if not advance(site, incident):
                del node.open[key]
        admitted = restrict(site)
        for incident in list(node.open.values()):
            act(site, incident, admitted)
        restrict(site)  # a remedy that begins takes its card out of use
        keep_pods(site)
        for incident in node.open.values():
            self.work.publish(name, incident, node)
        timing.review(site)
        self.work.changed.add(name)
        self._schedule(name, site.due)

    def _schedule(self, name: str, due: list[float]) -> None:
        soonest = min((at for at in due if at > self.work.now), default=None)
        if soonest is None:
            self._due.pop(name, None)
        elif self._due.get(name) != soonest:
            self._due[name] = soonest
            heapq.heappush(self._heap, (soonest, name))
