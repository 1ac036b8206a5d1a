"""Rollouts that wait for ever: the new pods beyond the declared number find no place, and the controller deletes no old pod before one of them is ready.

A rollout waits like this if an owner has more pods than it declares, as many of them are ready as it declares, and others have no node. A controller that may
delete a ready pod does so at once, so a state that lasts for WAITING_S does not end without a place, or a change of the owner.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hbox_common.model import PodUid
from hbox_common.workloads import Kind, OwnerRef

from .successions import Successions
from .views import PodView

#: Seconds for which a rollout has to wait before it is reported. Controllers react within a second, the places of ended pods are taken within another one.
WAITING_S = 10.0
#: Minimum seconds between two reports about one owner.
REPORTED_S = 60.0
#: Reports of one step.
MOST_REPORTS = 100


@dataclass(frozen=True, slots=True)
class Rollout:
    """An owner whose controller can start new pods before old ones end. `generation`: of its spec; the others: names of its two settings."""

    ref: OwnerRef
    namespace: str
    generation: int
    max_surge: str
    max_unavailable: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """A rollout without progress."""

    rollout: Rollout
    waiting: int
    ready: int

    @property
    def message(self) -> str:
        pods, wait = ("1 new pod", "waits") if self.waiting == 1 else (f"{self.waiting} new pods", "wait")
        return (
            f"{pods} of the rollout {wait} for a place beyond those of its {self.ready} ready pods, none of which ends before: "
            f"set {self.rollout.max_surge} to 0 and {self.rollout.max_unavailable} to at least 1, and new pods take the places of old ones"
        )


def rollout_of(kind: Kind | None, api_version: str, meta: Mapping[str, Any]) -> Rollout | None:
    """None for a kind whose controller starts no pods beyond the declared number. meta: the object's metadata as in JSON."""
    if kind is None or not kind.form.max_surge or not kind.form.max_unavailable:
        return None
    ref = OwnerRef(api_version, kind.kind, str(meta["name"]), str(meta["uid"]))
    return Rollout(
        ref, str(meta.get("namespace", "")), int(meta.get("generation", 0)), kind.form.max_surge, kind.form.max_unavailable
    )


class Surges:
    """One writer. `pod`: the newest version of a pod; `now`: monotonic seconds."""

    def __init__(self, successions: Successions, pod: Callable[[PodUid], PodView | None]) -> None:
        self._successions, self._pod = successions, pod
        self._rollouts: dict[str, Rollout] = {}
        self._since: dict[str, float] = {}  #: since when a rollout waits
        self._reported: dict[str, tuple[int, float]] = {}  #: generation and time of the last report

    def declare(self, uid: str, rollout: Rollout | None) -> None:
        """The owner was listed, added, modified or read; None: it has no surge, or is being deleted."""
        if rollout is not None:
            self._rollouts[uid] = rollout
            return
        for known in (self._rollouts, self._since, self._reported):
            known.pop(uid, None)

    def waits(self, uid: str) -> bool:
        """Whether the rollout of this owner waited at the last step."""
        return uid in self._since

    def step(self, now: float) -> list[Stuck]:
        """The rollouts to report now: each once per generation of its owner."""
        stuck = dict(self._stuck())
        self._since = {uid: self._since.get(uid, now) for uid in stuck}
        reports = []
        for uid, found in stuck.items():
            generation, at = self._reported.get(uid, (None, -REPORTED_S))
            if now < self._since[uid] + WAITING_S or generation == found.rollout.generation or now < at + REPORTED_S:
                continue
            self._reported[uid] = (found.rollout.generation, now)
            reports.append(found)
            if len(reports) == MOST_REPORTS:
                break
        return reports

    def _stuck(self) -> list[tuple[str, Stuck]]:
        found = []
        for uid, declared, pods in self._successions.beyond_declared():
            rollout = self._rollouts.get(uid)
            if rollout is None:
                continue
            views = [view for each in pods if (view := self._pod(each)) is not None and view.ours]
            ready = sum(bool(view.node) and view.ready for view in views)
            waiting = sum(view.placeable for view in views)
            if waiting and ready >= declared:
                found.append((uid, Stuck(rollout, waiting, ready)))
        return found
