"""From reports of agents to incidents, verdicts and evictions.

A batch of reports is judged in memory, stored in one transaction, and only then published and acknowledged. If the database does not answer, the judgement is
loaded again and the broker delivers the batch again. After a restart all open incidents are published again, and requests of evictions without an open incident
are withdrawn: a crash between the transaction and the messages loses nothing.
"""

import logging
from collections.abc import Callable, Sequence

from hbox_common.bus import Delivery
from hbox_common.clock import wall_s
from hbox_common.errors import Unavailable
from hbox_common.events import HealthEvictionAsked, HealthReport, token_of
from hbox_common.model import CardId, Incident, IncidentState, NodeName
from hbox_common.model.sickhardware import SickPolicy

from . import metrics
from .adapters.incidentstore import IncidentStore
from .adapters.outbox import Outbox
from .core import Judged
from .core.judge.finding import Scope
from .core.recoveryactions import Incidents

log = logging.getLogger(__name__)

#: Incidents that changed so many seconds before a start are published again.
REPUBLISHED_S = 3600.0


class Judging:
    """`judged`: receives the scopes of a node whenever they change, before the jobs on its hardware are asked to leave."""

    def __init__(self, store: IncidentStore, outbox: Outbox, judged: Callable[[Judged], None], *, policy: SickPolicy) -> None:
        self._store, self._outbox, self._judged, self._policy = store, outbox, judged, policy
        self._incidents = Incidents()
        self._standing: dict[tuple[NodeName, str], HealthEvictionAsked] = {}  #: requests in the stream

    async def begin(self) -> None:
        """Continue from the database."""
        self._incidents, recent = await self._store.load(since=wall_s() - REPUBLISHED_S)
        for node in self._incidents.open:
            self._judged(Judged(node, self._incidents.scopes(node)))
        for incident in recent:
            self._publish(incident)
        self._count()

    def note(self, asked: HealthEvictionAsked) -> None:
        """A request that is in the stream."""
        if not asked.ended:
            self._standing[asked.node, asked.incident] = asked

    def synced(self) -> None:
        """All requests of the stream were passed to `note`."""
        for (node, incident), asked in self._standing.items():
            if incident not in self._incidents.open.get(node, {}):
                self._outbox.evict(asked.model_copy(update={"ended": True}))
        self._standing.clear()

    def republish(self) -> None:
        """The stream of requests was lost: publish all open incidents again, with their requests."""
        for here in self._incidents.open.values():
            for incident in here.values():
                self._publish(incident)

    async def on_reports(self, deliveries: Sequence[Delivery]) -> None:
        now, changed, facts = wall_s(), dict[str, Incident](), set[NodeName]()
        for delivery in deliveries:
            report = delivery.event
            assert isinstance(report, HealthReport)
            if delivery.key != token_of(report.node):
                metrics.REFUSED.labels("foreign-node").inc()
                log.warning("a report about node %s was published for another node, on %s", report.node, delivery.subject)
                continue
            metrics.REPORTS.inc()
            judged = tuple(fact for fact in report.facts if fact.check not in report.report_only)
            changed |= self._incidents.report(report.node, report.boot_id, judged, now)
            facts.add(report.node)
        try:
            await self._store.save(changed.values(), {node: self._incidents.nodes[node] for node in facts})
        except Unavailable:
            self._incidents, _ = await self._store.load(since=now)
            raise
        for node in {one.node for one in changed.values()}:
            self._judged(Judged(node, self._incidents.scopes(node)))
        for incident in changed.values():
            self._publish(incident)
            log.warning("incident %s is %s: %s", incident.id, incident.state, incident.why, extra={"node": incident.node})
        self._count()

    async def forget(self, *, before: float) -> None:
        await self._store.forget(before=before)

    def _publish(self, incident: Incident) -> None:
        self._outbox.incident(incident)
        if incident.scope == Scope.GPU:
            self._outbox.evict(
                HealthEvictionAsked(
                    node=incident.node,
                    incident=incident.id,
                    boot_id=incident.boot_id,
                    cards=(CardId(incident.entity),),
                    reason=incident.why,
                    policy=self._policy,
                    ended=incident.state is IncidentState.CLOSED,
                )
            )

    def _count(self) -> None:
        metrics.count_incidents(one for here in self._incidents.open.values() for one in here.values())
