"""Owners of pods: which objects make a pod part of a gang, which of them have to be read, and which pods a change concerns.

Theory of operation. `Owners` has a slim copy of every owner that a watch or a read delivered, by uid. `place` follows a pod's owners in that copy and returns
its `Membership`: a gang by owner, a single pod, or an owner that is not read yet. Pods are indexed by the owner that they name themselves, and owners by
theirs, so that a change of one owner finds all pods below it, also through pods (a worker of a LeaderWorkerSet is owned by a StatefulSet, which is owned by
the leader pod).

An owner that was deleted stays as it was last known while pods name it: its pods end with it, or lose their owner reference, and must not start one by one
in the meantime. If an owner cannot be read (its kind is not served, the permission is missing, or it is gone), its pods are single pods; once its kind can be
read again, they are placed again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hbox_common.model import PodUid, QueueName, TopologyMode, TopologyWish
from hbox_common.workloads import (
    Alone,
    InGang,
    Kinds,
    Missing,
    Owner,
    OwnerRef,
    Unread,
    defaults_of,
    gang_of,
    indexed_gang,
    place,
    preemptable_of,
    queue_of,
)
from hbox_common.workloads.owner import FABRIC_ANNOTATIONS, HIGHEST_TIER, MODE
from hbox_common.workloads.placing import MAX_STEPS

from .membership import Membership
from .views import GroupPhase, GroupStatus, GroupView, PodStatus, PodView

#: Seconds after which an owner that no watch delivered is read by itself.
READ_AFTER_S = 0.3

#: API group and kind.
GroupKind = tuple[str, str]

_POD: GroupKind = ("", "Pod")


def group_kind(ref: OwnerRef) -> GroupKind:
    return ref.group, ref.kind


@dataclass(frozen=True, slots=True)
class Wanted:
    """An owner that pods name and that is not read. `since`: monotonic seconds."""

    namespace: str
    ref: OwnerRef
    since: float

    @property
    def key(self) -> str:
        return _key(self.namespace, self.ref)


def _key(namespace: str, ref: OwnerRef) -> str:
    """The uid; of an object that is named without one (a declared group), its place."""
    return ref.uid or _place_key(namespace, ref)


def _place_key(namespace: str, ref: OwnerRef) -> str:
    return f"{namespace}/{ref.kind}.{ref.group}/{ref.name}"


def _unread(pod: PodView | None) -> OwnerRef | None:
    return pod.member.unread if pod is not None and pod.member is not None else None


@dataclass(slots=True)
class _Below:
    """What names one owner."""

    pods: dict[PodUid, None] = field(default_factory=dict)
    owners: dict[str, None] = field(default_factory=dict)  #: keys


class Owners:
    """One writer. `pod`: returns the newest version of a pod, None if it is not known. `now` is monotonic seconds."""

    def __init__(
        self, kinds: Kinds, pod: Callable[[PodUid], PodView | None], *, indexed_gangs: Callable[[str], bool] = lambda _: False
    ) -> None:
        """`indexed_gangs`: whether Indexed Jobs of a namespace are gangs."""
        self._kinds, self._pod, self._indexed_gangs = kinds, pod, indexed_gangs
        self._owners: dict[str, Owner] = {}  #: by key: of each its uid, and of the kinds of declared groups also its place
        self._gone: set[str] = set()  #: keys of those that were deleted, and that pods still name
        self._missing: dict[str, str] = {}  #: by key: why it cannot be read
        self._missing_kinds: dict[GroupKind, str] = {}  #: why no object of the kind can be read
        self._below: dict[str, _Below] = {}
        self._parents: dict[
            str, str
        ] = {}  #: by key of an owner, the key of the owner that it names: the inverse of `_Below.owners`
        self._direct: dict[PodUid, str] = {}  #: by pod, the key of the owner that it names
        self._wanted: dict[GroupKind, dict[str, Wanted]] = {}
        self.named: dict[GroupKind, None] = {}  #: kinds of which pods name an object, in order
        self.pods_listed = False  #: a pod that is not known does not exist

    # --- pods

    def place(self, pod: PodView, now: float) -> Membership | None:
        """The pod's membership; None if it names no owner and no declared group."""
        submitted = pod.submitted
        if submitted is None or pod.group:
            return None
        asked: list[OwnerRef] = []
        unreadable: list[str] = []

        def lookup(namespace: str, ref: OwnerRef) -> Owner | Missing | None:
            asked.append(ref)
            found = self._look_up(namespace, ref, now)
            if isinstance(found, Missing) and self._kinds.of(ref.api_version, ref.kind) is not None:
                unreadable.append(found.reason)
            if isinstance(found, Owner) and found.declared.indexed is not None and self._indexed_gangs(namespace):
                return indexed_gang(found)
            return found

        found = place(submitted, lookup, self._kinds)
        if asked:
            self._name(pod.uid, _key(pod.namespace, asked[0]))
        match found:
            case InGang():
                return Membership(gang_key(found), _title(found), found.role, gang=found)
            case Unread(ref=ref):
                key = f"{pod.namespace}/{ref.kind}.{ref.group}/{ref.name}?{ref.uid}"
                return Membership(key, f"{ref.kind.lower()}/{ref.name}", unread=ref)
            case Alone(chain=chain):
                return Membership(
                    alone=unreadable[0] if unreadable else "",
                    queue=QueueName(queue_of(chain)[0]),
                    preemptable=preemptable_of(chain),
                    defaults=defaults_of(chain),
                )

    def pod_gone(self, pod: PodView) -> None:
        """The pod does not exist any more. If it owns others, it stays known as their owner."""
        below = self._below.get(pod.uid)
        if below is not None and pod.submitted is not None:
            self._owners[pod.uid] = _of_pod(pod)
            self._gone.add(pod.uid)
        key = self._direct.pop(pod.uid, None)
        if key is not None and (siblings := self._below.get(key)) is not None:
            siblings.pods.pop(pod.uid, None)
            self._prune(key)
        self._forget_if_unnamed(pod.uid)

    def all_pods_listed(self) -> list[PodUid]:
        """Returns the pods to place again: those that wait for a pod that owns them."""
        self.pods_listed = True
        return [uid for uid in self._direct if (unread := _unread(self._pod(uid))) is not None and group_kind(unread) == _POD]

    def _name(self, uid: PodUid, key: str) -> None:
        before = self._direct.get(uid)
        if before == key:
            return
        if before is not None and (siblings := self._below.get(before)) is not None:
            siblings.pods.pop(uid, None)
            self._prune(before)
        self._direct[uid] = key
        self._below.setdefault(key, _Below()).pods[uid] = None

    def _look_up(self, namespace: str, ref: OwnerRef, now: float) -> Owner | Missing | None:
        kind, key = group_kind(ref), _key(namespace, ref)
        if (known := self._owners.get(key)) is not None:
            return known
        if kind == _POD:
            pod = self._pod(PodUid(ref.uid))
            if pod is not None:
                self._link(ref.uid, pod.submitted.controller if pod.submitted is not None else None)
                return _of_pod(pod)
            return Missing(f"pod {ref.name} does not exist") if self.pods_listed else None
        if self._kinds.of(ref.api_version, ref.kind) is None:
            return Missing(f"kind {ref.kind} is not read")
        if (reason := self._missing_kinds.get(kind)) is not None:
            return Missing(reason, kind=True)
        if (reason := self._missing.get(key)) is not None:
            return Missing(reason)
        self.named[kind] = None
        self._wanted.setdefault(kind, {}).setdefault(key, Wanted(namespace, ref, now))
        return None

    def succession_of(self, pod: PodView) -> str:
        """The uid of the topmost of its nearest owners whose controllers replace pods; empty if its own owner does not."""
        ref = pod.submitted.controller if pod.submitted is not None else None
        top = ""
        for _ in range(MAX_STEPS):
            if ref is None or (owner := self._owners.get(ref.uid)) is None or owner.namespace != pod.namespace:
                break
            if group_kind(owner.ref) != _POD:
                kind = self._kinds.of(owner.ref.api_version, owner.ref.kind)
                if kind is None or not kind.form.replaced:
                    break
                top = owner.ref.uid
            ref = owner.parent
            if ref is not None and group_kind(ref) == _POD and (below := self._pod(PodUid(ref.uid))) is not None:
                ref = below.submitted.controller if below.submitted is not None else None
        return top

    # --- owners

    def put(self, owner: Owner) -> list[PodUid]:
        """An owner was listed, added, modified or read. Returns the pods to place again."""
        ref = owner.ref
        keys = [ref.uid, _place_key(owner.namespace, ref)]
        changed = False
        for key in keys:
            old = self._owners.get(key)
            if key is not keys[0] and key not in self._below and old is None:
                continue  # no pod names it by its place
            if old is not None and old.ref.uid == ref.uid and owner.version < old.version:
                continue  # older than what a read returned
            self._gone.discard(key)
            self._missing.pop(key, None)
            self._wanted.get(group_kind(ref), {}).pop(key, None)
            self._owners[key] = owner
            changed = changed or old is None or replace(old, version=owner.version) != owner
            if old is not None and old.ref.uid != ref.uid:
                self._prune(old.ref.uid)  # another object has its place
        self._link(ref.uid, self._owners[ref.uid].parent)
        return list(self._pods_below(keys)) if changed else []

    def gone(self, uid: str) -> None:
        """The owner was deleted. It stays as it was last known while something names it."""
        owner = self._owners.get(uid)
        if owner is None:
            return
        self._gone.add(uid)
        place_key = _place_key(owner.namespace, owner.ref)
        if (there := self._owners.get(place_key)) is not None and there.ref.uid == uid:
            self._gone.add(place_key)
            self._prune(place_key)
        self._forget_if_unnamed(uid)

    def of_kind(self, kind: GroupKind) -> Iterator[Owner]:
        """The known owners of the kind that exist."""
        return (
            one
            for key, one in self._owners.items()
            if group_kind(one.ref) == kind and key == one.ref.uid and key not in self._gone
        )

    def pods_below(self, kind: GroupKind, namespace: str) -> list[PodUid]:
        """Pods below the known owners of the kind in the namespace."""
        keys = [key for key, one in self._owners.items() if group_kind(one.ref) == kind and one.namespace == namespace]
        return list(self._pods_below(keys))

    def reported(self, ref: OwnerRef) -> tuple[str, str] | None:
        """Type of the condition that HBox writes for gangs of this object, and its kind's plural; None if HBox writes none."""
        kind = self._kinds.of(ref.api_version, ref.kind)
        if kind is None or (condition := kind.form.scheduled_condition) is None:
            return None
        return condition, kind.plural

    def get(self, uid: str) -> Owner | None:
        return self._owners.get(uid)

    def unreadable(self, wanted: Wanted, reason: str) -> list[PodUid]:
        """The owner cannot be read for this reason. Returns the pods to place again."""
        self._wanted.get(group_kind(wanted.ref), {}).pop(wanted.key, None)
        if wanted.key in self._owners:
            return []
        self._missing[wanted.key] = reason
        return list(self._pods_below([wanted.key]))

    def kind_unreadable(self, kind: GroupKind, reason: str) -> list[PodUid]:
        """No object of the kind can be read for this reason; owners that are known stay as they are. Returns the pods to place again."""
        self._missing_kinds[kind] = reason
        return list(self._pods_below(self._wanted.pop(kind, {})))

    def kind_readable(self, kind: GroupKind) -> list[PodUid]:
        """Objects of the kind can be read (again). Returns the pods to place again."""
        if self._missing_kinds.pop(kind, None) is None:
            return []
        return list(self._direct)  # those of a gang, too: an owner above may decide

    def is_unreadable(self, kind: GroupKind) -> bool:
        return kind in self._missing_kinds

    def wanted(self, kind: GroupKind) -> list[Wanted]:
        """Owners of the kind that are not read, the oldest first."""
        return list(self._wanted.get(kind, {}).values())

    def wants(self, wanted: Wanted) -> bool:
        """Whether the owner is still to be read."""
        return wanted.key in self._wanted.get(group_kind(wanted.ref), {})

    @property
    def waiting(self) -> int:
        """Owners that are not read."""
        return sum(map(len, self._wanted.values()))

    def use(self, kinds: Kinds) -> list[PodUid]:
        """Other kinds are in force. Returns the pods to place again."""
        self._kinds = kinds
        there = {(each.group, each.kind) for each in kinds}
        for kind in [kind for kind in self.named if kind not in there]:
            del self.named[kind]
            self._wanted.pop(kind, None)
            self._missing_kinds.pop(kind, None)
        return list(self._direct)

    def __len__(self) -> int:
        return len(self._owners)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        links = {(key, parent) for parent, below in self._below.items() for key in below.owners}
        assert links == set(self._parents.items())
        assert {(uid, key) for key, below in self._below.items() for uid in below.pods} == set(self._direct.items())
        assert self._gone <= self._owners.keys()
        for key in self._gone:
            below, owner = self._below.get(key), self._owners[key]
            named = below is not None and (below.pods or below.owners)
            assert named or (key == owner.ref.uid and self._places(owner)), f"{key} is kept for nothing"

    # --- what is below

    def _link(self, key: str, parent: OwnerRef | None) -> None:
        """Record the owner that this one names now."""
        old, new = self._parents.get(key), parent.uid if parent is not None else None
        if old == new:
            return
        if new is not None:
            self._parents[key] = new
            self._below.setdefault(new, _Below()).owners[key] = None
        else:
            del self._parents[key]
        if old is not None:
            self._leave(key, old)

    def _leave(self, key: str, parent: str) -> None:
        del self._below[parent].owners[key]
        self._prune(parent)

    def _forget_if_unnamed(self, uid: str) -> None:
        if self._is_far_below(uid):
            self._link(uid, None)
        self._prune(uid)

    def _is_far_below(self, key: str) -> bool:
        """Whether more than MAX_STEPS owners are above it, as in a cycle, where each owner would be kept for another one."""
        at = key
        return all(at := self._parents.get(at, "") for _ in range(MAX_STEPS + 1))

    def is_named(self, uid: str) -> bool:
        """Whether a pod, or an owner, names this object."""
        return uid in self._below

    def pods_of(self, uid: str) -> list[PodUid]:
        """Pods that belong to the owner, directly or through others, or name it by its place."""
        owner = self._owners.get(uid)
        return list(self._pods_below([uid] if owner is None else [uid, *self._places(owner)]))

    def _places(self, owner: Owner) -> list[str]:
        """The key of its place, if pods name this object by it."""
        key = _place_key(owner.namespace, owner.ref)
        there = self._owners.get(key)
        return [key] if there is not None and there.ref.uid == owner.ref.uid else []

    def _pods_below(self, keys: Iterable[str]) -> Iterator[PodUid]:
        """Pods that name one of these owners, or an owner below one."""
        left, seen = list(keys), set[str]()
        while left:
            key = left.pop()
            if key in seen:
                continue
            seen.add(key)
            if (below := self._below.get(key)) is not None:
                yield from list(below.pods)
                left += below.pods
                left += below.owners

    def _prune(self, key: str) -> None:
        """Forget owners that were deleted, or never read, once nothing names them: this one, and those that it names."""
        left = [key]
        while left:
            key = left.pop()
            if (below := self._below.get(key)) is not None:
                if below.pods or below.owners:
                    continue
                del self._below[key]
            self._missing.pop(key, None)
            for wanted in self._wanted.values():
                wanted.pop(key, None)
            if key not in self._gone:
                if key not in self._owners and (parent := self._parents.pop(key, None)) is not None:
                    self._below[parent].owners.pop(key, None)  # a pod that owns no other any more
                    left.append(parent)
                continue
            owner = self._owners[key]
            if key == owner.ref.uid and self._places(owner):
                continue  # pods name it by its place
            self._gone.discard(key)
            del self._owners[key]
            if key != owner.ref.uid:
                left.append(owner.ref.uid)
            elif (parent := self._parents.pop(key, None)) is not None:
                self._below[parent].owners.pop(key, None)
                left.append(parent)


def by_age(pod: PodView) -> tuple[float, str]:
    """The order of a gang's pods: by creation, then by uid."""
    return pod.created_at, pod.uid


#: A gang by owner waits for no controller to enqueue it.
_ENQUEUED = GroupStatus(GroupPhase.INQUEUE)


def derived_group(found: InGang, pods: Collection[PodView]) -> GroupView:
    """What a PodGroup of this gang would say."""
    present: Counter[str] = Counter()
    succeeded: Counter[str] = Counter()
    for pod in pods:
        role = pod.member.role if pod.member is not None else ""
        present[role] += pod.live
        succeeded[role] += pod.status is PodStatus.SUCCEEDED
    gang, owner = gang_of(found, present), found.owner
    about, created_at = owner.ref, owner.created_at
    if found.total and (oldest := min(pods, key=by_age, default=None)) is not None:  # the group has no object of its own
        about, created_at = OwnerRef("v1", "Pod", oldest.name, oldest.uid), oldest.created_at
    return GroupView(
        uid=found.id,
        namespace=owner.namespace,
        name=_title(found),
        created_at=created_at,
        min_member=gang.min_member,
        queue=QueueName(gang.queue),
        priority_class=gang.priority_class,
        preemptable=gang.preemptable is True,
        decides_preemptable=gang.preemptable is not None,
        min_task_member={role: least - succeeded[role] for role, least in gang.min_by_role.items() if least > succeeded[role]},
        topology=_wish(gang.mode, gang.highest_tier) or gang.topology or _wish_of_pods(pods),
        sub_gangs=gang.sub_gangs,
        annotations=_annotations(gang.annotations, pods),
        problem=gang.problem,
        status=_ENQUEUED,
        version=owner.version,
        owner=about,
        gang_key=gang_key(found),
        reasons=gang.reasons,
        defaults=gang.defaults,
    )


def _wish_of_pods(pods: Collection[PodView]) -> TopologyWish | None:
    notes = next((pod.submitted.annotations for pod in pods if pod.submitted is not None), {})
    return _wish(notes.get(MODE, ""), notes.get(HIGHEST_TIER, ""))


def _annotations(of_owners: Mapping[str, str], pods: Collection[PodView]) -> Mapping[str, str]:
    """Those of the owners; if none of these is about the fabric, also those of the pods' template about the fabric."""
    notes = next((pod.annotations for pod in pods), {})
    if not notes or FABRIC_ANNOTATIONS & of_owners.keys():
        return of_owners
    return {key: notes[key] for key in sorted(notes.keys() & FABRIC_ANNOTATIONS)} | dict(of_owners)


def _wish(mode: str, tier: str) -> TopologyWish | None:
    """By Volcano's annotations: a tier alone is hard; None without one, or if they are invalid."""
    if mode not in ("", "hard", "soft") or not (mode or tier):
        return None
    highest = int(tier) if tier.isascii() and tier.isdecimal() and len(tier) <= 9 else None
    return TopologyWish(mode=TopologyMode(mode or "hard"), highest_tier=highest)


def _of_pod(pod: PodView) -> Owner:
    """A pod as an owner."""
    parent = pod.submitted.controller if pod.submitted is not None else None
    return Owner(
        ref=OwnerRef("v1", "Pod", pod.name, pod.uid),
        namespace=pod.namespace,
        parent=parent,
        version=0,
        created_at=pod.created_at,
        labels=pod.submitted.labels if pod.submitted is not None else {},
        annotations=pod.submitted.annotations if pod.submitted is not None else {},
    )


def gang_key(found: InGang) -> str:
    """Of its job. An owner that is created again under its name is another gang, and no PodGroup can be called so."""
    return f"{found.owner.namespace}/owner:{found.id}"


def _title(found: InGang) -> str:
    top = found.owner.ref
    return f"{top.kind.lower()}/{top.name}" + (f"/{found.part}" if found.part else "")
