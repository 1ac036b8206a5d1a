"""Node decisions: cordon, and uncordon of what was cordoned by the same owner; likewise the taint of health. Single-file, the newest decision on a node alone.

One that could not be done, or that a binder had which was killed, comes again when a newer one may be done already. So the stream is asked for the last
decision of the node before anything is done: an older one is over, by whatever way it came.
"""

import logging
from collections.abc import Sequence

from hbox_common.bus import Bus, Delivery
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import NodeAction, NodeDecided, NodeObserved, NodeOutcome
from hbox_common.kube import CordonOutcome, CordonResult, KubeClient, cordon, keep_taint, uncordon
from hbox_common.model import DecisionId, TaintEffect
from hbox_common.model.annotations import HEALTH_TAINT

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
        self._done: set[DecisionId] = set()  #: of batches that come again

    async def handle(self, deliveries: Sequence[Delivery]) -> None:
        """Raises Unavailable where an answer of the API server leaves one of them open: the bus hands the batch over again, and what is done of it stays so."""
        newest: dict[str, Delivery] = {}
        for delivery in deliveries:
            assert isinstance(delivery.event, NodeDecided)
            newest[delivery.event.key] = delivery
        open_: Unavailable | None = None
        for delivery in newest.values():
            decision = delivery.event
            assert isinstance(decision, NodeDecided)
            if decision.id in self._done:
                continue
            try:
                if await self._is_last(decision, delivery.sequence):
                    await self._apply(decision)
            except Unavailable as e:  # one node's trouble keeps no other waiting
                open_ = e
            else:
                self._done.add(decision.id)
        if open_ is not None:
            raise open_
        self._done -= {delivery.event.id for delivery in deliveries if isinstance(delivery.event, NodeDecided)}

    async def _is_last(self, decision: NodeDecided, sequence: int) -> bool:
        """Raises Unavailable."""
        try:
            found = await self._bus.last_in_stream(NodeDecided, decision.key)
        except InvalidRequest as e:  # it cannot be read, and is set aside when it comes
            log.warning("the last decision of node %s: %s", decision.node, e, extra={"node": decision.node})
            return True
        if found is not None and found.sequence > sequence:
            log.info("%s %s: a newer decision is there", decision.action, decision.node, extra={"node": decision.node})
            return False
        return True

    async def _apply(self, decision: NodeDecided) -> None:
        if decision.action in (NodeAction.TAINT, NodeAction.UNTAINT):
            result = await self._taint(decision)
        elif decision.action is NodeAction.CORDON:
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

    async def _taint(self, decision: NodeDecided) -> CordonResult:
        """Set or remove the taint of health; all other taints stay. Raises Unavailable."""
        value = decision.taint if decision.action is NodeAction.TAINT else None
        try:
            await keep_taint(
                self._client, node=decision.node, key=HEALTH_TAINT, value=value, effect=TaintEffect.PREFER_NO_SCHEDULE
            )
        except InvalidRequest as e:
            return CordonResult(CordonOutcome.REJECTED, str(e))
        return CordonResult(CordonOutcome.DONE)
