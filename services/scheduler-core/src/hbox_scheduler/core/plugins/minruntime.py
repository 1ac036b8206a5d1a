"""minruntime: no pod is evicted before it has run for the policy's minimum time; of a gang's members those that lose least are evicted first.

Administrators set the minimum. A pod, or its PodGroup, may set a shorter one (`hbox.io/min-run-time`), never a longer one: tenants cannot protect pods by
annotations. Minimum run times of queues (`hbox_common.model.minruntime`) apply as well, under every policy: the ledger records them with the claim.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hbox_common.model.annotations import MIN_RUN_TIME

from ..cluster.entities import Gang, Member
from ..framework.hooks import Evictable, MemberOrder, Preemptable, Reclaimable
from .arguments import Arguments
from .checkpoint import lost_s
from .durations import duration_s

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session


class MinRunTime(Preemptable, Reclaimable, Evictable, MemberOrder):
    """Arguments: preempt (duration, 0s) and reclaim (duration, 0s): for how long a member is protected from each."""

    name = "minruntime"
    time_dependent = True
    guards = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._preempt_s = arguments.duration_s("preempt", "0s")
        self._reclaim_s = arguments.duration_s("reclaim", "0s")
        arguments.done()
        self._now = 0.0

    def open(self, session: "Session") -> None:
        self._now = session.now

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:  # noqa: ARG002  # the hook's signature
        return self._long_enough(candidates, self._preempt_s)

    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:  # noqa: ARG002
        return self._long_enough(candidates, self._reclaim_s)

    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member]:  # noqa: ARG002
        return self._long_enough(candidates, self._reclaim_s if reclaim else self._preempt_s)

    def member_key(self, member: Member) -> float:
        """Served in the order of what they would lose, so that victims, taken from the end, lose least. Members that wait are equal."""
        return 0.0 if member.row < 0 else -lost_s(member, self._now)

    def _long_enough(self, members: Sequence[Member], policy_s: float) -> list[Member]:
        return [member for member in members if self._ran(member) >= _least(member, policy_s)]

    def _ran(self, member: Member) -> float:
        return float("inf") if member.started_at is None else self._now - member.started_at


def _least(member: Member, policy_s: float) -> float:
    text = member.annotations.get(MIN_RUN_TIME) or member.gang.annotations.get(MIN_RUN_TIME, "")
    own_s = duration_s(text) if text else None
    return policy_s if own_s is None else min(own_s, policy_s)
