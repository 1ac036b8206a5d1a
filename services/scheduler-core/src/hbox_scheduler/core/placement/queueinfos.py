"""Queues as sessions see them."""

from collections.abc import Mapping, Set

from hbox_common.model import Queue, QueueName, QueuePhase, QueueTree, by_pool
from hbox_common.model.resources import PODS

from ..cluster.entities import QueueInfo


class QueueInfos:
    """Kept as long as they are the same: who keeps something by queue sees what changed."""

    def __init__(self) -> None:
        self._version = -1
        self._tree: list[QueueInfo] = []  #: those of the tree, in its order
        self._infos: dict[QueueName, tuple[Queue, QueueInfo]] = {}

    def of(self, queues: QueueTree, named: Set[QueueName], recent_cards: Mapping[QueueName, float]) -> list[QueueInfo]:
        """Those of the tree, and those that nobody made and somebody names."""
        unknown = [self._info(Queue(name), queues, 0.0) for name in sorted(named - queues.keys())]
        infos = self._infos
        if queues.version != self._version:
            for name in infos.keys() - queues.keys() - named:
                del infos[name]
            self._version = queues.version
            self._tree = [self._info(queue, queues, recent_cards.get(name, 0.0)) for name, queue in queues.items()]
        elif any(info.recent_cards != recent_cards.get(info.name, 0.0) for info in self._tree):
            self._tree = [self._info(infos[info.name][0], queues, recent_cards.get(info.name, 0.0)) for info in self._tree]
        return [*self._tree, *unknown]

    def _info(self, queue: Queue, queues: QueueTree, recent_cards: float) -> QueueInfo:
        found = self._infos.get(queue.name)
        if found is not None:
            known, info = found
            phase = QueuePhase.CLOSED if queues.refusal(queue.name) else QueuePhase.OPEN
            if (
                (known is queue or known == queue)
                and (info.recent_cards, info.phase) == (recent_cards, phase)
                and info.pools == queues.pools(queue.name)
            ):
                return info
        info = _queue_info(queue, queues, recent_cards)
        self._infos[queue.name] = queue, info
        return info


def _queue_info(queue: Queue, queues: QueueTree, recent_cards: float) -> QueueInfo:
    amounts = queues.amounts(queue.name)
    return QueueInfo(
        name=queue.name,
        weight=queue.weight,
        priority=queue.priority,
        parent=QueueName(queue.parent) if queue.parent else None,
        capability=amounts.capability,
        deserved={name: units for name, units in amounts.deserved.items() if by_pool(name)[0] != PODS},
        guarantee=amounts.guarantee,
        reclaimable=queue.reclaimable,
        phase=QueuePhase.CLOSED if queues.refusal(queue.name) else QueuePhase.OPEN,
        created_at=queue.created_at,
        annotations=queue.annotations,
        recent_cards=recent_cards,
        node_groups=queue.node_groups,
        pools=queues.pools(queue.name),
    )
