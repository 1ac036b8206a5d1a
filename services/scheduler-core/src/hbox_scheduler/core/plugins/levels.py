"""levels: which priority classes may take from which, as data (requirements A5).

    - name: levels
      arguments:
        queues: research, vision          # only between and inside these; absent: everywhere
        levels:
          high:   {classes: [urgent], preempts: [low], preemptable: false}
          medium: {classes: [normal], preempts: [], preemptable: false}
          low:    {classes: [batch], preempts: [], preemptable: true}
        default: medium

A gang is on the level that lists its priority class (or, where levels have `from: <priority>`, on the highest whose `from` it reaches); any other is on the
default one. Levels only protect: who may be taken from by this rule still has to be given away by the plugins that choose victims.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hbox_common.errors import InvalidRequest

from ..cluster.entities import Gang, Member
from ..framework.hooks import Evictable, Preemptable, Reclaimable
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

_KEYS = ("classes", "from", "preempts", "preemptable")


@dataclass(frozen=True, slots=True)
class Level:
    """`preempts`: levels from which it may take; `preemptable`: whether anybody may take from it."""

    name: str
    classes: frozenset[str]
    least_priority: int | None
    preempts: frozenset[str]
    preemptable: bool


#: Three levels of a department's queue: high takes from low and gives nothing, medium takes no part, low gives.
STANDARD: Mapping[str, Mapping[str, Any]] = {
    "high": {"classes": ["high"], "preempts": ["low"], "preemptable": False},
    "medium": {"classes": ["medium"], "preempts": [], "preemptable": False},
    "low": {"classes": ["low"], "preempts": [], "preemptable": True},
}


class LevelsPlugin(Preemptable, Reclaimable, Evictable):
    """Arguments: levels (three named high, medium, low where absent), default (medium, or the first that is there), queues."""

    name = "levels"
    guards = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        written = arguments.mapping("levels") or STANDARD
        self._levels = {name: _level(name, row, written) for name, row in written.items()}
        self._default = arguments.text("default") or ("medium" if "medium" in self._levels else next(iter(self._levels)))
        if self._default not in self._levels:
            raise InvalidRequest(
                f"plugin levels, argument default: there is no level {self._default!r}",
                hint=f"allowed: {', '.join(self._levels)}",
            )
        self._queues = frozenset(arguments.names("queues"))
        arguments.done()
        self._classes: Mapping[str, int] = {}
        self._of: dict[Gang, Level] = {}

    def open(self, session: "Session") -> None:
        self._classes = session.cluster.priority_classes
        self._of.clear()

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        return self._given(preemptor.gang, candidates)

    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        """Between queues a share is taken back from those who may be preempted; the preemptor's own level plays no part."""
        return [m for m in candidates if self._free(preemptor.gang) and self._free(m.gang) and self._level(m.gang).preemptable]

    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member]:
        if reclaim:
            return [m for m in candidates if self._free(preemptor) and self._free(m.gang) and self._level(m.gang).preemptable]
        return self._given(preemptor, candidates)

    def _given(self, preemptor: Gang, candidates: Sequence[Member]) -> list[Member]:
        if not self._free(preemptor):
            return []
        takes = self._level(preemptor).preempts
        return [
            member
            for member in candidates
            if self._free(member.gang) and (level := self._level(member.gang)).preemptable and level.name in takes
        ]

    def _free(self, gang: Gang) -> bool:
        return not self._queues or gang.queue in self._queues

    def _level(self, gang: Gang) -> Level:
        found = self._of.get(gang)
        if found is None:
            found = self._of[gang] = self._found(gang)
        return found

    def _found(self, gang: Gang) -> Level:
        for level in self._levels.values():
            if gang.priority_class and gang.priority_class in level.classes:
                return level
            if not gang.priority_class and any(self._classes.get(name) == gang.priority for name in level.classes):
                return level
        reached = [
            level
            for level in self._levels.values()
            if level.least_priority is not None and gang.priority >= level.least_priority
        ]
        return max(reached, key=lambda level: level.least_priority or 0, default=self._levels[self._default])


def _level(name: str, row: Any, all_levels: Mapping[str, Any]) -> Level:
    if not isinstance(row, Mapping):
        raise InvalidRequest(f"plugin levels, level {name}: {row!r} is not keys and values", hint=f"it has: {', '.join(_KEYS)}")
    for key in row:
        if key not in _KEYS:
            raise InvalidRequest(f"plugin levels, level {name}: unknown key {key!r}", hint=f"allowed: {', '.join(_KEYS)}")
    preempts = frozenset(map(str, row.get("preempts") or ()))
    if strange := sorted(preempts - set(all_levels)):
        raise InvalidRequest(
            f"plugin levels, level {name}: preempts {', '.join(strange)}, which is no level",
            hint=f"allowed: {', '.join(all_levels)}",
        )
    least = row.get("from")
    if least is not None and not isinstance(least, int):
        raise InvalidRequest(f"plugin levels, level {name}: from {least!r} is not a priority", hint="write a whole number")
    preemptable = row.get("preemptable", True)
    if not isinstance(preemptable, bool):
        raise InvalidRequest(f"plugin levels, level {name}: preemptable {preemptable!r}", hint="write true or false")
    return Level(name, frozenset(map(str, row.get("classes") or ())), least, preempts, preemptable)
