"""tdm: nodes that are lent by the hour. Inside its window a revocable zone takes members that may be taken away; outside they have to leave
(sources: volcano-tdm).

Volcano evicts once per `tdm.evict.period`; a session has no memory of earlier ones, and needs none: what is away already counts against a gang's
budget, so that repeating changes nothing.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model.annotations import JDB_MAX_UNAVAILABLE, JDB_MIN_AVAILABLE, PREEMPTABLE, REVOCABLE_ZONE

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats
from ..cluster.entities import Gang, Member, Status
from ..explain.labels import Label
from ..framework.hooks import PodMask, PodScore, Preemptable, ShuffleVictims
from .arguments import Arguments
from .durations import duration_s

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

_PERIOD = "tdm.evict.period"
_WINDOW = "tdm.revocable-zone."
_TIME_ZONE = "tdm.time-zone"
_SCORE = 100.0
_WITHOUT_BUDGET = 1
_AMOUNT = re.compile(r"([0-9]{1,9})(%?)")


class Tdm(PodMask, PodScore, Preemptable, ShuffleVictims):
    """Arguments: tdm.revocable-zone.<zone>, a window such as 22:00-6:00 (from and to equal: all day); tdm.time-zone (UTC), the time zone of all windows by its
    name in the IANA data base, which knows of summer time; and tdm.evict.period."""

    name = "tdm"
    passing = True
    time_dependent = True
    sees_plain_pods = True
    guards = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._windows = {zone: _window(zone, str(text)) for zone, text in arguments.starting(_WINDOW).items()}
        self._time_zone = _time_zone(arguments.text(_TIME_ZONE, "UTC"))
        period = arguments.text(_PERIOD, "1m")
        arguments.done()
        if duration_s(period) is None:
            raise InvalidRequest(f"plugin tdm, argument {_PERIOD}: {period!r} is not a duration", hint="write it as 1m")

    def open(self, session: "Session") -> None:
        now = datetime.fromtimestamp(session.now, self._time_zone)
        minute = 60 * now.hour + now.minute
        self._open = {zone for zone, (start, end) in self._windows.items() if _inside(minute, start, end)}
        column = session.columns.descriptions.column(REVOCABLE_ZONE)
        by_code = [str(value or "") for value in column.values]
        self._zones = [by_code[code] for code in column.codes[: session.columns.size].tolist()]
        self._revocable: Bools = np.array([bool(zone) for zone in self._zones], dtype=np.bool_)
        self._lent: Bools = np.array([zone in self._open for zone in self._zones], dtype=np.bool_)

    def settled(self, member: Member) -> bool:  # noqa: ARG002  # the hook's signature
        """Windows neither open nor close within a session."""
        return True

    def failures(self, member: Member, columns: Columns) -> Iterator[tuple[str, Bools]]:  # noqa: ARG002
        """Zones reject members that are not marked for them; closed zones reject all members."""
        yield Label.REVOCABLE_ZONE, self._revocable & ~self._lent if _may_be_lent_to(member) else self._revocable

    def score(self, member: Member, columns: Columns) -> Floats | None:  # noqa: ARG002
        return np.where(self._lent, _SCORE, 0.0) if _may_be_lent_to(member) else None

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        """For preemptors that may run in zones no victims; for others, members outside of zones, within their gangs' budgets."""
        if _may_be_lent_to(preemptor):
            return []
        return _within_budgets([member for member in candidates if member.row >= 0 and not self._revocable[member.row]])

    def victims(self, members: Sequence[Member]) -> list[Member]:
        """Members that may be taken away, on nodes of closed zones, within their gangs' budgets."""
        closed = self._revocable & ~self._lent
        return _within_budgets([m for m in members if m.preemptable and m.row >= 0 and closed[m.row]])


def _within_budgets(members: Sequence[Member]) -> list[Member]:
    by_gang: dict[Gang, list[Member]] = defaultdict(list)
    for member in members:
        by_gang[member.gang].append(member)
    chosen = {id(member) for gang, own in by_gang.items() for member in own[: budget(gang)]}
    return [member for member in members if id(member) in chosen]


def budget(gang: Gang) -> int:
    """Maximum number of running members of a gang that may be evicted now. A budget that would never permit an eviction permits one: it does not protect a
    gang's place."""
    running, size = gang.count(Status.RUNNING), len(gang.members)
    if (most := _part(gang, JDB_MAX_UNAVAILABLE, size)) is not None:
        away = size - gang.count(Status.SUCCEEDED, Status.FAILED) - running
        return max(0, max(1, most) - away)
    if (least := _part(gang, JDB_MIN_AVAILABLE, size)) is not None:
        return max(0, running - min(least, size - 1))
    return _WITHOUT_BUDGET


def _note(gang: Gang, key: str) -> str:
    """Of the gang; the running service knows it by what its members carry."""
    return gang.annotations.get(key) or next((text for m in gang.members if (text := m.annotations.get(key))), "")


def _part(gang: Gang, key: str, size: int) -> int | None:
    """A number, or a percentage of `size`, rounded up. None if the annotation is absent or unreadable: an unreadable one must not stop other gangs from being
    placed."""
    found = _AMOUNT.fullmatch(_note(gang, key))
    if found is None:
        return None
    number = int(found[1])
    return -(-number * size // 100) if found[2] else number


def _may_be_lent_to(member: Member) -> bool:
    zone = member.annotations.get(REVOCABLE_ZONE, member.gang.annotations.get(REVOCABLE_ZONE))
    if zone is not None:
        return zone == "*"
    return member.annotations.get(PREEMPTABLE, member.gang.annotations.get(PREEMPTABLE)) == "true"


def _time_zone(name: str) -> tzinfo:
    if name == "UTC":  # also where no data base of time zones is installed
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise InvalidRequest(
            f"plugin tdm, argument {_TIME_ZONE}: no time zone is called {name[:64]!r}",
            hint="write it like Asia/Shanghai, or UTC",
        ) from e


def _window(zone: str, text: str) -> tuple[int, int]:
    """Minutes of the day."""
    try:
        start, end = (datetime.strptime(part.strip(), "%H:%M").replace(tzinfo=UTC) for part in text.split("-"))
    except ValueError as e:
        raise InvalidRequest(
            f"plugin tdm, argument {_WINDOW}{zone}: {text!r} is not a window", hint="write it as 22:00-6:00"
        ) from e
    return 60 * start.hour + start.minute, 60 * end.hour + end.minute


def _inside(minute: int, start: int, end: int) -> bool:
    if start == end:
        return True
    return start <= minute < end if start < end else minute >= start or minute < end
