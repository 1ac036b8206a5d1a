"""Faults of a run, made from its seed: what happens when, to which target, and for how long or how strongly.

Each fault alone leaves the platform's promises intact, and so does any set of them. A run is fault-free after `last_end`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

SERVICES = ("topology-collector", "quota-ledger", "scheduler-core", "binder", "job-controller", "health-monitor")
ALL = "*"
STATEFUL = ("quota-ledger", "health-monitor")
#: Histories that drop messages when they are full, and those that refuse them.
HISTORIES = ("HBOX_JOBS", "HBOX_PLANS", "HBOX_DECISIONS", "HBOX_OUTCOMES")
LAST_VALUES = ("HBOX_STATE",)

RIVAL, LEAP, BLIND = "rival", "clock-leap", "disk-restore-blind"
#: Kinds that only a wide run draws (`drawn`).
WIDE = frozenset({RIVAL, LEAP, BLIND, "bus-stalled", "api-stalled", "api-down", "api-invalid"})
#: Clocks that differ by more than the deadline of a bind let no pod be bound: a leap is corrected after so many seconds.
LEAPT_S = 8.0
#: Probability that a seed also has a rival scheduler.
_RIVALS = 0.5

#: Virtual seconds before the first fault, so that the services have begun.
FIRST_S = 8.0
#: Virtual seconds without a fault at the end of a run.
QUIET_S = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """`value`: seconds for which it lasts, for most kinds; see KINDS."""

    at: float
    kind: str
    target: str
    value: float

    def __str__(self) -> str:
        return f"{self.at:g}:{self.kind}:{self.target}:{self.value:g}"


def parse(text: str) -> Fault:
    """A fault as it is printed. Raises ValueError."""
    at, kind, target, value = text.split(":")
    if kind not in KINDS:
        raise ValueError(f"{kind} is no kind of fault: {', '.join(sorted(KINDS))}")
    return Fault(float(at), kind, target, float(value))


@dataclass(frozen=True, slots=True)
class Kind:
    """`value`: drawn for a new fault; `lasts`: whether it is the fault's duration in seconds."""

    about: str
    targets: tuple[str, ...]
    value: Callable[[Random], float]
    lasts: bool = True


def _seconds(least: float, most: float) -> Callable[[Random], float]:
    return lambda chance: round(chance.uniform(least, most), 2)


KINDS: dict[str, Kind] = {
    # time
    "clock-jump": Kind("the wall clock of a service jumps by `value` seconds", SERVICES, _seconds(-30.0, 30.0), lasts=False),
    LEAP: Kind(f"the same, and back after {LEAPT_S:g} s", SERVICES, _seconds(-90.0, 90.0), lasts=False),
    "kill": Kind("the process dies; the next one starts after `value` seconds", SERVICES, _seconds(0.1, 8.0)),
    "pause": Kind("the process is paused", SERVICES, _seconds(1.0, 20.0)),
    # broker
    "bus-late": Kind("messages take up to a third of a second", (*SERVICES, ALL), _seconds(1.0, 15.0)),
    "bus-stalled": Kind("messages take up to six seconds", SERVICES, _seconds(2.0, 20.0)),
    "bus-lost": Kind("one message in ten is lost", (*SERVICES, ALL), _seconds(1.0, 10.0)),
    "bus-doubled": Kind("one message in five arrives twice", (*SERVICES, ALL), _seconds(1.0, 15.0)),
    "bus-cut": Kind("the connection is lost, with all that is under way", (*SERVICES, ALL), _seconds(0.0, 8.0)),
    "broker-restart": Kind("the broker ends, and returns without its streams in memory", ("",), _seconds(0.2, 10.0)),
    "broker-forgets": Kind("the same; file streams lose what they stored in the last second", ("",), _seconds(0.2, 5.0)),
    "stream-drops": Kind("a full history drops its older half", HISTORIES, _seconds(0.0, 0.0)),
    "stream-full": Kind("a stream of last values takes no message", LAST_VALUES, _seconds(1.0, 10.0)),
    # schedulers
    RIVAL: Kind("a scheduler with errors proposes plans, too", ("",), _seconds(5.0, 30.0)),
    # API server
    "api-late": Kind("requests take up to two thirds of a second", (*SERVICES, ALL), _seconds(1.0, 15.0)),
    "api-down": Kind("no request is answered", SERVICES, _seconds(2.0, 30.0)),
    "api-stalled": Kind(
        "requests take up to twelve seconds: some are executed after their client gave up", SERVICES, _seconds(2.0, 15.0)
    ),
    "api-before": Kind("one request in three is lost", (*SERVICES, ALL), _seconds(1.0, 12.0)),
    "api-after": Kind("one answer in three is lost", (*SERVICES, ALL), _seconds(1.0, 12.0)),
    "api-conflict": Kind("one write in three gets 409", (*SERVICES, ALL), _seconds(1.0, 10.0)),
    "api-invalid": Kind("one write in three gets 422", ("binder",), _seconds(1.0, 10.0)),
    "api-error": Kind("one request in three gets 500 or 503", (*SERVICES, ALL), _seconds(1.0, 15.0)),
    "api-gone": Kind("watches end with 410", (*SERVICES, ALL), _seconds(1.0, 10.0)),
    "api-silent": Kind("open watches send nothing, not even their end", (*SERVICES, ALL), _seconds(1.0, 20.0)),
    "api-stale": Kind("new watches read a server whose cache is frozen", (*SERVICES, ALL), _seconds(1.0, 20.0)),
    "api-compact": Kind("the history is compacted", ("",), _seconds(0.0, 0.0)),
    # disk
    "disk-slow": Kind("a commit takes up to 0.4 s", STATEFUL, _seconds(1.0, 15.0)),
    "disk-before": Kind("one transaction in three fails before its commit", STATEFUL, _seconds(1.0, 8.0)),
    "disk-after": Kind("one transaction in three fails after its commit", STATEFUL, _seconds(1.0, 8.0)),
    "disk-restore": Kind(
        "the process dies; the next one finds its database as of `value` seconds ago",
        STATEFUL,
        _seconds(0.1, 20.0),
        lasts=False,
    ),
    BLIND: Kind(
        "the same of the ledger, while binder and job-controller are away", ("quota-ledger",), _seconds(5.0, 20.0), lasts=False
    ),
}


def drawn(seed: int, seconds: float, kinds: Sequence[str] = (), *, wide: bool = False) -> list[Fault]:
    """The faults of a seed. `kinds`: the ones that occur; none given: all. `wide`: those of WIDE, too, and a rival in half of the seeds."""
    chance = Random(f"faults {seed}")
    until = seconds - QUIET_S
    if until <= FIRST_S:
        return []
    drawable = [name for name in KINDS if wide or name not in WIDE]
    names = [name for name in drawable if not kinds or any(name.startswith(kind) for kind in kinds)]
    found = []
    for number in range(chance.randint(2, 10) + wide):
        name = chance.choice(names)
        if wide and not number and RIVAL in names and chance.random() < _RIVALS:
            name = RIVAL
        kind = KINDS[name]
        at = round(chance.uniform(FIRST_S, until - LEAPT_S if name == LEAP else until), 2)
        value = kind.value(chance)
        if kind.lasts:
            value = min(value, round(until - at, 2))
        found.append(Fault(at, name, chance.choice(kind.targets), value))
    return sorted(found, key=lambda fault: (fault.at, fault.kind))


def last_end(faults: Sequence[Fault]) -> float:
    """The virtual second at which the last fault ends."""
    return max((fault.at + _lasts_s(fault) for fault in faults), default=0.0)


def _lasts_s(fault: Fault) -> float:
    if fault.kind == LEAP:
        return LEAPT_S
    return fault.value if KINDS[fault.kind].lasts else 0.0
