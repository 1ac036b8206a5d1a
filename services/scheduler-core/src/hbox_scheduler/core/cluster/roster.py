"""The queues of a session with aggregates over them. Cached across sessions while the queues are unchanged, so that a session for one pod costs the same with
thousands of queues as with ten."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from hbox_common.model import QueueName
from hbox_common.model.annotations import OVER_QUOTA_WEIGHT

from .entities import QueueInfo


@dataclass(frozen=True, slots=True, eq=False)
class Roster:
    """Compared by identity. `queues`: in their order; `named`: the resources that their amounts name, each once; `keeping`: queues that are not reclaimable;
    `weighted`: whether any queue has a weight beyond its deserved amount (`OVER_QUOTA_WEIGHT`)."""

    queues: Mapping[QueueName, QueueInfo]
    named: tuple[str, ...]
    keeping: frozenset[QueueName]
    weighted: bool

    @classmethod
    def of(cls, queues: Iterable[QueueInfo]) -> Self:
        by_name = {queue.name: queue for queue in queues}
        amounts = (of for queue in by_name.values() for of in (queue.capability, queue.deserved, queue.guarantee))
        return cls(
            by_name,
            tuple(dict.fromkeys(name for of in amounts for name in of)),
            frozenset(queue.name for queue in by_name.values() if not queue.reclaimable),
            any(OVER_QUOTA_WEIGHT in queue.annotations for queue in by_name.values()),
        )

    def paths(self) -> dict[QueueName, tuple[QueueName, ...]]:
        """Each queue and those above it, itself first."""
        parents = {queue.name: queue.parent for queue in self.queues.values()}
        paths: dict[QueueName, tuple[QueueName, ...]] = {}
        for name in parents:
            path = [name]
            while (parent := parents.get(path[-1])) is not None and parent in parents and parent not in path:
                path.append(parent)
            paths[name] = tuple(path)
        return paths
