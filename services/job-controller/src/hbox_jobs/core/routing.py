"""Which shard has which job (`hbox_common.model.shards`), and which shards have a live scheduler.

Routing has no memory: another process routes the same jobs and queues in the same way. A job moves when its queue's pools change, its pods name another pool,
or the set of shards changes.
"""

from collections.abc import Mapping

from hbox_common.model import Job, Queue, QueueName, QueueTree
from hbox_common.model.pools import in_order
from hbox_common.model.shards import Shards

#: Seconds. A shard's scheduler publishes its policy every 10 s.
SILENT_S = 35.0


class Routing:
    """`shards`: the configured shards. If they have pools, queues have to be read before any job is routed."""

    def __init__(self, shards: Shards = Shards.ONE, *, began: float = 0.0) -> None:
        """`began`: when this service did, in seconds of the clock by which it is asked."""
        self.shards, self._began = shards, began
        self._queues = QueueTree({})
        self._rules: dict[QueueName, object] = {}
        self._received: dict[str, float] = {}  #: seconds

    @property
    def by_queue(self) -> bool:
        """Whether the queues' pools have to be known."""
        return self.shards.pooled and len(self.shards.names) > 1

    def shard_of(self, job: Job) -> str:
        """Where the job belongs now."""
        if not self.by_queue:
            return self.shards.of(job)
        # An unknown queue may use the same pools as one without annotations: the schedulers of that shard report that it does not exist.
        return self.shards.of(job, in_order(self._queues.pools(job.queue), self._queues.reach(job.queue)))

    def queue(self, queue: Queue, *, gone: bool) -> bool:
        """A queue as it is now. Returns whether jobs, of whichever queue, may belong elsewhere."""
        rules = None if gone else (queue.parent, queue.pools, queue.lent_pools, queue.lent_to)
        if self._rules.get(queue.name) == rules:
            return False
        if rules is None:
            self._rules.pop(queue.name, None)
            del self._queues[queue.name]
        else:
            self._rules[queue.name] = rules
            self._queues[queue.name] = queue
        return True

    def received(self, shard: str, at: float) -> None:
        """A scheduler of the shard gave a sign of life."""
        self._received[shard] = at

    def silent_s(self, now: float) -> Mapping[str, float]:
        """For each shard, seconds since its scheduler's last message."""
        return {shard: now - self._received.get(shard, self._began) for shard in self.shards.names}

    def without_scheduler(self, now: float) -> dict[str, str]:
        """Shards without a scheduler, with the message for their jobs. Empty if there is only one shard."""
        if not self.shards.several:
            return {}
        return {shard: _silence_text(shard, silent) for shard, silent in self.silent_s(now).items() if silent > SILENT_S}


def _silence_text(shard: str, silent_s: float) -> str:
    return (
        f"shard {shard} has no scheduler: no message from one for {silent_s:.0f} s; its jobs wait, those of other shards do not"
    )
