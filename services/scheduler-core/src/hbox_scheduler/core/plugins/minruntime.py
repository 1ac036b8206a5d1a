"""minruntime: nobody is evicted before it has run for a while, and of those who may go the ones that lose least go first.

What a member loses is the time since its last checkpoint: the annotation `hbox.io/checkpointed-at` (RFC 3339, or seconds since the epoch),
`hbox.io/checkpoint-every` (a duration: it writes one that often), or all of its run where neither is written (requirements B3).
"""

from collections.abc import Sequence
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING

from hbox_common.model.annotations import CHECKPOINT_EVERY, CHECKPOINTED_AT, MIN_RUN_TIME

from ..cluster.entities import Gang, Member
from ..framework.hooks import Evictable, MemberOrder, Preemptable, Reclaimable
from .arguments import Arguments
from .durations import duration_s

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session


class MinRunTime(Preemptable, Reclaimable, Evictable, MemberOrder):
    """Arguments: preempt (duration, 0s) and reclaim (duration, 0s): for how long a member is protected from each."""

    name = "minruntime"
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
        return [member for member in candidates if self._ran(member) >= self._least(member, self._preempt_s)]

    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:  # noqa: ARG002
        return [member for member in candidates if self._ran(member) >= self._least(member, self._reclaim_s)]

    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member]:  # noqa: ARG002
        least_s = self._reclaim_s if reclaim else self._preempt_s
        return [member for member in candidates if self._ran(member) >= self._least(member, least_s)]

    def member_key(self, member: Member) -> float:
        """Served in the order of what they would lose, so that victims, taken from the end, lose least. Members that wait are equal."""
        return 0.0 if member.row < 0 else -lost_s(member, self._now)

    def _ran(self, member: Member) -> float:
        return float("inf") if member.started_at is None else self._now - member.started_at

    @staticmethod
    def _least(member: Member, policy_s: float) -> float:
        text = member.annotations.get(MIN_RUN_TIME) or member.gang.annotations.get(MIN_RUN_TIME, "")
        own_s = duration_s(text) if text else None
        return policy_s if own_s is None else own_s


def lost_s(member: Member, now: float) -> float:
    """Seconds of work that an eviction now would throw away."""
    if member.started_at is None:
        return 0.0
    ran_s = max(now - member.started_at, 0.0)
    annotations = {**member.gang.annotations, **member.annotations}
    if (at := _moment(annotations.get(CHECKPOINTED_AT, ""))) is not None:
        return min(max(now - at, 0.0), ran_s)
    every_s = duration_s(annotations[CHECKPOINT_EVERY]) if CHECKPOINT_EVERY in annotations else None
    return ran_s % every_s if every_s else ran_s


def _moment(text: str) -> float | None:
    """Seconds since the epoch; None for what is no moment."""
    if not text:
        return None
    try:
        seconds = float(text)
        return seconds if isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
