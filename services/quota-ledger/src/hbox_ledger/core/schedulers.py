"""Which scheduler leads each shard, by the terms of their leases.

A scheduler that was paused for longer than its lease wakes up and goes on proposing for a moment. Whatever it proposes is judged as any other plan, so that it
takes nothing twice; but it plans beside its successor, and each would have the other refused. So plans of a lower term than the highest that was heard
of the shard are refused, and change nothing, nor does what it gives up: that is its successor's by now.

A term that was not heard for SILENT_S binds nobody: whoever deletes a lease begins its terms anew, and the shard must not stand still for that. Nothing of
this is kept over a restart, and a scheduler that was not elected (term 0) is not held to any.
"""

from dataclasses import dataclass, field

from hbox_common.model import SchedulerId
from hbox_common.model.shards import MOST_SHARDS, shard_of, term_of

#: Seconds. Longer than any lease is by default (15 s), so that the one before has noticed by then.
SILENT_S = 60.0


@dataclass(slots=True)
class Schedulers:
    _leaders: dict[str, tuple[int, float]] = field(default_factory=dict)  #: by shard: the term, and when it was heard last

    def outdated(self, scheduler: SchedulerId, now: float) -> str:
        """Why the scheduler does not lead its shard any more; empty where it may. It was heard at `now`, in seconds since the epoch."""
        term = term_of(scheduler)
        if not term:
            return ""
        shard = shard_of(scheduler)
        highest, heard_at = self._leaders.get(shard, (0, now))
        if term < highest and abs(now - heard_at) < SILENT_S:
            return f"the plan is of term {term} of shard {shard}, which has a scheduler of term {highest}"
        if shard not in self._leaders and len(self._leaders) >= MOST_SHARDS:
            del self._leaders[min(self._leaders, key=lambda each: self._leaders[each][1])]
        self._leaders[shard] = term, now
        return ""
