"""Messages that are published about a node, under the subject of this node."""

import logging
from collections.abc import Iterator, Sequence
from typing import TypeVar

from hbox_common.bus import Delivery
from hbox_common.events import GateJobObserved, HealthReport, RemedyObserved, token_of

from . import metrics

log = logging.getLogger(__name__)

M = TypeVar("M", HealthReport, RemedyObserved, GateJobObserved)


def of_own_nodes(deliveries: Sequence[Delivery], type_: type[M]) -> Iterator[M]:
    """The messages of one type. One about another node than that of its subject is refused and counted: no writer speaks for another node."""
    for delivery in deliveries:
        event = delivery.event
        assert isinstance(event, type_)
        if delivery.key == token_of(event.node):
            yield event
        else:
            metrics.REFUSED.labels("foreign-node").inc()
            log.warning(
                "a %s about node %s was published for another node, on %s", type_.__name__, event.node, delivery.subject
            )
