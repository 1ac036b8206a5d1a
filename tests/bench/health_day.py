"""A day of 10,000 cards in virtual time: planted faults at published rates with user faults, maintenance, flaps and reboots for upgrades.

Rates: 6.5 faults per 1,000 node-days (Meta RSC, arXiv 2410.21680), shares after Llama 3 (arXiv 2407.21783). The remedy is simulated: a reset takes 60 s and
cures nine of ten, a reboot 600 s, a check 120 s. The two other policies are computed on the same faults; the assumptions stand in `_others`.
"""

import heapq
import random
import time
from dataclasses import dataclass, field

from hbox_common.model import IncidentState, NodeName
from hbox_common.model.remedy import Outcome, Verb
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.finding import Action, Blame, Finding, Scope, Severity
from hbox_health.core.judge.happenings import (
    Cordon,
    Event,
    EvictGang,
    Found,
    IncidentChanged,
    JobsSeen,
    Maintenance,
    NodeSeen,
    PodOnCards,
    Remedied,
    Remedy,
    Scopes,
    Tick,
    Uncordon,
    Validated,
    VerdictChanged,
)
from hbox_health.core.judge.incidents import Incidents

NODES, CARDS, DAY_S, HANDS_S, SEED = 1250, 8, 86_400.0, 4 * 3600.0, 37
RESTART_S = 300.0  #: of a gang
NCCL_S = 600.0  #: after which a job on a lost card notices by itself
#: share of the faults, severity, scope, action, code, and whether a reset or reboot cures it
KINDS = (
    (0.20, Severity.DEGRADED, Scope.NONE, Action.RESET_WHEN_IDLE, "63", True),
    (0.35, Severity.FATAL_GPU, Scope.GPU, Action.RESET, "48", True),
    (0.25, Severity.FATAL_NODE, Scope.NODE, Action.REBOOT, "79", True),
    (0.10, Severity.FATAL_GPU, Scope.GPU, Action.REPLACE, "64", False),
    (0.10, Severity.DEGRADED, Scope.RAIL, Action.ISOLATE_RAIL, "down", False),
)


@dataclass
class _Day:
    engine: Incidents = field(
        default_factory=lambda: Incidents(Policies(verbs=frozenset(Verb), validator=True), lambda _event, _node, _now: None)
    )
    dice: random.Random = field(default_factory=lambda: random.Random(SEED))
    now: float = 0.0
    count: int = 0
    queue: list[tuple[float, int, Event]] = field(default_factory=list)
    verdicts: dict[str, tuple[float, Scopes]] = field(default_factory=dict)
    boots: dict[str, int] = field(default_factory=dict)
    cordoned: set[str] = field(default_factory=set)
    restricted: set[str] = field(default_factory=set)
    evicted: int = 0
    found: set[str] = field(default_factory=set)
    lost_s: float = 0.0
    cpu_s: float = 0.0
    events: int = 0

    def at(self, when: float, event: Event) -> None:
        self.count += 1
        heapq.heappush(self.queue, (when, self.count, event))

    def seen(self, name: str) -> NodeSeen:
        closed = name in self.cordoned
        cards = tuple(f"gpu:{name}-{card}" for card in range(CARDS))
        return NodeSeen(NodeName(name), cards, unit=f"u{int(name[1:]) // 32}", unschedulable=closed, ours=closed)

    def step(self, event: Event) -> None:
        started = time.perf_counter()
        effects = self.engine.step(event, self.now)
        self.cpu_s += time.perf_counter() - started
        self.events += 1
        for effect in effects:
            match effect:
                case VerdictChanged(name, _, scopes):
                    self.account(name, scopes)
                case Cordon(name):
                    self.cordoned.add(name)
                    self.restricted.add(name)
                    self.at(self.now, self.seen(name))
                case Uncordon(name):
                    self.cordoned.discard(name)
                    self.at(self.now, self.seen(name))
                case EvictGang(name, _, _, _, _, deadline):
                    self.evicted += deadline == 0.0
                    self.restricted.add(name)
                    if deadline == 0.0:
                        self.at(self.now + 30, JobsSeen(name, ()))
                case Remedy(name, _, _, entity, Verb.RESET):
                    outcome = Outcome.DONE if self.dice.random() < 0.9 else Outcome.FAILED
                    self.at(self.now + 1, Remedied(name, entity, Verb.RESET, Outcome.BEGUN))
                    self.at(self.now + 60, Remedied(name, entity, Verb.RESET, outcome))
                    self.at(self.now + 180, Validated(name, entity, passed=True))
                case Remedy(name, _, _, _, Verb.REBOOT):
                    self.boots[name] = self.boots.get(name, 1) + 1
                    self.at(self.now + 600, Found(name, f"b{self.boots[name]}", ()))
                    self.at(self.now + 720, Validated(name, "node", passed=True))
                case IncidentChanged(incident) if incident.state is not IncidentState.SUSPECT and incident.node:
                    self.found.add(incident.node)
                case _:
                    pass

    def account(self, name: str, scopes: Scopes) -> None:
        since, before = self.verdicts.get(name, (self.now, Scopes()))
        cards = CARDS if not before.node else len(before.cards)
        self.lost_s += cards * (self.now - since)
        self.verdicts[name] = (self.now, scopes)

    def run(self, until: float) -> None:
        while True:
            due = self.engine.due
            following = self.queue[0][0] if self.queue else until
            if min(following, due if due is not None else until) >= until:
                break
            if due is not None and due < following:
                self.now = due
                self.step(Tick())
            else:
                self.now, _, event = heapq.heappop(self.queue)
                self.step(event)
        self.now = until
        for name, (_, scopes) in list(self.verdicts.items()):
            self.account(name, scopes)


def _finding(name: str, kind: tuple[float, Severity, Scope, Action, str, bool]) -> Finding:
    _, severity, scope, action, code, _ = kind
    entity = f"rail:mlx5_{name[-1]}" if scope is Scope.RAIL else f"gpu:{name}-3"
    of = "port" if scope is Scope.RAIL else "xid"
    return Finding(entity, of, code, severity, Blame.HARDWARE, scope, action, "nvidia-xid-catalogue", f"{of} {code}")


def main() -> None:
    day, pick = _Day(), random.Random(SEED)
    names = [f"n{index}" for index in range(NODES)]
    for name in names:
        day.step(day.seen(name))
        job = f"ns/j{int(name[1:]) // 16}"
        cards = tuple(f"gpu:{name}-{card}" for card in range(CARDS))
        day.step(JobsSeen(NodeName(name), (PodOnCards(f"{job}-{name}", job, f"q{int(name[1:]) % 7}", cards, multi_node=True),)))
        day.step(Found(NodeName(name), "b1", ()))
    day.cpu_s, day.events = 0.0, 0
    shuffled = pick.sample(names, len(names))
    faults = []
    for name in shuffled[: round(NODES * 6.5 / 1000)]:
        kind = pick.choices(KINDS, [share for share, *_ in KINDS])[0]
        at = pick.uniform(0, DAY_S - 6000)
        faults.append((name, at, kind))
        state = "port" if kind[2] is Scope.RAIL else ""
        day.at(
            at,
            Found(
                NodeName(name),
                "",
                (_finding(name, kind),),
                source=state,
                record="" if state else "1",
                wait_s=240.0 if state else 2.0,
            ),
        )
    spared = shuffled[100:]
    for index, name in enumerate(pick.sample(spared, 300)):  # faults of programs
        user = Finding(
            f"gpu:{name}-0",
            "xid",
            "31",
            Severity.INFO,
            Blame.USER,
            Scope.JOB,
            Action.NOTIFY_OWNER,
            "nvidia-xid-catalogue",
            "page fault",
        )
        day.at(pick.uniform(0, DAY_S), Found(NodeName(name), "", (user,), record=f"u{index}"))
    for name in pick.sample(spared, 60):  # flaps of ports
        at = pick.uniform(0, DAY_S - 300)
        day.at(at, Found(NodeName(name), "", (_finding(name, KINDS[-1]),), source="port"))
        day.at(at + pick.uniform(2, 200), Found(NodeName(name), "", (), source="port"))
    maintained = pick.sample(spared, 12)
    for name in maintained:  # maintenance, in which cards vanish
        at = pick.uniform(0, DAY_S - 7200)
        day.at(at, Maintenance(NodeName(name), at + 7200))
        day.at(at + 60, Found(NodeName(name), "", (_finding(name, KINDS[2]),), record="m"))
        day.at(at + 3600, Found(NodeName(name), "b-maintained", ()))
        day.at(at + 7320, Validated(NodeName(name), "node", passed=True))
    for name in pick.sample(spared, 60):  # upgrades
        day.at(pick.uniform(0, DAY_S), Found(NodeName(name), "b-upgraded", ()))
    day.run(DAY_S)
    day.restricted -= set(maintained)  # by the operator
    _report(day, faults)


def _report(day: _Day, faults: list[tuple[str, float, tuple[float, Severity, Scope, Action, str, bool]]]) -> None:
    sick = {name for name, *_ in faults}
    curable = [name for name, _, kind in faults if kind[5]]
    returned = [name for name in curable if day.engine.work.memory.nodes[name].verdict == Scopes()]
    healthy = day.restricted - sick
    print(
        f"{NODES} nodes, {NODES * CARDS} cards, {len(faults)} planted faults, {day.events} events, {day.cpu_s:.2f} s of engine"
    )
    print(
        f"found {len(sick & day.found)} of {len(sick)}; healthy nodes drained {len(healthy)}; false positives {100 * len(healthy) / NODES:.3f} % of node-days"
    )
    print(f"returned without hands {len(returned)} of {len(curable)} that a reset or a reboot cures")
    print(f"{'policy':28} card-hours  job-hours")
    jobs = day.evicted * 16 * CARDS * RESTART_S / 3600
    print(f"{'hbox':28} {day.lost_s / 3600:10.1f} {jobs:10.1f}")
    for policy, (cards, lost) in _others(faults).items():
        print(f"{policy:28} {cards:10.1f} {lost:10.1f}")


def _others(
    faults: list[tuple[str, float, tuple[float, Severity, Scope, Action, str, bool]]],
) -> dict[str, tuple[float, float]]:
    """Card-hours and job-hours lost if hands need four hours. Where no verdict ends a gang it notices by NCCL's time-out.

    cordon: the whole node until hands return it, also for XID 63, as other lists of fatal codes do. report: the card takes work until then, and a restarted
    gang meets it again every 15 minutes.
    """
    gang = 16 * CARDS
    codes = [fault for fault in faults if fault[2][2] is not Scope.RAIL]
    fatal = [fault for fault in codes if fault[2][1] is not Severity.DEGRADED]
    left = [min(HANDS_S, DAY_S - at) for _, at, _ in faults]
    cordon = CARDS * sum(left) / 3600, len(codes) * gang * RESTART_S / 3600
    stays = [min(HANDS_S, DAY_S - at) for _, at, _ in fatal]
    report = sum(stays) / 3600, sum(stay / 900 for stay in stays) * gang * (NCCL_S + RESTART_S) / 3600
    return {"cordon on every fatal code": cordon, "report only": report}
