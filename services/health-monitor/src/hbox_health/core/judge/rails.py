"""Ports of RDMA adapters over time: down, flapping, slow, gone.

A port counts once it was active at the rate of its box; a port that never was counts only where the box lacks ports without it. Storage and management ports,
virtual functions and second ports that were never used are by design.

Thresholds of gpud: dropped after 4 min, and trusted again 10 min after; flapping after 3 returns from at least 25 s within 12 h, and not trusted for 12 h.
Counters: NVSentinel.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .finding import Action, Blame, Finding, Scope, Severity
from .rules import Profile

Port = Mapping[str, Any]

AUTHORITY = "gpud"

DROPPED_S = 240.0
FLAP_DOWN_S = 25.0
FLAPS = 3
FLAP_WINDOW_S = 12 * 3600.0
CLEAN_S = 600.0
SLOW_POLLS = 3
GONE_POLLS = 3

#: Counters by the most that a well port shows a second. A counter that falls was reset.
RATES = {
    "symbol_error": 10.0,
    "link_error_recovery": 5.0 / 60,
    "port_rcv_errors": 10.0,
    "local_ack_timeout_err": 1.0,
    "port_xmit_discards": 100.0,
    "roce_slow_restart": 10.0,
}
#: Counters of which one more is too many, and those that tolerate a few.
COUNTS = {
    "excessive_buffer_overrun": 0,
    "excessive_buffer_overrun_errors": 0,
    "local_link_integrity": 0,
    "local_link_integrity_errors": 0,
    "rnr_nak_retry_err": 0,
    "carrier_changes": 2,
}

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*Gb/sec")


@dataclass(slots=True)
class _Rail:
    active: bool = False
    fast_once: bool = False  #: was active at the rate of its box
    virtual: bool = False
    layer: str = ""
    state: str = ""
    rate: float = 0.0
    down_since: float | None = None
    up_since: float | None = None
    dropped: bool = False  #: was down for as long as a drop takes, and is not clean since
    returns: list[float] = field(default_factory=list)
    flapping: bool = False  #: returned too often, and 12 h did not pass since the last time
    slow_polls: int = 0
    missed: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    bad_counters: dict[str, str] = field(default_factory=dict)
    seen_at: float | None = None


@dataclass(slots=True)
class Rails:
    """The ports of one node. `expected` and `rate` (Gb/s): of its box; None: unknown."""

    expected: int | None = None
    rate: float | None = None
    _rails: dict[str, _Rail] = field(default_factory=dict)

    @classmethod
    def of(cls, profile: Profile, *, expected: int | None = None, rate: float | None = None) -> "Rails":
        return cls(expected if expected is not None else profile.ports, rate if rate is not None else profile.rate)

    def poll(self, t: float, ports: Mapping[str, Port]) -> None:
        """One reading of all ports, at `t` seconds."""
        self.rate = self.rate or max((_rate(port) for port in ports.values() if _is_active(port)), default=None)
        for name, port in ports.items():
            self._see(t, self._rails.setdefault(name, _Rail()), port)
        for name, rail in self._rails.items():
            if name not in ports:
                rail.missed += 1

    def _see(self, t: float, rail: _Rail, port: Port) -> None:
        rail.virtual = bool(port.get("physfn"))
        rail.layer = str(port.get("link_layer", rail.layer))
        rail.state, rail.missed = _state(port), 0
        rail.active = rail.state == "ACTIVE"
        rail.rate = _rate(port)
        slow = rail.active and self.rate is not None and rail.rate < self.rate
        rail.slow_polls = rail.slow_polls + 1 if slow else 0
        rail.fast_once = rail.fast_once or (rail.active and not slow)
        if not rail.active:
            rail.up_since = None
            rail.down_since = t if rail.down_since is None else rail.down_since
            rail.dropped = rail.dropped or t - rail.down_since >= DROPPED_S
        else:
            if (
                rail.down_since is not None
                and rail.seen_at is not None
                and t - rail.down_since >= FLAP_DOWN_S
                and rail.fast_once
            ):
                rail.returns = [at for at in rail.returns if t - at < FLAP_WINDOW_S] + [t]
                rail.flapping = rail.flapping or len(rail.returns) >= FLAPS
            rail.dropped = rail.dropped or (rail.down_since is not None and t - rail.down_since >= DROPPED_S)
            rail.down_since = None
            rail.up_since = t if rail.up_since is None else rail.up_since
            rail.dropped = rail.dropped and t - rail.up_since < CLEAN_S
        rail.flapping = rail.flapping and t - rail.returns[-1] < FLAP_WINDOW_S
        _count(t, rail, port)
        rail.seen_at = t

    def findings(self, t: float) -> list[Finding]:
        """The findings at `t`, from the polls until then; one for the fabric where all ports show the same."""
        rails = self._compute()
        waiting = [name for name, rail in rails.items() if rail.state in {"INIT", "ARMED"} and not rail.missed]
        if len(rails) > 1 and len(waiting) == len(rails):
            why = "All ports have a link and wait for the subnet manager: the fabric, not the cables."
            return [
                Finding(
                    "node",
                    "port",
                    "subnet-manager",
                    Severity.DEGRADED,
                    Blame.UNKNOWN,
                    Scope.FABRIC,
                    Action.REPORT,
                    AUTHORITY,
                    why,
                )
            ]
        out = [found for name, rail in sorted(rails.items()) if (found := self._judge(t, f"rail:{name}", rail)) is not None]
        if 1 < len(out) == len(rails) and len({found.code for found in out}) == 1:
            return [replace(found, blame=Blame.UNKNOWN, scope=Scope.FABRIC) for found in out]  # what all ports share
        return out

    def state(self, t: float, name: str) -> str:
        """well, isolated, or still-isolated: up again, and not trusted yet."""
        rail = self._rails.get(name)
        found = self._judge(t, f"rail:{name}", rail) if rail is not None else None
        if rail is None or found is None or found.action is not Action.ISOLATE_RAIL:
            return "well"
        return "still-isolated" if rail.active and not rail.slow_polls else "isolated"

    @property
    def names(self) -> list[str]:
        return sorted(self._rails)

    def _compute(self) -> dict[str, _Rail]:
        """Ports that carry traffic of jobs: each that was once active at the rate of the box; the others only as far as the box lacks ports."""
        rails = {name: rail for name, rail in self._rails.items() if not rail.virtual}
        proven = {name: rail for name, rail in rails.items() if rail.fast_once}
        lacking = max(0, (self.expected or 0) - len(proven))
        layers = {rail.layer for rail in proven.values()} or {"InfiniBand", "Ethernet", ""}
        others = sorted(name for name, rail in rails.items() if name not in proven and rail.layer in layers)
        return proven | {name: rails[name] for name in others[:lacking]}

    def _judge(self, t: float, entity: str, rail: _Rail) -> Finding | None:
        def decided(code: str, severity: Severity, action: Action, why: str, blame: Blame = Blame.HARDWARE) -> Finding:
            return Finding(entity, "port", code, severity, blame, Scope.RAIL, action, AUTHORITY, why)

        isolate = (Severity.DEGRADED, Action.ISOLATE_RAIL)
        if rail.missed:
            why = f"The adapter is gone, for {rail.missed} readings."
            return decided("gone", *(isolate if rail.missed >= GONE_POLLS else (Severity.SUSPECT, Action.WATCH)), why)
        if rail.flapping and t - rail.returns[-1] < FLAP_WINDOW_S:
            why = f"The port went down and came back {len(rail.returns)} times within 12 h: it is not trusted until 12 h after."
            return decided("flapping", *isolate, why)
        if not rail.active:
            down = t - rail.down_since if rail.down_since is not None else 0.0
            why = f"The port is {rail.state or 'down'} for {down:g} s."
            return decided("down", *(isolate if down >= DROPPED_S else (Severity.SUSPECT, Action.WATCH)), why)
        if rail.dropped and t - (rail.up_since or 0.0) < CLEAN_S:
            return decided("down", *isolate, "The port is up again, for less than 10 min.")
        if rail.slow_polls:
            why = f"{rail.rate:g} Gb/s instead of {self.rate:g}, in {rail.slow_polls} readings."
            return decided("slow", *(isolate if rail.slow_polls >= SLOW_POLLS else (Severity.DEGRADED, Action.REPORT)), why)
        if rail.bad_counters:
            why = "; ".join(rail.bad_counters.values()) + "."
            return decided("errors", Severity.DEGRADED, Action.TICKET, why)
        return None


def _count(t: float, rail: _Rail, port: Port) -> None:
    counters = dict(_counters(port))
    took = t - rail.seen_at if rail.seen_at is not None else 0.0
    rail.bad_counters = {}
    for name, value in counters.items():
        more = value - rail.counters.get(name, value)
        if more <= 0 or took <= 0:
            continue  # the first reading, or a counter that the driver reset
        if name in RATES and more / took > RATES[name]:
            rail.bad_counters[name] = f"{name}: {more / took:.3g} a second"
        elif name in COUNTS and more > COUNTS[name]:
            rail.bad_counters[name] = f"{name}: {more:g} more"
    rail.counters = counters


def _counters(port: Port) -> Iterable[tuple[str, float]]:
    for key, value in port.items():
        if isinstance(value, Mapping):
            yield from _counters(value)
        elif key in RATES or key in COUNTS:
            try:
                yield key, float(value)
            except (TypeError, ValueError):
                continue


def _state(port: Port) -> str:
    return str(port.get("state", "")).rpartition(":")[2].strip().upper()


def _is_active(port: Port) -> bool:
    return _state(port) == "ACTIVE"


def _rate(port: Port) -> float:
    found = _RATE.match(str(port.get("rate", "")))
    return float(found[1]) if found else 0.0
