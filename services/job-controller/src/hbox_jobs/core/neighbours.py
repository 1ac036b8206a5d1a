"""Pods whose (anti-)affinity or annotations matter for the placement of others: the part of them that the scheduler needs.

Pods have many labels, and most matter to no other pod. A pod's neighbour message contains its affinity terms, those of its labels whose keys any pod's terms
name, its annotations for policies, the disruption budgets that select it, and its part in a gang that has parts. If no pod has any of these, nothing is
published. A term that pods without a label could match (an empty selector, NotIn, DoesNotExist) concerns all pods. The message also contains whether the pod
is being deleted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from hbox_common.model import GangPart, Match, MatchOperator, Neighbour, PodConstraints, PodTerm, PodUid, Selector

from .namespaces import Namespaces
from .views import PodView

#: Wildcard for all pods among the queried keys. No label has this name.
_EVERYBODY = "*"

#: Maximum labels; of a pod with more, only those that terms query are published: no selector looks at others, and only the object's size limits their number.
MAX_LABELS = 64

_WITHOUT = (MatchOperator.NOT_IN, MatchOperator.DOES_NOT_EXIST)


class Neighbours:
    """Each neighbour is published once, and again when it changes. A pod's end is not published: its claim ends."""

    def __init__(self) -> None:
        self._pods: dict[PodUid, PodView] = {}
        self._in: dict[str, set[PodUid]] = {}  #: of these, by namespace; no empty ones
        self._asked: Counter[str] = Counter()
        self._annotations: dict[PodUid, Mapping[str, str]] = {}  #: its own over its PodGroup's, where there are any, or were
        self._budgets: dict[PodUid, tuple[str, ...]] = {}  #: of pods that any select, or selected
        self._parts: dict[PodUid, GangPart | None] = {}  #: of pods whose gang has, or had, parts
        self._pending: dict[PodUid, None] = {}
        self._published: set[PodUid] = set()  #: pods with a published neighbour
        self.namespaces = Namespaces()  #: in which the pods are that wishes mean

    def put(self, pod: PodView, old: PodView | None) -> None:
        """A pod was seen. `old` is the version before."""
        if old is not None and (old.labels, old.constraints, old.deleting) == (pod.labels, pod.constraints, pod.deleting):
            if pod.uid in self._pods:
                self._pods[pod.uid] = pod
            return
        self._pods[pod.uid] = pod
        self._in.setdefault(pod.namespace, set()).add(pod.uid)
        self._pending[pod.uid] = None
        self.namespaces.ask(_terms(pod.constraints))
        for key in _keys(pod.constraints):
            self._asked[key] += 1
            if self._asked[key] == 1:
                self._concern(key)
        if old is not None:
            self._forget(old)

    def note(self, pod: PodView, group: Mapping[str, str], old: PodView | None) -> None:
        """What policies read on a pod, and on its PodGroup. `old` is the version before, None where the PodGroup changed."""
        annotations = {**group, **pod.annotations} if group and pod.annotations else pod.annotations or group
        before = self._annotations.get(pod.uid)
        if not annotations and before is None:
            return
        if annotations != before or old is None or old.started_at != pod.started_at:
            self._annotations[pod.uid] = annotations
            self._pods[pod.uid] = pod
            self._pending[pod.uid] = None

    def guard(self, pod: PodView, budgets: tuple[str, ...]) -> None:
        """The disruption budgets that select a pod."""
        if self._budgets.get(pod.uid, ()) != budgets:
            self._budgets[pod.uid] = budgets
            self._pods[pod.uid] = pod
            self._pending[pod.uid] = None

    def play(self, pod: PodView, part: GangPart | None) -> None:
        """What a pod is in its gang; None where the gang does not go by that."""
        if self._parts.get(pod.uid) != part:
            self._parts[pod.uid] = part
            self._pods[pod.uid] = pod
            self._pending[pod.uid] = None

    def knows(self, pod: PodUid) -> bool:
        """Whether it was put here."""
        return pod in self._pods

    def within(self, namespace: str) -> Iterator[PodView]:
        """Those of a namespace that were put here."""
        return (self._pods[uid] for uid in self._in.get(namespace, ()))

    def budgets_of(self, pod: PodUid) -> tuple[str, ...]:
        """The disruption budgets that select it."""
        return self._budgets.get(pod, ())

    def gone(self, pod: PodView) -> None:
        self._annotations.pop(pod.uid, None)
        self._budgets.pop(pod.uid, None)
        self._parts.pop(pod.uid, None)
        self._published.discard(pod.uid)
        if self._pods.pop(pod.uid, None) is not None:
            there = self._in.get(pod.namespace, set())
            there.discard(pod.uid)
            if not there:
                self._in.pop(pod.namespace, None)
            self._pending.pop(pod.uid, None)
            self._forget(pod)

    @property
    def due(self) -> bool:
        """Whether a neighbour has to be published."""
        if self._pending and self._silent:  # no pod has terms any more: withdraw the published neighbours of changed pods
            self._pending = {uid: None for uid in self._pending if uid in self._published}
        return bool(self._pending)

    def take(self) -> tuple[Neighbour, ...]:
        """The neighbours to publish now."""
        if not self.due:
            return ()
        pending, self._pending = self._pending, {}
        return tuple(published for uid in pending if (published := self._news(self._pods[uid])) is not None)

    def _news(self, pod: PodView) -> Neighbour | None:
        """The message about a changed pod. If no placement depends on the pod any more, the message is empty: otherwise the old one would remain in effect."""
        published = self._of(pod)
        if published is not None:
            self._published.add(pod.uid)
            return published
        if pod.uid not in self._published:
            return None
        self._published.discard(pod.uid)
        return Neighbour(pod.uid, pod.namespace, leaving=pod.deleting)

    def all(self) -> Iterator[Neighbour]:
        """All neighbours, for a subscriber without state, each as it is when it is reached."""
        if self._silent:
            return
        for uid in list(self._pods):
            pod = self._pods.get(uid)
            published = self._of(pod) if pod is not None else None
            if published is not None:
                yield published

    @property
    def _silent(self) -> bool:
        """Whether no placement depends on other pods."""
        return not (self._asked or self._annotations or self._budgets or self._parts)

    def _of(self, pod: PodView) -> Neighbour | None:
        everybody = _EVERYBODY in self._asked
        whole = everybody and len(pod.labels) <= MAX_LABELS
        labels = dict(pod.labels) if whole else {key: value for key, value in pod.labels.items() if key in self._asked}
        annotations = self._annotations.get(pod.uid)
        budgets = self._budgets.get(pod.uid)
        special = annotations is not None or budgets is not None or pod.uid in self._parts
        if not (labels or everybody or special or pod.constraints):
            return None
        started_at = pod.started_at if annotations else None
        part = self._parts.get(pod.uid)
        return Neighbour(
            pod.uid,
            pod.namespace,
            labels,
            pod.constraints,
            dict(annotations or {}),
            started_at,
            budgets or (),
            part,
            pod.deleting,
        )

    def _concern(self, key: str) -> None:
        self._pending.update((uid, None) for uid, pod in self._pods.items() if key == _EVERYBODY or key in pod.labels)

    def _forget(self, pod: PodView) -> None:
        self.namespaces.ask(_terms(pod.constraints), -1)
        for key in _keys(pod.constraints):
            self._asked[key] -= 1
            if not self._asked[key]:
                del self._asked[key]


def _terms(constraints: PodConstraints) -> list[PodTerm]:
    if not constraints:
        return []
    return [
        *constraints.affinity,
        *constraints.anti_affinity,
        *(one.term for one in constraints.preferred_affinity),
        *(one.term for one in constraints.preferred_anti_affinity),
    ]


def _keys(constraints: PodConstraints) -> Iterator[str]:
    """Of labels that the wishes ask about."""
    if not constraints:
        return
    selectors: list[Selector | None] = [
        *(term.selector for term in _terms(constraints)),
        *(spread.selector for spread in constraints.spread),
    ]
    for selector in selectors:
        if selector is None:
            continue
        matches: tuple[Match, ...] = selector.matches
        yield from (match.key for match in matches)
        if all(match.operator in _WITHOUT for match in matches):
            yield _EVERYBODY
