"""Which graph is accepted: the last good one, until a new one is confirmed.

A source returns partial data during a failover of its manager, or none at all. A graph that lost a tenth of its hosts, or a whole tier, is held back until two
further readings agree, or the source reports as many failures. The same applies to a graph that alternates: two managers behind one address that see
different fabrics, or a loose cable. After a failover, changes are not accepted for a while. Whatever is held back, the last good graph stays, and its age
shows when it was last confirmed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from .graph import Graph

#: Of hosts: more at once is held back.
SHRINK = 0.10
#: Readings after the first that have to agree before a smaller graph is accepted.
FURTHER = 2
#: A graph that was believed before, and was left for another, so often within so long: further readings have to agree with it too.
RETURNS, RETURNS_S = 2, 600.0


@dataclass(slots=True)
class Keeper:
    quiet_s: float = 120.0  #: after a failover
    graph: Graph | None = None  #: the last good one
    version: int = 0  #: rises with every change of it, also over restarts
    seen_at: float = 0.0  #: when it was confirmed last, seconds since the epoch
    held: str = ""  #: why the last reading is not believed; "" = it is
    _quiet_until: float = 0.0
    _pending: frozenset[str] = field(default=frozenset())
    _agreed: int = 0
    _downs: int = 0  #: failures that the source reported since the last good reading
    _left: int = 0  #: hash of the shape that was believed before this one
    _returned: list[float] = field(default_factory=list)  #: when the source went back to that

    def record_events(self, *, now: float, failovers: int = 0, downs: int = 0) -> None:
        """Events of the source since the last call."""
        if failovers:
            self._quiet_until = now + self.quiet_s
        self._downs += downs

    def confirm(self, now: float) -> None:
        """The source reports no change."""
        if self.graph is not None and not self.held:
            self.seen_at = now

    def offer(self, graph: Graph, now: float) -> bool:
        """A new reading, built on `self.graph`. Returns whether it is believed, and differs from what was."""
        self.held = self._doubt(graph, now)
        if self.held:
            return False
        self._pending, self._agreed, self._downs = frozenset(), 0, 0
        changed = self.graph is None or shape_of(graph) != shape_of(self.graph)
        if changed and self.graph is not None:
            if self._is_return(graph):
                self._returned.append(now)
            self._left = hash(shape_of(self.graph))
        self.graph, self.seen_at = graph, now
        if changed:
            self.version = max(self.version + 1, int(now * 1000))
        return changed

    def _doubt(self, graph: Graph, now: float) -> str:
        before = self.graph
        if not graph.units:
            return "it names no machine"
        if before is None:
            return ""
        self._quiet_until = min(self._quiet_until, now + self.quiet_s)  # the clock may have been set back
        if now < self._quiet_until and shape_of(graph) != shape_of(before):
            return f"the fabric's manager moved; changes are believed in {self._quiet_until - now:.0f} s"
        self._returned = [at for at in self._returned if now - RETURNS_S < at <= now]
        if len(self._returned) >= RETURNS and self._is_return(graph):
            left = self._readings_left(frozenset({str(self._left)}))
            return f"its readings alternate; accepted after {left} more equal readings" if left else ""
        lost = _hosts(before) - _hosts(graph)
        if len(lost) <= max(1, SHRINK * before.hosts) and graph.tiers >= before.tiers:
            return ""
        if lost and self._downs >= len(lost):
            return ""
        left = self._readings_left(_hosts(graph))
        if not left:
            return ""
        what = f"{len(lost)} of {before.hosts} machines" if lost else "a whole tier"
        return f"it lost {what} at once; believed when {left} more readings say so"

    def _readings_left(self, content: frozenset[str]) -> int:
        """Number of further readings that must nearly agree before the loss counts."""
        near = len(content ^ self._pending) <= 0.02 * max(len(content), 1)
        self._agreed = self._agreed + 1 if near and self._agreed else 1
        self._pending = content
        return FURTHER + 1 - self._agreed

    def _is_return(self, graph: Graph) -> bool:
        shape = shape_of(graph)
        return hash(shape) == self._left and self.graph is not None and shape != shape_of(self.graph)


def _hosts(graph: Graph) -> frozenset[str]:
    return frozenset(host for unit in graph.units for host in unit.hosts)


def shape_of(graph: Graph) -> tuple[object, ...]:
    """The published part of a graph: two graphs with the same shape are published once."""
    return graph.units, graph.pods, graph.roots, graph.findings, tuple(sorted(graph.degraded.items()))


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two graphs. `sign`: `+` new, `-` gone, `~` other than before."""

    sign: str
    kind: str  #: unit, pod, host, switch, gap
    subject: str
    text: str


def diff(before: Graph, after: Graph) -> list[Change]:
    """What became different, the largest first."""
    out = [
        *_named("pod", (pod.name for pod in before.pods), (pod.name for pod in after.pods)),
        *_named("unit", (unit.name for unit in before.units), (unit.name for unit in after.units)),
    ]
    was, now = before.unit_of, after.unit_of
    out += [
        Change("~", "host", host, f"{host} moved from {was[host]} to {now[host]}")
        for host in sorted(was.keys() & now.keys())
        if was[host] != now[host]
    ]
    out += [Change("+", "host", host, f"{host} is new in {now[host]}") for host in sorted(now.keys() - was.keys())]
    out += [Change("-", "host", host, f"{host} is gone from {was[host]}") for host in sorted(was.keys() - now.keys())]
    for guid in sorted(after.switches.keys() - before.switches.keys()):
        out.append(Change("+", "switch", after.switches[guid].name, f"switch {after.switches[guid].name} is new"))
    for guid in sorted(before.switches.keys() - after.switches.keys()):
        out.append(Change("-", "switch", before.switches[guid].name, f"switch {before.switches[guid].name} is gone"))
    old, new = dict.fromkeys(before.findings), dict.fromkeys(after.findings)
    out += [Change("+", "gap", one.host or one.switch, str(one)) for one in new if one not in old]
    out += [Change("-", "gap", one.host or one.switch, f"no longer: {one}") for one in old if one not in new]
    return out


def _named(kind: str, before: Iterable[str], after: Iterable[str]) -> list[Change]:
    old, new = set(before), set(after)
    return [
        *(Change("+", kind, name, f"{kind} {name} is new") for name in sorted(new - old)),
        *(Change("-", kind, name, f"{kind} {name} is gone") for name in sorted(old - new)),
    ]
