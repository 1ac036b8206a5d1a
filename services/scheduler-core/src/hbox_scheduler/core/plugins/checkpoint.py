"""checkpoint: evict the pods first that lose the least work (requirements B3).

A pod loses the time since its last checkpoint: since the annotation `hbox.io/checkpointed-at`, or since the last multiple of `hbox.io/checkpoint-interval`
after its start; without these annotations its whole run. An impossible time (in the future, or before the pod's start) is ignored. No annotation makes a loss
larger than the run: a false, late time only makes the pod an earlier victim. If no pod has these annotations, the order stays: last served, first evicted.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model.annotations import CHECKPOINT_EVERY, CHECKPOINT_INTERVAL, CHECKPOINTED_AT
from hbox_common.model.durations import duration_s

from ..cluster.arrays import Floats, Ints
from ..cluster.entities import Member
from ..cluster.runningtable import CHECKPOINT_ANNOTATIONS, RunningTable
from ..framework.hooks import VictimLoss
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

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

    def estimates(self, table: RunningTable, slots: Ints, members: Sequence[Member]) -> bool:
        return bool(table.checkpointed[slots].any()) or any(
            has_checkpoint_annotations(member) for member in members if member.annotations or member.gang.annotations
        )

    def losses(self, members: Sequence[Member]) -> Sequence[float]:
        return [lost_s(member, self._now) for member in members]

    def lone_losses(self, table: RunningTable, slots: Ints) -> Floats:
        return lone_losses_s(table, slots, self._now)


def has_checkpoint_annotations(member: Member) -> bool:
    """Whether something is written on the pod, or its PodGroup, of when it writes checkpoints."""
    return any(key in member.annotations or key in member.gang.annotations for key in CHECKPOINT_ANNOTATIONS)


def lost_s(member: Member, now: float) -> float:
    """Seconds of work that an eviction now would throw away: at most all of its run."""
    if member.started_at is None:
        return 0.0
    return _lost_s(member.started_at, {**member.gang.annotations, **member.annotations}, now)


def _lost_s(started_at: float, annotations: Mapping[str, str], now: float) -> float:
    ran_s = max(now - started_at, 0.0)
    at = _moment(annotations.get(CHECKPOINTED_AT, ""))
    if at is not None and started_at <= at <= now + _SKEW_S:
        return max(now - at, 0.0)
    every_s = duration_s(annotations.get(CHECKPOINT_INTERVAL) or annotations.get(CHECKPOINT_EVERY, ""))
    return ran_s % every_s if every_s else ran_s


def lone_losses_s(table: RunningTable, slots: Ints, now: float) -> Floats:
    """`[n]`: as `lost_s`, of the pods in these slots, each the only one of its job."""
    found = np.maximum(now - np.nan_to_num(table.started_at[slots], nan=now), 0.0)
    for at in np.flatnonzero(table.checkpointed[slots] & ~np.isnan(table.started_at[slots])).tolist():
        slot = slots.item(at)
        found[at] = _lost_s(table.started_at.item(slot), table.annotations[slot], now)
    return found


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
