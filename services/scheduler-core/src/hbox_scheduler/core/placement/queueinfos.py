"""Queues as sessions see them."""

from collections.abc import Set

from hbox_common.model import Queue, QueueName, QueuePhase, QueueTree, by_pool
from hbox_common.model.resources import PODS

from ..cluster.entities import QueueInfo
from ..cluster.facts import RecentUse
from ..cluster.roster import Roster
from ..cluster.running import RunningGangs


class QueueInfos:
    """Kept while they are the same, so that caches by queue notice changes."""

    def __init__(self) -> None:
        self._seen = (-1, -1)  #: version of the tree, and number of changes of recent use
        self._infos: dict[QueueName, tuple[Queue, QueueInfo]] = {}
        self._unknown: list[QueueName] = []  #: those of the roster that are not in the tree
        self._roster = Roster.of(())
        #: queues of running gangs that are not in the tree, and for which gangs and version of the tree
        self._running_unknown: set[QueueName] = set()
        self._running: tuple[RunningGangs | None, int] = (None, -1)

    def of(self, queues: QueueTree, named: Set[QueueName], running: RunningGangs, recent_use: RecentUse) -> Roster:
        """The queues of the tree, plus queues that jobs name but that do not exist: `named`, and those of running gangs."""
        unknown = sorted({*self._unknown_of(queues, running), *(name for name in named if name not in queues)})
        seen = queues.version, recent_use.changes
        if (seen, unknown) == (self._seen, self._unknown):
            return self._roster
        infos = self._infos
        if seen[0] != self._seen[0]:
            for name in infos.keys() - queues.keys() - named - running.queues.keys():
                del infos[name]
        self._seen, self._unknown = seen, unknown
        known = [self._info(queue, queues, recent_use.cards.get(name, 0.0)) for name, queue in queues.items()]
        found = [*known, *(self._info(Queue(name), queues, 0.0) for name in unknown)]
        if found != list(self._roster.queues.values()):
            self._roster = Roster.of(found)
        return self._roster

    def _unknown_of(self, queues: QueueTree, running: RunningGangs) -> Set[QueueName]:
        """Queues of running gangs that are not in the tree. Its cost follows the queues whose first gang came or whose last one left."""
        unknown = self._running_unknown
        if self._running != (running, queues.version):
            self._running = running, queues.version
            unknown.clear()
            running.queues_changed.update(running.queues)
        for name in running.queues_changed:
            if name in running.queues and name not in queues:
                unknown.add(name)
            else:
                unknown.discard(name)
        running.queues_changed.clear()
        return unknown

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
