"""checkpoint: evict the pods first that lose the least work (requirements B3).

A pod loses the time since its last checkpoint: since the annotation `hbox.io/checkpointed-at`, or since the last multiple of `hbox.io/checkpoint-interval`
after its start; without these annotations its whole run. An impossible time (in the future, or before the pod's start) is ignored. No annotation makes a loss
larger than the run: a false, late time only makes the pod an earlier victim. If no pod has these annotations, the order stays: last served, first evicted.
"""

from collections.abc import Sequence
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING

from hbox_common.model.annotations import CHECKPOINT_EVERY, CHECKPOINT_INTERVAL, CHECKPOINTED_AT
from hbox_common.model.durations import duration_s

from ..cluster.entities import Member
from ..framework.hooks import VictimLoss
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

_WRITTEN = (CHECKPOINTED_AT, CHECKPOINT_INTERVAL, CHECKPOINT_EVERY)


#: By how much the clock of a pod's node may be ahead of ours.
_SKEW_S = 60.0


class Checkpoint(VictimLoss):
    """No arguments."""

    name = "checkpoint"

    def __init__(self, conf: "PluginConf") -> None:
        Arguments(conf).done()
        self._now = 0.0

    def open(self, session: "Session") -> None:
        self._now = session.now

    def losses(self, members: Sequence[Member]) -> Sequence[float] | None:
        if not any(has_checkpoint_annotations(member) for member in members if member.annotations or member.gang.annotations):
            return None
        return [lost_s(member, self._now) for member in members]


def has_checkpoint_annotations(member: Member) -> bool:
    """Whether something is written on the pod, or its PodGroup, of when it writes checkpoints."""
    return any(key in member.annotations or key in member.gang.annotations for key in _WRITTEN)


def lost_s(member: Member, now: float) -> float:
    """Seconds of work that an eviction now would throw away: at most all of its run."""
    if member.started_at is None:
        return 0.0
    ran_s = max(now - member.started_at, 0.0)
    annotations = {**member.gang.annotations, **member.annotations}
    at = _moment(annotations.get(CHECKPOINTED_AT, ""))
    if at is not None and member.started_at <= at <= now + _SKEW_S:
        return max(now - at, 0.0)
    every_s = duration_s(annotations.get(CHECKPOINT_INTERVAL) or annotations.get(CHECKPOINT_EVERY, ""))
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
        moment = datetime.fromisoformat(text)
        return moment.timestamp() if moment.tzinfo is not None else None  # RFC 3339 requires a time zone
    except (ValueError, OverflowError, OSError):
        return None
