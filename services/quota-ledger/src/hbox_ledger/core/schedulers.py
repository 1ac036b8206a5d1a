"""The scheduler that leads each shard, by the terms of its lease.

A scheduler that was paused for longer than its lease wakes up and continues to propose for a moment. Its plans are judged like all others, so no card is
allocated twice; but it plans concurrently with its successor, and plans of both would be refused. So the ledger refuses plans of a lower term than the
shard's highest known one, and ignores nominations that such a scheduler gives up: they belong to its successor now.

A term without a message for SILENT_S does not count: deleting a lease restarts its terms, and the shard must not stop for that. Terms are not kept over a
restart, and a scheduler that was not elected (term 0) is not checked.
"""

from dataclasses import dataclass, field

from hbox_common.model import SchedulerId
from hbox_common.model.shards import MOST_SHARDS, shard_of, term_of

#: Seconds. Longer than the default lease duration (15 s), so that the previous leader has noticed by then.
SILENT_S = 60.0


@dataclass(slots=True)
class Schedulers:
    _leaders: dict[str, tuple[int, float]] = field(default_factory=dict)  #: by shard: term, and time of its last message

    def outdated(self, scheduler: SchedulerId, now: float) -> str:
        """Why the scheduler no longer leads its shard; empty if it may. `now`: when its message arrived, Unix time in seconds."""
        term = term_of(scheduler)
        if not term:
            return ""
        shard = shard_of(scheduler)
        highest, received_at = self._leaders.get(shard, (0, now))
        if term < highest and abs(now - received_at) < SILENT_S:
            return f"the plan is of term {term} of shard {shard}, which has a scheduler of term {highest}"
        if shard not in self._leaders and len(self._leaders) >= MOST_SHARDS:
            del self._leaders[min(self._leaders, key=lambda each: self._leaders[each][1])]
        self._leaders[shard] = term, now
        return ""
