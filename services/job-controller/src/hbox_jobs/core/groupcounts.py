"""PodGroups by queue and phase, as their objects say. Counted change by change."""

from collections import Counter
from collections.abc import Mapping

from hbox_common.model import DEFAULT_QUEUE, QueueName

from .views import GroupPhase, GroupView


class PhaseCounts:
    """What each queue has of PodGroups. A bare pod has none, and is not counted."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[QueueName, GroupPhase]] = {}  #: by uid
        self._counts: Counter[tuple[QueueName, GroupPhase]] = Counter()

    def put(self, group: GroupView) -> bool:
        """A PodGroup as it is now. Returns whether a count moved."""
        where = (group.queue or DEFAULT_QUEUE, group.status.phase or GroupPhase.PENDING)
        if self._of.get(group.uid) == where:
            return False
        self._drop(group.uid)
        self._of[group.uid] = where
        self._counts[where] += 1
        return True

    def gone(self, group: GroupView) -> bool:
        """It was deleted. Returns whether a count moved."""
        return self._drop(group.uid)

    def by_queue(self) -> Mapping[QueueName, Mapping[GroupPhase, int]]:
        """Queues that have any, and of each the phases that are not 0."""
        found: dict[QueueName, dict[GroupPhase, int]] = {}
        for (queue, phase), count in self._counts.items():
            found.setdefault(queue, {})[phase] = count
        return found

    def _drop(self, uid: str) -> bool:
        before = self._of.pop(uid, None)
        if before is None:
            return False
        self._counts[before] -= 1
        if not self._counts[before]:
            del self._counts[before]
        return True
