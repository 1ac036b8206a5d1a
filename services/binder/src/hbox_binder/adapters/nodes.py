"""Node decisions: cordon, and uncordon of what was cordoned by the same owner. Single-file, the newest decision on a node alone."""

import logging
from collections.abc import Sequence

from hbox_common.bus import Bus, Delivery
from hbox_common.errors import Unavailable
from hbox_common.events import NodeAction, NodeDecided, NodeObserved, NodeOutcome
from hbox_common.kube import CordonOutcome, KubeClient, cordon, uncordon
from hbox_common.model import NodeName

from .. import metrics
from ..core import LONGEST_MESSAGE

log = logging.getLogger(__name__)

_OUTCOME: dict[CordonOutcome, NodeOutcome] = {
    CordonOutcome.DONE: NodeOutcome.DONE,
    CordonOutcome.NOT_OURS: NodeOutcome.NOT_OURS,
    CordonOutcome.GONE: NodeOutcome.GONE,
    CordonOutcome.REJECTED: NodeOutcome.REJECTED,
}


class NodeWorker:
    """Handles deliveries of `NodeDecided`. Doing one twice changes nothing: what the node shows decides."""

    def __init__(self, client: KubeClient, bus: Bus) -> None:
        self._client, self._bus = client, bus

    async def handle(self, deliveries: Sequence[Delivery]) -> None:
        """Raises Unavailable where the API server's answer leaves it open: the bus hands the batch over again."""
        newest: dict[NodeName, NodeDecided] = {}
        for delivery in deliveries:
            assert isinstance(delivery.event, NodeDecided)
            newest[delivery.event.node] = delivery.event
        for decision in newest.values():
            await self._apply(decision)

    async def _apply(self, decision: NodeDecided) -> None:
        if decision.action is NodeAction.CORDON:
            result = await cordon(self._client, node=decision.node, reason=decision.reason, owner=decision.owner)
        else:
            result = await uncordon(self._client, node=decision.node, owner=decision.owner)
        outcome = _OUTCOME.get(result.outcome)
        if outcome is None:
            raise Unavailable(f"{decision.action} {decision.node}: {result.message}")
        await self._bus.publish(
            NodeObserved(
                decision=decision.id,
                node=decision.node,
                action=decision.action,
                outcome=outcome,
                message=result.message[:LONGEST_MESSAGE],
            ),
            decision.node,
            message_id=f"node.result.{decision.id}",
        )
        metrics.NODES.labels(decision.action, outcome).inc()
        log.info(
            "%s %s: %s %s", decision.action, decision.node, outcome, result.message,
            extra={"node": decision.node, "reason": decision.reason},
        )  # fmt: skip
