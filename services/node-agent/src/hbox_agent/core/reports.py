"""Which facts of a node are published, in which reports. Pure.

A state is published when it differs from the last one of its check, entity and code, and after `restate`. An event is published each time; of more than
MOST_REPEATED in WINDOW_S that are about the same entity and code the further ones become one fact with their `count`. While no report can be published, the
newest MOST_EVENTS events and the last value of each state are kept; how many events were dropped is a fact, too.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from hbox_common.events import HealthReport
from hbox_common.health.report import NODE, TEXT_BYTES, Check, Fact, Value, value_of
from hbox_common.model import NodeName
from hbox_common.model.bounds import ID_BYTES, sanitized

#: Events and states that wait for publication, and bytes of one report, below the size that its message may have.
MOST_EVENTS, MOST_STATES, REPORT_BYTES = 4096, 1024, 192 * 1024
MOST_REPEATED, WINDOW_S = 10, 10.0
#: Pairs of entity and code that are counted apart.
_MOST_KINDS = 512

_Key: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Observation:
    """What a reader read. `at`: seconds since the epoch; None: now."""

    check: Check
    entity: str
    code: str
    value: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    at: float | None = None
    event: bool = False  #: else it is the present state of its entity

    @property
    def key(self) -> _Key:
        return self.check, self.entity, self.code


@dataclass(slots=True)
class _Window:
    """Events of one entity and code in the present window."""

    since: float
    passed: int = 0
    held: int = 0
    last: Fact | None = None


class Reports:
    """`seq`: of the node's last published fact in this boot; `log_seq`: of the last kernel record that was read; `cards`: as in HealthReport, kept by NVML's
    reader."""

    def __init__(
        self,
        node: NodeName,
        boot_id: str,
        agent: str,
        *,
        seq: int = 0,
        log_seq: int = -1,
        cards: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._node, self._boot_id, self._agent, self._seq = node, boot_id, agent, seq
        self.log_seq, self.cards = log_seq, dict(cards)
        self.report_only: tuple[str, ...] = ()
        self._stated: dict[_Key, tuple[dict[str, Value], str]] = {}
        self._states: dict[_Key, Fact] = {}
        self._events: deque[Fact] = deque()
        self._windows: dict[_Key, _Window] = {}
        self._lost = 0
        self._covered = log_seq
        self._open: HealthReport | None = None

    def add(self, observed: Iterable[Observation], *, now: float) -> None:
        for one in observed:
            fact = Fact(
                0,
                now if one.at is None else one.at,
                one.check.value,
                sanitized(one.entity, ID_BYTES),
                sanitized(one.code, ID_BYTES),
                value_of(one.value),
                sanitized(one.text, TEXT_BYTES),
            )
            if one.event:
                self._happened(one.key, fact, now)
            elif self._stated.get(one.key) != (fact.value, fact.text):
                if one.key not in self._stated and len(self._stated) >= MOST_STATES:
                    self._lost += 1
                    continue
                self._stated[one.key] = fact.value, fact.text
                self._states[one.key] = fact

    def _happened(self, key: _Key, fact: Fact, now: float) -> None:
        window = self._windows.get(key)
        if window is None or now - window.since >= WINDOW_S:
            if window is not None:
                self._end_window(window)
            elif len(self._windows) >= _MOST_KINDS:
                self._lost += 1
                return
            window = self._windows[key] = _Window(now)
        if window.passed < MOST_REPEATED:
            window.passed += 1
            self._append(fact)
        else:
            window.held, window.last = window.held + 1, fact

    def _end_window(self, window: _Window) -> None:
        if window.last is not None:
            self._append(replace(window.last, value={**window.last.value, "count": window.held}))

    def _append(self, fact: Fact) -> None:
        if len(self._events) >= MOST_EVENTS:
            self._events.popleft()
            self._lost += 1
        self._events.append(fact)

    def due(self, *, now: float) -> HealthReport | None:
        """The report to publish now: the same one until `published` is called. None: nothing is new."""
        if self._open is not None:
            return self._open
        for key, window in list(self._windows.items()):
            if now - window.since >= WINDOW_S:
                self._end_window(window)
                del self._windows[key]
        facts: list[Fact] = []
        size = 0
        if self._lost:
            text = f"the agent dropped {self._lost} facts, which it could not publish in time"
            facts.append(Fact(0, now, Check.AGENT.value, NODE, "lost", {"count": self._lost}, text))
            self._lost = 0
        while size < REPORT_BYTES and (self._states or self._events):
            fact = self._states.pop(next(iter(self._states))) if self._states else self._events.popleft()
            size += 256 + len(msgspec.msgpack.encode(fact))
            facts.append(fact)
        if not facts:
            return None
        numbered = tuple(replace(fact, seq=self._seq + place) for place, fact in enumerate(facts, start=1))
        if not self._events:  # else a restarted agent reads the rest again
            self._covered = self.log_seq
        self._open = HealthReport(
            node=self._node, boot_id=self._boot_id, agent=self._agent, facts=numbered, report_only=self.report_only,
            log_seq=self._covered, cards=dict(self.cards),
        )  # fmt: skip
        return self._open

    def published(self) -> None:
        """The broker stored the report that `due` returned last."""
        assert self._open is not None
        self._seq, self._open = self._open.facts[-1].seq, None

    def heartbeat(self) -> HealthReport:
        """A report without facts."""
        return HealthReport(
            node=self._node, boot_id=self._boot_id, agent=self._agent, facts=(), report_only=self.report_only,
            log_seq=self._covered, cards=dict(self.cards), seq=self._seq,
        )  # fmt: skip

    def restate(self) -> None:
        """Publish all states again when they are next read."""
        self._stated.clear()
