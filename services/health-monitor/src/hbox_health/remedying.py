"""Decisions on remedies: what node-remedy of each node may execute now, derived from the open incidents.

A decision expires after LEASE_S unless it is renewed, so that no node is changed by a health-monitor that is away. It keeps its id for as long as its incident
waits for the result: node-remedy executes it once, and publishes the result again if it receives the decision again.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

from hbox_common.bus import Delivery
from hbox_common.clock import wall_s
from hbox_common.events import RemediesDecided, RemedyObserved
from hbox_common.model import IncidentState, NodeName
from hbox_common.model.bounds import sanitized
from hbox_common.model.remedy import Decision, Outcome, Verb

from . import metrics
from .adapters.outbox import Outbox
from .core.judge.happenings import Remedied
from .core.judge.memory import NodeMemory
from .nodemessages import of_own_nodes

log = logging.getLogger(__name__)

#: Seconds for which a decision is valid, and after which a standing one is renewed. The clocks of nodes may differ by the difference.
LEASE_S, RENEW_S = 300.0, 60.0


class Remedying:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._standing: dict[NodeName, RemediesDecided] = {}  #: the last value of each node with decisions
        self._renewed_at = wall_s()

    @property
    def nodes(self) -> Iterable[NodeName]:
        return self._standing.keys()

    def note(self, decided: RemediesDecided) -> None:
        """Decisions that were in the stream at the start."""
        if decided.decisions:
            self._standing[decided.node] = decided

    def lost(self) -> None:
        """The stream lost all decisions."""
        self._standing.clear()

    def publish(self, name: str, node: NodeMemory | None) -> None:
        """Publish the decisions of a node, if they differ from the stream."""
        known = self._standing.get(NodeName(name))
        wanted = decisions_of(node, expires=wall_s() + LEASE_S)
        if [one.id for one in wanted] != [one.id for one in (known.decisions if known else ())]:
            self._put(NodeName(name), node, wanted)

    def renew(self, nodes: Mapping[str, NodeMemory]) -> None:
        """Keep the standing decisions valid, every RENEW_S."""
        now = wall_s()
        if now - self._renewed_at < RENEW_S:
            return
        self._renewed_at = now
        for name in list(self._standing):
            node = nodes.get(name)
            self._put(name, node, decisions_of(node, expires=now + LEASE_S))

    def _put(self, name: NodeName, node: NodeMemory | None, wanted: tuple[Decision, ...]) -> None:
        decided = RemediesDecided(node=name, boot_id=node.boot_id if node else "", decisions=wanted)
        self._outbox.remedies(decided)
        if wanted:
            self._standing[name] = decided
        else:
            self._standing.pop(name, None)


def decisions_of(node: NodeMemory | None, *, expires: float) -> tuple[Decision, ...]:
    """Requested remedies without a result, of the node's present boot. What an exemption, a hand or a maintenance holds back may not begin."""
    if node is None:
        return ()
    return tuple(
        Decision(asked.incident, asked.entity, asked.verb, asked.attempt, expires)
        for incident in node.open.values()
        if (asked := incident.remedy) is not None
        and (incident.state is IncidentState.REPAIRING or asked.verb is Verb.DIAGNOSE)
        and not incident.withdrawn
        and asked.boot_id == node.boot_id
    )


def results(deliveries: Sequence[Delivery]) -> Iterable[Remedied]:
    """What node-remedy reports. A result under another node's name is refused and counted."""
    for observed in of_own_nodes(deliveries, RemedyObserved):
        decision = observed.decision
        metrics.REMEDIES.labels(decision.verb, observed.outcome).inc()
        log.log(
            logging.INFO if observed.outcome in (Outcome.BEGUN, Outcome.DONE) else logging.WARNING,
            "%s of %s on %s: %s %s", decision.verb, decision.entity, observed.node, observed.outcome, observed.message,
            extra={"node": observed.node, "incident": decision.incident},
        )  # fmt: skip
        refused = (observed.message,) if observed.outcome is Outcome.REFUSED and observed.message else ()
        yield Remedied(
            observed.node,
            decision.entity,
            decision.verb,
            observed.outcome,
            observed.holders or refused,
            decision.id,
            sanitized("; ".join(observed.failures) or observed.message),
        )
