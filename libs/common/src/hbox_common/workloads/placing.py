"""Which gang a pod belongs to, by its owners."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from hbox_common.model.annotations import QUEUE_NAME
from hbox_common.model.bounds import is_name, not_a_name

from .owner import Declared, Kind, Kinds, Owner
from .refs import GroupBy, GroupRef, OwnerRef
from .schema import KindForm

#: Labels of a LeaderWorkerSet's pods.
LWS_GROUP, LWS_WORKER = "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/worker-index"

#: Owners that are followed at most.
MAX_STEPS = 16


@dataclass(frozen=True, slots=True)
class Submitted:
    """What of a pod decides on its gang."""

    uid: str
    namespace: str
    name: str
    controller: OwnerRef | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    group: GroupRef | None = None
    created_at: float = 0.0  #: seconds since the epoch


@dataclass(frozen=True, slots=True)
class Missing:
    """`kind`: no object of the kind can be read."""

    reason: str
    kind: bool = False


@dataclass(frozen=True, slots=True)
class InGang:
    """`owner`: the object that makes the pods a gang; `chain`: all known owners, the topmost first; `part`: which of several gangs of the owner."""

    key: str
    id: str
    owner: Owner
    chain: tuple[Owner, ...]
    role: str = ""
    part: str = ""
    rule: str = ""
    total: int = 0  #: pods that a group without an object declares


@dataclass(frozen=True, slots=True)
class Alone:
    """A single pod; its `chain` may name its queue."""

    reason: str = ""
    chain: tuple[Owner, ...] = ()


@dataclass(frozen=True, slots=True)
class Unread:
    ref: OwnerRef


Lookup: TypeAlias = Callable[[str, OwnerRef], Owner | Missing | None]


def place(pod: Submitted, lookup: Lookup, kinds: Kinds) -> InGang | Alone | Unread:
    """Place a pod without a Volcano PodGroup. A declared group takes precedence over owners."""
    group = pod.group
    if group is not None and group.by is GroupBy.KUEUE and group.count > 0:
        key = f"{pod.namespace}/kueue/{group.name}"
        itself = OwnerRef("v1", "Pod", group.name, f"kueue:{pod.namespace}/{group.name}")
        queue = pod.labels.get(QUEUE_NAME, "")
        where = f"label {QUEUE_NAME}"
        problem = not_a_name(where, queue) if queue and not is_name(queue) else ""
        declared_here = Declared(minimum=group.count, queue="" if problem else queue, queue_from=where)
        owner = Owner(itself, pod.namespace, declared=declared_here, problem=problem)
        return InGang(key, itself.uid, owner, (owner,), total=group.count)
    if group is not None and (declared := group.object) is not None:
        found = lookup(pod.namespace, declared)
        if found is None or (isinstance(found, Missing) and (group.by is GroupBy.KUBERNETES or not found.kind)):
            return Unread(declared)
        if isinstance(found, Owner):
            key = f"{pod.namespace}/{found.ref.kind}.{found.ref.group}/{found.ref.name}"
            form = kind.form if (kind := kinds.of(found.ref.api_version, found.ref.kind)) is not None else None
            if form is None:
                return InGang(key, found.ref.uid, found, (found,))
            return InGang(key, found.ref.uid, found, (found,), _role_of(pod, form, found), rule=form.rule)
    chain: list[Owner] = []
    ref, seen = pod.controller, {pod.uid}
    while ref is not None:
        if len(chain) == MAX_STEPS:
            return Alone(f"the pod has more than {MAX_STEPS} owners", tuple(chain))
        if ref.uid in seen:
            return Alone("its owners form a cycle")
        seen.add(ref.uid)
        if kinds.of(ref.api_version, ref.kind) is None and (ref.group, ref.kind) != ("", "Pod"):
            break
        found = lookup(pod.namespace, ref)
        if found is None:
            return Unread(ref)
        if isinstance(found, Missing):
            break
        if found.namespace != pod.namespace or (found.ref.uid, found.ref.name) != (ref.uid, ref.name):
            return Alone(f"{ref.title} is another object", tuple(chain))
        chain.insert(0, found)
        ref = found.parent
    for owner in chain:
        kind = kinds.of(owner.ref.api_version, owner.ref.kind)
        if kind is not None and not (kind.transparent and owner.declared.minimum is None):
            if owner.deleted_at is not None and pod.created_at >= owner.deleted_at:
                return Alone(f"{owner.ref.title} was deleted before the pod was created", tuple(chain))  # it cleans up
            return _in_gang(pod, kind, owner, tuple(chain))
    return Alone("", tuple(chain))


def _in_gang(pod: Submitted, kind: Kind, owner: Owner, chain: tuple[Owner, ...]) -> InGang:
    role = _role_of(pod, kind.form, owner)
    part = ""
    if kind.form.rule == "leaderworkerset":
        part = pod.labels.get(LWS_GROUP, "")
    elif owner.declared.by_role:
        part = role
    key = f"{pod.namespace}/{owner.ref.kind}.{owner.ref.group}/{owner.ref.name}" + (f"/{part}" if part else "")
    return InGang(key, owner.ref.uid + (f".{part}" if part else ""), owner, chain, role, part, kind.form.rule)


def _role_of(pod: Submitted, form: KindForm, owner: Owner) -> str:
    """By its labels; empty if they name no role of the owner."""
    label = next((pod.labels[key] for key in form.role_labels if key in pod.labels), "")
    if form.rule == "leaderworkerset":
        label = "leader" if pod.labels.get(LWS_WORKER) == "0" else "worker"
    roles = owner.declared.roles
    return next((one.name for one in roles if label == (one.name.lower() if form.roles_in_lower_case else one.name)), "")
