"""levels: which priority classes may preempt which, as data (requirements A5).

    - name: levels
      arguments:
        queues: research, vision          # only between and inside these; absent: everywhere
        levels:
          high:   {classes: [urgent], preempts: [low], preemptable: false}
          medium: {classes: [normal], preempts: [], preemptable: false}
          low:    {classes: [batch], preempts: [], preemptable: true}
        default: medium           # `none`: the others are on no level

A gang is on the level that lists its priority class (or, if levels have `from: <priority>`, on the highest whose `from` it reaches); any other gang is on the
default level. A gang on no level may preempt levels that are preemptable, and gangs on no level; levels that preempt any level preempt gangs on no level.
Levels only protect: the plugins that choose victims still have to offer the members that this rule permits.

Levels decide preemption inside a queue. Between queues every level is reclaimable: otherwise a job that no other job may preempt would keep what it borrowed. A
level with `reclaimable: false` is exempt from that too.

Without the argument `levels` the levels are high, medium and low, as soon as the cluster has PriorityClasses of these three names; until then the plugin has no
effect.
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

_KEYS = ("classes", "from", "preempts", "preemptable", "reclaimable")

#: As `default`: no level.
_NONE = "none"


@dataclass(frozen=True, slots=True)
class Level:
    """`preempts`: the levels that it may preempt; `preemptable`: gangs of its queue may preempt it; `reclaimable`: other queues may reclaim it."""

    name: str
    classes: frozenset[str]
    least_priority: int | None
    preempts: frozenset[str]
    preemptable: bool
    reclaimable: bool


#: Three levels of a department's queue: high takes from low and gives nothing, medium takes no part, low gives.
STANDARD: Mapping[str, Mapping[str, Any]] = {
    "high": {"classes": ["high"], "preempts": ["low"], "preemptable": False},
    "medium": {"classes": ["medium"], "preempts": [], "preemptable": False},
    "low": {"classes": ["low"], "preempts": [], "preemptable": True},
}


class LevelsPlugin(Preemptable, Reclaimable, Evictable):
    """Arguments: levels (three named high, medium, low where absent), default (medium, or the first that is there; none where `levels` is absent), queues."""

    name = "levels"
    guards = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        written = arguments.mapping("levels")
        self._standard = not written
        rows = written or STANDARD
        self._levels = {name: _level(name, row, rows) for name, row in rows.items()}
        usual = _NONE if self._standard else "medium" if "medium" in self._levels else next(iter(self._levels))
        default = arguments.text("default") or usual
        if default not in self._levels and default != _NONE:
            raise InvalidRequest(
                f"plugin levels, argument default: there is no level {default!r}",
                hint=f"allowed: {', '.join((*self._levels, _NONE))}",
            )
        self._default = self._levels.get(default)
        self._queues = frozenset(arguments.names("queues"))
        arguments.done()
        self._classes: Mapping[str, int] = {}
        self._on = True
        self._of: dict[Gang, Level | None] = {}

    def open(self, session: "Session") -> None:
        self._classes = session.cluster.facts.priority_classes
        self._on = not self._standard or STANDARD.keys() <= self._classes.keys()
        self._of.clear()

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None:
        return self._given(preemptor.gang, candidates)

    def movable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None:  # noqa: ARG002  # the hook's signature
        """A moved pod loses no place: a level that takes no part in preemption is moved too; one that preempts and may not be preempted is not (ADR 80)."""
        if not self._on:
            return None
        levels = [self._level(member.gang) if self._free(member.gang) else None for member in candidates]
        return [
            member
            for member, level in zip(candidates, levels, strict=True)
            if level is None or level.preemptable or not level.preempts
        ]

    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None:
        """The preemptor's own level plays no part."""
        return self._given_back(preemptor.gang, candidates)

    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member] | None:
        return self._given_back(preemptor, candidates) if reclaim else self._given(preemptor, candidates)

    def _given_back(self, preemptor: Gang, candidates: Sequence[Member]) -> list[Member] | None:
        if not self._on:
            return None
        if not self._free(preemptor):
            return []
        return [m for m in candidates if self._free(m.gang) and ((level := self._level(m.gang)) is None or level.reclaimable)]

    def _given(self, preemptor: Gang, candidates: Sequence[Member]) -> list[Member] | None:
        if not self._on:
            return None
        if not self._free(preemptor):
            return []
        own = self._level(preemptor)
        return [member for member in candidates if self._free(member.gang) and _may_take(own, self._level(member.gang))]

    def _free(self, gang: Gang) -> bool:
        return not self._queues or gang.queue in self._queues

    def _level(self, gang: Gang) -> Level | None:
        if gang not in self._of:
            self._of[gang] = self._found(gang)
        return self._of[gang]

    def _found(self, gang: Gang) -> Level | None:
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
        return max(reached, key=lambda level: level.least_priority or 0, default=self._default)


def _may_take(own: Level | None, other: Level | None) -> bool:
    """Whether a gang on one level may preempt one on another."""
    if other is None:
        return own is None or bool(own.preempts)
    return other.preemptable and (own is None or other.name in own.preempts)


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
    for key in ("preemptable", "reclaimable"):
        if not isinstance(row.get(key, True), bool):
            raise InvalidRequest(f"plugin levels, level {name}: {key} {row[key]!r}", hint="write true or false")
    return Level(
        name,
        frozenset(map(str, row.get("classes") or ())),
        least,
        preempts,
        preemptable=row.get("preemptable", True),
        reclaimable=row.get("reclaimable", True),
    )
