"""Pods of a gang beyond the number that its owner declares.

Owner references are written by tenants, and a controller may create more pods than its object declares. For each role of a gang the first pods, as many as are
declared, are its members: those that can be placed as written first, then the oldest. All others are extras. They are no members: each is a job of its own,
which waits until the gang has its minimum. The order depends on what pods were created with alone, so that neither a binding nor a restart makes another pod an
extra. If a member ends, the first extra takes its position.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

from hbox_common.model import PodUid
from hbox_common.workloads import InGang
from hbox_common.workloads.gangs import LEADER

from .views import PodView

_Slot = tuple[str, str]  #: gang and role


class _Order(NamedTuple):
    wrong: bool
    created_at: float
    name: str
    uid: PodUid


def room_of(found: InGang, role: str) -> int | None:
    """How many pods of the role the gang's owner declares; None if it declares no number. That of a group of Kueue is on each pod, and may differ."""
    roles = found.owner.declared.roles
    if not roles or found.rule == "grove":
        return None
    if found.rule == "leaderworkerset":
        size = max(1, next((one.replicas for one in roles if one.name != LEADER), 1))
        return 1 if role == LEADER else size - 1
    return next((one.replicas for one in roles if one.name == role), sum(one.replicas for one in roles))


class Extras:
    """One writer."""

    def __init__(self) -> None:
        self._lines: dict[_Slot, list[_Order]] = {}
        self._room: dict[_Slot, int] = {}
        self._of: dict[PodUid, tuple[_Slot, _Order]] = {}

    def put(self, pod: PodView, gang: str, role: str, room: int) -> list[PodUid]:
        """A live pod of the gang, with the declared number of pods of its role. Returns the other pods that became members or extras."""
        slot, known = (gang, role), self._of.get(pod.uid)
        changed = self.gone(pod.uid) if known is not None and known[0] != slot else []
        line, before = self._lines.setdefault(slot, []), self._room.get(slot, room)
        self._room[slot] = room
        changed += [one.uid for one in line[min(room, before) : max(room, before)]]
        if pod.uid not in self._of:
            order = _Order(bool(pod.shape.problem), pod.created_at, pod.name, pod.uid)
            insort(line, order)
            self._of[pod.uid] = slot, order
            if len(line) > room and bisect_left(line, order) < room:
                changed.append(line[room].uid)
        return [uid for uid in changed if uid != pod.uid]

    def gone(self, uid: PodUid) -> list[PodUid]:
        """The pod ended, or belongs to no gang. Returns the pods that became members."""
        if (known := self._of.pop(uid, None)) is None:
            return []
        slot, order = known
        line, room = self._lines[slot], self._room[slot]
        at = bisect_left(line, order)
        del line[at]
        if not line:
            del self._lines[slot], self._room[slot]
        return [line[room - 1].uid] if at < room <= len(line) else []

    def has(self, uid: PodUid) -> bool:
        """Whether the pod is an extra."""
        if (known := self._of.get(uid)) is None:
            return False
        slot, order = known
        line, room = self._lines[slot], self._room[slot]
        return len(line) > room and bisect_left(line, order) >= room

    def room(self, gang: str, role: str, default: int) -> int:
        """The declared number of pods of the role, as last put; `default` if the gang has no pod of it."""
        return self._room.get((gang, role), default)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        assert {one.uid for line in self._lines.values() for one in line} == self._of.keys()
        assert self._lines.keys() == self._room.keys()
        assert all(line == sorted(line) and line for line in self._lines.values())
