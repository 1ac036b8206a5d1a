"""Which gang a pod belongs to, by its owners."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from .owner import Kinds, Owner
from .refs import GroupRef, OwnerRef

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


@dataclass(frozen=True, slots=True)
class Missing:
    reason: str


@dataclass(frozen=True, slots=True)
class InGang:
    """`chain`: the owners, the topmost known one first. `part`: which of several gangs of the owner."""

    key: str
    id: str
    chain: tuple[Owner, ...]
    role: str = ""
    part: str = ""

    @property
    def owner(self) -> Owner:
        return self.chain[0]


@dataclass(frozen=True, slots=True)
class Alone:
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    ref: OwnerRef


Lookup: TypeAlias = Callable[[str, OwnerRef], Owner | Missing | None]


def place(pod: Submitted, lookup: Lookup, kinds: Kinds) -> InGang | Alone | Unread:
    chain: list[Owner] = []
    ref, seen = pod.controller, {pod.uid}
    while ref is not None:
        if len(chain) == MAX_STEPS:
            return Alone(f"more than {MAX_STEPS} owners")
        if ref.uid in seen:
            return Alone("its owners form a cycle")
        seen.add(ref.uid)
        if kinds.of(ref.api_version, ref.kind) is None and (ref.group, ref.kind) != ("", "Pod"):
            break
        found = lookup(pod.namespace, ref)
        if found is None:
            return Unread(ref)
        if isinstance(found, Missing):
            return Alone(found.reason)
        if found.namespace != pod.namespace or found.ref.uid != ref.uid:
            return Alone(f"{ref.words} is another object")
        chain.insert(0, found)
        ref = found.parent
    for at, owner in enumerate(chain):
        kind = kinds.of(owner.ref.api_version, owner.ref.kind)
        if kind is None:
            continue
        declared = owner.declared
        if kind.transparent and declared.minimum is None:
            continue
        key = f"{pod.namespace}/{owner.ref.kind}.{owner.ref.group}/{owner.ref.name}"
        label = next((pod.labels[key] for key in kind.form.role_labels if key in pod.labels), "")
        role = next((one.name for one in declared.roles if label in (one.name, one.name.lower())), label)
        return InGang(key, owner.ref.uid, tuple(chain[at:]), role)
    return Alone()
