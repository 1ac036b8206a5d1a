"""scheduler-core's core alone with 91,000 running jobs: what one operation costs, and the longest turn, in processor time.

Run it as `python -m tests.bench core`. `HBOX_BENCH_SIZE=0.1` uses a tenth of everything, `HBOX_BENCH_CORE=pod,victims` runs only these parts, and
`HBOX_BENCH_POLICY=hbox` (or `volcano`) only one policy.

12,500 nodes of 8 cards, 91,000 running jobs of one card each, 2,000 queues in 50 departments. Each queue deserves its share of the cards; every other queue
holds, twice what it deserves, and the others are owners that hold nothing. There is no broker: the ledger is in this process and accepts every plan
(`InstantLedger`). Each part has a cluster of its own. The figures are processor time of one core, so that other load of the machine disturbs them little.

A turn is one call of the core, or of the garbage collector between two cycles: while it lasts the service receives and acknowledges no message.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from hbox_common.events import Plan
from hbox_common.model import (
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    Job,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    Queue,
    QueueName,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, MEMORY, MIB, PODS
from hbox_common.runtime import LongLived, collect_seldom
from hbox_scheduler.app import between_cycles, calm_collector
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import PLUGINS, check_plugins
from hbox_scheduler.core.protocol.limits import Proposals
from hbox_scheduler.core.simulate import Simulation, job, node

from ..policies import VOLCANO
from .flood import at
from .scheduler import report, rss_mib
from .size import SIZE

NODES, CARDS = int(12_500 * SIZE), 8
RUNNING = int(91_000 * SIZE)
DEPARTMENTS, PROJECTS = 50, max(2, int(40 * SIZE))
WAITING = int(40_000 * SIZE)
GANG = int(1024 * SIZE)
#: Claims of one message when they are ingested in pages.
PAGE = 500
#: Wall-clock time of the simulation's zero: jobs that run began in the hours before.
WALL = 1_000_000.0

POD_MS, POD_P99_MS = 1.5, 5.0
FIRST_MS = 150.0
VICTIMS_MS = 60.0
RESERVATION_MS = 60.0
GANG_MS = 12.0
RULE_MS = 100.0
SHAPES_PER_S = 4000.0
TURN_MS = 100.0

#: Methods of the scheduler that the service calls: each call is a turn.
_CALLS = (
    "advance",
    "cycle",
    "on_answers",
    "on_claims",
    "on_claims_snapshot",
    "on_jobs",
    "on_node",
    "on_queue",
    "on_withdrawn",
)


class Turns:
    """Milliseconds of processor time of each turn, by what it was."""

    def __init__(self) -> None:
        self._turns: list[tuple[float, str]] = []

    def follow(self, scheduler: Any) -> None:
        """Record every call of the scheduler from now on."""
        for name in _CALLS:
            setattr(scheduler, name, self._timed(name, getattr(scheduler, name)))

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.turn(name):
                return call(*args, **kwargs)

        return timed

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        began = time.process_time()
        try:
            yield
        finally:
            self._turns.append((1000 * (time.process_time() - began), name))

    def take(self) -> tuple[float, str]:
        """The longest turn since the last call."""
        longest = max(self._turns, default=(0.0, "none"))
        self._turns.clear()
        return longest


class World:
    """The cluster, its jobs and queues. `full`: no card is free, otherwise a twelfth of the nodes is empty. `loaded`: the running jobs are known.
    `nodes`: the number of the last nodes that this scheduler has; the others are those of another scheduler."""

    def __init__(self, conf: Conf, *, full: bool = False, loaded: bool = True, nodes: int = NODES) -> None:
        self.turns = Turns()
        self.projects = [(f"d{d}", QueueName(f"d{d}-p{p}")) for d in range(DEPARTMENTS) for p in range(PROJECTS)]
        self.holders, self.owners = ([name for _, name in self.projects[some::2]] for some in (0, 1))
        deserved = self.deserved = NODES * CARDS // len(self.projects)
        queues = [Queue(QueueName(f"d{d}"), deserved=_cards(deserved * PROJECTS)) for d in range(DEPARTMENTS)]
        queues += [Queue(name, parent=above, deserved=_cards(deserved)) for above, name in self.projects]
        self.simulation = Simulation(policy_of(PolicyName.BINPACK), queues=queues, conf=conf)
        self.simulation.wall_ahead = WALL
        self.scheduler = self.simulation.scheduler
        self.simulation.put_nodes(_nodes(nodes))
        self.memory = LongLived()
        self.turns.follow(self.scheduler)
        self.claims = self._claims(NODES * CARDS if full else RUNNING)
        self._numbers = iter(range(1 << 40))
        if loaded:
            self.load()
            calm_collector()
            if full:
                self.end()
            self.place([self.new("first")])
            between_cycles(self.scheduler, self.memory)
            self.turns.take()

    def load(self) -> None:
        collect_seldom()  # as the service does until it is ready
        for first in range(0, len(self.claims), PAGE):
            self.simulation.hold(self.claims[first : first + PAGE])
            self.scheduler.advance()

    def _claims(self, count: int) -> list[Claim]:
        """Whole nodes but for two hundred of them, each of which has a card free. The jobs of one node are of queues of one department, so that a queue of it
        may reclaim the node as a whole: no other department holds more than it deserves."""
        requests = {CPU: 4000, MEMORY: 16_384 * MIB, GPU: 1, PODS: 1}
        holes = 0 if count == NODES * CARDS else int(200 * SIZE)
        claims: list[Claim] = []
        each = len(self.holders) // DEPARTMENTS
        for number in range(count + holes):
            row, card = divmod(number, CARDS)
            if card == 0 and row < holes:
                continue
            uid = f"running-{number}"
            claims.append(
                Claim(
                    ClaimId(uid),
                    PodUid(uid),
                    "default",
                    uid,
                    JobId(uid),
                    PlanId(""),
                    self.holders[row % DEPARTMENTS * each + number % each],
                    0,
                    NodeName(f"node-{row:05}"),
                    requests,
                    (CardSlice(card, 100, 40_960),),
                    ClaimState.POSTED,
                    created_at=WALL - 7200.0 + number % 3600,
                    claimed_at=WALL - 7000.0 + number % 3600,
                )
            )
        return claims

    def new(self, name: str, **more: Any) -> Job:
        """A job of an owner that holds nothing, unless `queue` is given; every one of another name."""
        number = next(self._numbers)
        more.setdefault("queue", self.owners[number % len(self.owners)])
        more.setdefault("created_at", WALL + self.simulation.now)
        more.setdefault("cards", 1)
        return job(f"{name}-{number}", **{"cpu_milli": 4000, "memory_mib": 16_384, **more})

    def cycle(self) -> Proposals:
        """One cycle, whose plans are not accepted yet."""
        out: Proposals = self.scheduler.cycle(self.simulation.now, WALL + self.simulation.now)
        return out

    def rest(self) -> None:
        with self.turns.turn("garbage collection"):
            between_cycles(self.scheduler, self.memory)

    def settle(self, most: int = 100) -> list[Plan]:
        """Cycle until nothing is left to do at this time; every plan is accepted."""
        made: list[Plan] = []
        for _ in range(most):
            out = self.simulation.step()
            made += out.plans
            self.rest()
            if not out.plans and not out.more:
                return made
        return made

    def place(self, jobs: Sequence[Job]) -> float:
        """Milliseconds from the arrival of these jobs until the cycle has placed them; afterwards their plans are accepted."""
        began = time.process_time()
        self.simulation.submit(jobs)
        out = self.cycle()
        took = 1000 * (time.process_time() - began)
        assert len(out.plans) == len(jobs), f"{len(out.plans)} of {len(jobs)} placed"
        self.simulation.accept(out.plans)
        self.rest()
        return took

    def end(self, count: int = 1) -> None:
        """So many running pods end."""
        for _ in range(count):
            uid = self.claims.pop().pod_uid
            if uid in self.simulation.claims:
                self.simulation.finish([uid])


def _cards(count: int) -> dict[str, int]:
    return {GPU: count}


def _nodes(last: int) -> Iterable[NodeState]:
    return (node(f"node-{i:05}", cards=CARDS, cpu=96, memory_mib=1 << 20) for i in range(NODES - last, NODES))


@dataclass(frozen=True, slots=True)
class Rules:
    """A policy by its name, and the same with actions that evict if it has none."""

    name: str
    conf: Conf
    evicting: Conf

    @property
    def reserves(self) -> bool:
        return any(plugin.name == "reservation" for plugin in self.conf.plugins)


def policies() -> list[Rules]:
    evicting = VOLCANO.replace('backfill"', 'backfill, reclaim, preempt"')
    plain, more = (parse_conf(text, plugins=list(PLUGINS)) for text in (VOLCANO, evicting))
    return [Rules("hbox", default_conf(), default_conf()), Rules("volcano", plain, more)]


def start(rules: Rules) -> None:
    """All claims arrive as in a snapshot, then one pod."""
    world = World(rules.conf, loaded=False)
    began = time.process_time()
    world.load()
    print(f"{'  ingest of all claims, in pages':66} {1000 * (time.process_time() - began):>10,.1f} ms")
    calm_collector()
    report("first pod after a start", world.place([world.new("first")]), "ms", FIRST_MS, least=False)
    longest(world)


def pod(rules: Rules) -> None:
    """One pod at a time, while another one ends. Pods before it: when as many pods again have been seen, the policy scores all nodes anew, by what pods ask
    for."""
    world = World(rules.conf)
    world.simulation.submit([world.new("before") for _ in range(400)])
    world.settle()
    world.turns.take()
    times = []
    for _ in range(200):
        world.simulation.now += 0.02
        world.end()
        times.append(world.place([world.new("pod")]))
    times.sort()
    report("one one-card pod, p50", at(times, 0.5), "ms", POD_MS, least=False)
    report("one one-card pod, p99", at(times, 0.99), "ms", POD_P99_MS, least=False)
    longest(world)


def victims(rules: Rules) -> None:
    """No card is free; an owner asks for one card, later for four nodes."""
    world = World(rules.evicting, full=True, loaded=False)
    world.load()
    calm_collector()
    world.turns.take()
    before = rss_mib()
    first = reclaim(world, world.new("owner"))
    report("first victim search: all members are needed", first, "ms", VICTIMS_MS, least=False)
    print(f"{'  memory that it adds':66} {rss_mib() - before:>10,.1f} MiB")
    ones = sorted(reclaim(world, world.new("owner")) for _ in range(10))
    report("victim search for one card, median", ones[5], "ms", VICTIMS_MS, least=False)
    pods = max(1, min(4, world.deserved // CARDS))
    gangs = sorted(reclaim(world, world.new("gang", pods=pods, cards=CARDS, cpu_milli=64_000)) for _ in range(5))
    report(f"victim search for a gang of {pods} x 8, median", gangs[2], "ms", VICTIMS_MS, least=False)
    longest(world)


def reclaim(world: World, wanted: Job) -> float:
    """Milliseconds of the cycles until the victims of this job are chosen. Then they leave, and the job runs."""
    world.simulation.now += 5.0
    world.simulation.submit([wanted])
    took = 0.0
    for _ in range(50):
        began = time.process_time()
        out = world.cycle()
        took += 1000 * (time.process_time() - began)
        world.simulation.accept(out.plans)
        world.rest()
        if any(plan.victims for plan in out.plans):
            break
        world.simulation.now = max(world.simulation.now + 0.01, out.wake_at or 0.0)
    else:
        raise AssertionError(f"no victims for {wanted.id}")
    world.simulation.leave()
    for _ in range(20):
        world.settle()
        if wanted.tasks[0].pods[0].uid in world.simulation.claims:
            return took
        world.simulation.now += 1.0
    raise AssertionError(f"{wanted.id} has victims, but no place")


def reservation(rules: Rules) -> None:
    """A gang that needs twice as many nodes as are free has waited for ten minutes; pods end and start meanwhile."""
    if not rules.reserves:
        print("  no plugin `reservation` in this policy")
        return
    world = World(rules.conf)
    for number in range(64):
        world.simulation.now += 1.0
        world.end()
        if number % 8 == 0:
            world.settle()
    gang = world.new("large", pods=2 * GANG, cards=CARDS, cpu_milli=64_000, created_at=WALL - 600.0)
    world.simulation.submit([gang])
    world.simulation.now += 60.0
    world.settle()
    world.turns.take()
    times, passes = [], _timed(world.scheduler._runner.reservations, "make")
    for _ in range(10):
        world.simulation.now += 60.0
        world.end()
        began = time.process_time()
        out = world.cycle()
        times.append(1000 * (time.process_time() - began))
        world.simulation.accept(out.plans)
        world.settle()
    assert world.scheduler.reports.reservations, "no nodes are set aside"
    report("reservation pass, median", sorted(passes)[len(passes) // 2], "ms", RESERVATION_MS, least=False)
    print(f"{'  the same with its cycle, which looks for victims too':66} {sorted(times)[5]:>10,.1f} ms")
    longest(world)


def _timed(owner: Any, name: str) -> list[float]:
    """Milliseconds of each call of the owner's method from now on."""
    call, took = getattr(owner, name), list[float]()

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        found = call(*args, **kwargs)
        took.append(1000 * (time.process_time() - began))
        return found

    setattr(owner, name, timed)
    return took


def gang(rules: Rules) -> None:
    """A large gang on empty nodes, again and again."""
    world = World(rules.conf)
    times, arrivals = [], []
    for _ in range(100):
        one = world.new("gang", pods=GANG, cards=CARDS, cpu_milli=64_000)
        began = time.process_time()
        world.simulation.submit([one])
        came = time.process_time()
        out = world.cycle()
        times.append(1000 * (time.process_time() - came))
        arrivals.append(1000 * (came - began))
        assert [len(plan.placements) for plan in out.plans] == [GANG]
        world.simulation.accept(out.plans)
        world.simulation.finish([one.tasks[0].pods[i].uid for i in range(GANG)])
        world.rest()
    times.sort()
    report(f"gang of {GANG:,} x 8, p99", at(times, 0.99), "ms", GANG_MS, least=False)
    print(f"{'  the same: p50; arrival of the job':66} {at(times, 0.5):>10,.1f} ms {sorted(arrivals)[50]:.1f} ms")
    longest(world)


def rule(rules: Rules) -> None:
    """No card is free and jobs of queues that hold more than they deserve wait; the rules of one such queue change."""
    world = World(rules.conf, full=True)
    waiting = [world.new("waiting", queue=world.holders[i % len(world.holders)]) for i in range(WAITING)]
    for first in range(0, WAITING, PAGE):
        world.simulation.submit(waiting[first : first + PAGE])
    for _ in range(30):
        world.settle()
        world.simulation.now += 1.0
    world.turns.take()
    parents = {name: above for above, name in world.projects}
    times = []
    for number, name in enumerate(world.holders[:10]):
        world.simulation.now += 10.0
        world.settle()
        began = time.process_time()
        world.scheduler.on_queue(Queue(name, parent=parents[name], deserved=_cards(world.deserved + 1 + number % 2)))
        world.settle()
        times.append(1000 * (time.process_time() - began))
    report(f"rules of one queue change with {WAITING:,} jobs waiting, median", sorted(times)[5], "ms", RULE_MS, least=False)
    longest(world)


def shapes(rules: Rules) -> None:
    """Pods of 300 shapes in turn."""
    world = World(rules.conf)
    count = int(4000 * SIZE)
    kinds = cycle([(1000 + 10 * i, 1024 + 16 * i) for i in range(300)])
    shapes_in_turn = zip(range(count), kinds, strict=False)
    world.simulation.submit([world.new("shape", cpu_milli=cpu, memory_mib=mib) for _, (cpu, mib) in shapes_in_turn])
    used, placed = 0.0, 0
    while True:
        began = time.process_time()
        out = world.cycle()
        used += time.process_time() - began
        placed += sum(len(plan.placements) for plan in out.plans)
        world.simulation.accept(out.plans)
        world.rest()
        if not out.more and not out.plans:
            break
    assert placed == count, f"{placed} of {count} placed"
    report("300 shapes in turn", placed / used, "pods/s", SHAPES_PER_S, least=True)
    longest(world)


def longest(world: World) -> None:
    took, name = world.turns.take()
    report(f"  longest turn ({name})", took, "ms", TURN_MS, least=False)


PARTS: dict[str, Callable[[Rules], None]] = {
    "start": start,
    "pod": pod,
    "victims": victims,
    "reservation": reservation,
    "gang": gang,
    "rule": rule,
    "shapes": shapes,
}


def main() -> None:
    asked = os.environ.get("HBOX_BENCH_CORE", "")
    chosen = os.environ.get("HBOX_BENCH_POLICY", "")
    check_plugins()  # as the service does
    print(f"{NODES:,} nodes of {CARDS} cards, {RUNNING:,} running jobs, {DEPARTMENTS * PROJECTS:,} queues; processor time")
    for rules in policies():
        if chosen and rules.name not in chosen.split(","):
            continue
        for name in asked.split(",") if asked else PARTS:
            print(f"-- {name}, policy {rules.name}", flush=True)
            PARTS[name](rules)
