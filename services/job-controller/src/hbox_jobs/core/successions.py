"""Pods that controllers replace, and how many of them are missing (ADR 120).

A succession is the topmost owner of a pod that replaces its pods (`replaced` of its kind), by uid. Owners above it do not count: they create new work, such as
the next step of a workflow. The scheduler keeps the place of a pod that ends for the next pod of its succession, as long as pods are waiting or missing.
Missing are pods that the owner declares and that do not exist, and pods whose job is not published yet, such as those that a rollout creates beyond the
declared number just before it deletes others: the scheduler does not know them. They are published from the end of one of its pods on: while a workload starts,
nothing is published. A training job that has ended declares pods, too, and needs none: its kind replaces no pods.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from hbox_common.model import MissingPods, PodUid
from hbox_common.workloads import Kind

from .views import PodView


def declared_pods(kind: Kind | None, spec: object) -> int | None:
    """How many pods the controller of the object keeps running; None if it keeps none, or a field is wrong."""
    if kind is None or not kind.form.replaced or not isinstance(spec, Mapping):
        return None
    total = 1
    for path in kind.form.replaced:
        *above, field = path.split(".")
        entry: Any = {"spec": spec}
        for key in above:
            entry = entry.get(key, {})
            if not isinstance(entry, Mapping):
                return None
        if (count := _count(entry.get(field, 1))) is None:
            return None
        total *= count
    return total


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**20 else None


class Successions:
    """One writer."""

    def __init__(self) -> None:
        self._declared: dict[str, int] = {}
        self._live: dict[str, set[PodUid]] = {}
        self._of: dict[PodUid, str] = {}
        self._unpublished: dict[
            str, set[PodUid]
        ] = {}  #: live pods without a node whose jobs were not computed since they were created
        #: pods that ended since the last `take` and were missing then: their successors may exist by now, but the place is lost if nothing is published
        self._lost: Counter[str] = Counter()
        self._losing: set[str] = set()  #: of which a pod ended, until none is missing
        self._changed: dict[str, None] = {}
        self._published: dict[str, int] = {}

    def declare(self, uid: str, pods: int | None) -> None:
        """The owner wants so many pods to run; None: it does not say, or is being deleted."""
        if pods is None:
            self._declared.pop(uid, None)
        else:
            self._declared[uid] = pods
        if uid in self._losing:
            self._changed[uid] = None

    def pod(self, pod: PodView, succession: str) -> None:
        """A pod was listed, added or modified."""
        if (before := self._of.get(pod.uid, "")) and before != succession:
            self._leave(pod.uid)  # its owner's owner became known
        if not succession:
            return
        if pod.live or pod.gated:
            if pod.uid not in self._of:
                self._of[pod.uid] = succession
                self._live.setdefault(succession, set()).add(pod.uid)
                if not pod.node:
                    self._unpublished.setdefault(succession, set()).add(pod.uid)
                if succession in self._losing:
                    self._changed[succession] = None
            elif pod.node:
                self.computed((pod.uid,))
        else:
            self.gone(pod.uid)

    def computed(self, pods: Iterable[PodUid]) -> None:
        """The job of these pods was computed: it is published, or it is known why not."""
        for uid in pods:
            if (succession := self._of.get(uid)) is not None and uid in self._unpublished.get(succession, ()):
                self._known(uid, succession)
                if succession in self._losing:
                    self._changed[succession] = None

    def gone(self, uid: PodUid) -> None:
        """The pod ended, is terminating, or is absent."""
        succession = self._leave(uid)
        if self._missing(succession) > 0:
            self._lost[succession] += 1
            self._losing.add(succession)
            self._changed[succession] = None

    def _leave(self, uid: PodUid) -> str:
        succession = self._of.pop(uid, "")
        if succession:
            self._known(uid, succession)
            live = self._live[succession]
            live.discard(uid)
            if not live:
                del self._live[succession]
        return succession

    def _known(self, uid: PodUid, succession: str) -> None:
        if (unpublished := self._unpublished.get(succession)) is not None:
            unpublished.discard(uid)
            if not unpublished:
                del self._unpublished[succession]

    @property
    def due(self) -> bool:
        """Whether `take` has something."""
        return bool(self._changed)

    def take(self) -> tuple[MissingPods, ...]:
        """Numbers of missing pods that differ from the published ones."""
        changed = []
        due, self._changed = self._changed, {}
        lost, self._lost = self._lost, Counter()
        for succession in due:
            missing = self._missing(succession)
            if missing < lost[succession]:
                missing = lost[succession]
                self._changed[succession] = None  # the next message has the number that is missing now
            elif missing == 0:
                self._losing.discard(succession)
            if self._published.get(succession, 0) != missing:
                changed.append(MissingPods(succession, missing))
                if missing:
                    self._published[succession] = missing
                else:
                    del self._published[succession]
        return tuple(changed)

    def all(self) -> tuple[MissingPods, ...]:
        """All published numbers that are not 0."""
        return tuple(MissingPods(succession, pods) for succession, pods in self._published.items())

    def beyond_declared(self) -> Iterator[tuple[str, int, Collection[PodUid]]]:
        """Owners with more pods than they declare: uid, declared number, pods."""
        for uid, pods in self._live.items():
            declared = self._declared.get(uid)
            if declared is not None and len(pods) > declared:
                yield uid, declared, pods

    def _missing(self, succession: str) -> int:
        declared = self._declared.get(succession, 0)
        absent = max(0, declared - len(self._live.get(succession, ())))
        return min(declared, absent + len(self._unpublished.get(succession, ())))
