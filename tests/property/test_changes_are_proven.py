"""Each proposed change, made alone, starts the job in the state in which it was proposed, and one unit less does not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import (
    CardRequest,
    Generation,
    HyperNode,
    Job,
    JobId,
    NodeName,
    NodeState,
    Queue,
    QueueName,
    TopologyMode,
    TopologyWish,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.explanation import Change, ChangeKind
from hbox_common.model.resources import CPU, GIB, MEMORY, request_units
from hbox_scheduler.core.explain.changes import ChangeLimits
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.queueing.jobs import JobState
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ..searching import examples

MODELS = ("A100", "H100")
ZONES = ("a", "b")
CLASSES = {"low": 0, "medium": 5, "high": 10}
UNITS = {CPU: (1000, 100), MEMORY: (GIB, GIB // 16)}
#: As much as every search needs.
PATIENT = ChangeLimits(probes=2000, seconds=60.0)


@dataclass
class World:
    """A random cluster with jobs that run and jobs that wait; the same for the same seed."""

    seed: int
    simulation: Simulation = field(init=False)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = Random(self.seed)
        self.queues = {name: self._queue(rng, name) for name in ("one", "two")}
        self.simulation = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf(), queues=list(self.queues.values()))
        scheduler = self.simulation.scheduler
        scheduler.on_priority_classes(CLASSES)
        names = [f"n{number}" for number in range(rng.randint(2, 8))]
        self.nodes = {name: self._node(rng, name) for name in names}
        self.simulation.put_nodes(self.nodes.values())
        half = len(names) // 2
        leaves = [
            HyperNode(f"leaf-{i}", 1, nodes=tuple(map(NodeName, part))) for i, part in enumerate((names[:half], names[half:]))
        ]
        scheduler.on_fabric([*leaves, HyperNode("spine", 2, children=("leaf-0", "leaf-1"))])
        self.simulation.submit([self._job(rng, f"j{number}") for number in range(rng.randint(2, 8))])
        self._settle()

    def _queue(self, rng: Random, name: str) -> Queue:
        return Queue(
            QueueName(name),
            capability={GPU: rng.randint(1, 24)} if rng.random() < 0.4 else {},
            deserved={GPU: rng.randint(0, 16)} if rng.random() < 0.4 else {},
        )

    def _node(self, rng: Random, name: str) -> NodeState:
        return node(
            name,
            cards=rng.choice((2, 4, 8)),
            model=rng.choice(MODELS),
            cpu=rng.choice((8, 16)),
            memory_mib=64 * 1024,
            labels={"zone": rng.choice(ZONES)},
            unschedulable=rng.random() < 0.2,
            ready=rng.random() > 0.1,
        )

    def _job(self, rng: Random, name: str) -> Job:
        pods = rng.choice((1, 1, 2, 4, 6))
        models = (rng.choice((*MODELS, "B2OO")),) if rng.random() < 0.3 else ()
        made = job(
            name,
            pods=pods,
            min_member=rng.choice((pods, pods, 1)),
            cpu_milli=rng.choice((500, 1000, 3500, 20_000)),
            memory_mib=rng.choice((1024, 1024, 100 * 1024)),
            cards=rng.choice((0, CardRequest(rng.choice((1, 2, 4, 9)), models=models))),
            queue=rng.choice((*self.queues, "one")),
            node_selector={"zone": rng.choice((*ZONES, "moon"))} if rng.random() < 0.3 else None,
            priority=0,
        )
        wish = TopologyWish(TopologyMode.HARD, 1) if pods > 1 and rng.random() < 0.3 else None
        return replace(made, topology=wish, priority_class="low")

    def _settle(self) -> None:
        """Until nothing more starts and nothing more leaves; searches that have to wait for their time are made."""
        quiet = 0
        while quiet < 2:
            started = self.simulation.run()
            quiet = 0 if self.simulation.leave() or started else quiet + 1
            self.simulation.now += 5.0

    def waiting(self) -> list[Job]:
        entries = self.simulation.scheduler._queue.entries.values()
        return [entry.job for entry in entries if entry.state is JobState.UNSCHEDULABLE]

    def starts(self, waits: JobId, changes: list[tuple[ChangeKind, Mapping[str, Any]]]) -> bool:
        """Whether the job starts, the only one that waits, after these changes."""
        simulation = self.simulation
        present = {one.id: one for one in self.waiting()}
        others = [one for one in present if one != waits]
        simulation.scheduler.on_withdrawn(others, [1 << 40] * len(others))
        changed = replace(present[waits], revision=present[waits].revision + 1)
        for kind, facts in changes:
            if kind is ChangeKind.NODES:
                for name in facts["nodes"][: facts["count"]]:
                    now = self.nodes[name]
                    simulation.put_nodes(
                        [replace(now, ready=True, unschedulable=False, generation=Generation(now.generation + 1))]
                    )
            elif kind is ChangeKind.LIMIT:
                queue = self.queues[facts["queue"]]
                amounts = {facts["resource"]: request_units(facts["resource"], facts["amount"])}
                simulation.scheduler.on_queue(replace(queue, **{facts["rule"]: getattr(queue, facts["rule"]) | amounts}))
            else:
                changed = edited(changed, kind, facts)
        simulation.submit([changed])
        before = set(simulation.claims)
        self._settle()
        return any(pod.uid in simulation.claims.keys() - before for task in changed.tasks for pod in task.pods)


def edited(one: Job, kind: ChangeKind, facts: Mapping[str, Any]) -> Job:
    """The job as its user writes it then."""
    (task,) = one.tasks
    match kind:
        case ChangeKind.PODS:
            return replace(one, min_member=facts["pods"])
        case ChangeKind.QUEUE:
            return replace(one, queue=QueueName(facts["queue"]))
        case ChangeKind.PRIORITY:
            return replace(one, priority=facts["value"], priority_class=facts["class"])
        case ChangeKind.TIER:
            return replace(one, topology=TopologyWish(TopologyMode(facts["mode"]), facts["tier"] or None))
        case ChangeKind.CARDS:
            assert task.cards is not None
            cards = replace(task.cards, count=facts["cards"])
            task = replace(task, cards=cards, requests={**task.requests, GPU: facts["cards"]})
        case ChangeKind.MODEL:
            assert task.cards is not None
            task = replace(task, cards=replace(task.cards, models=(facts["model"],)))
        case ChangeKind.SELECTOR:
            others = {key: value for key, value in task.node_selector.items() if key != facts["key"]}
            task = replace(task, node_selector=others | ({facts["key"]: facts["value"]} if facts["value"] else {}))
        case ChangeKind.RESOURCES:
            units = request_units(facts["resource"], facts["amount"])
            task = replace(task, requests={**task.requests, facts["resource"]: units})
        case _:
            raise AssertionError(kind)
    return replace(one, tasks=(task,))


def one_less(kind: ChangeKind, facts: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The same change, smaller by one unit."""
    match kind:
        case ChangeKind.PODS if facts["pods"] + 1 < facts["of"]:
            yield {**facts, "pods": facts["pods"] + 1}
        case ChangeKind.CARDS if facts["cards"] + 1 < facts["of"]:
            yield {**facts, "cards": facts["cards"] + 1}
        case ChangeKind.LIMIT:
            yield {**facts, "amount": str(int(facts["amount"]) - 1)}
        case ChangeKind.RESOURCES:
            name, of = facts["resource"], request_units(facts["resource"], facts["of"])
            unit = next(unit for unit in UNITS[name] if of >= 2 * unit)
            units = request_units(name, facts["amount"]) + unit
            if units < of:
                yield {**facts, "amount": f"{units}m" if name == CPU else str(units)}
        case ChangeKind.NODES if facts["count"] > 1:
            for left_out in facts["nodes"]:
                nodes = tuple(name for name in facts["nodes"] if name != left_out)
                yield {**facts, "nodes": nodes, "count": facts["count"] - 1}


def parts(change: Change) -> list[tuple[ChangeKind, Mapping[str, Any]]]:
    return [(one.kind, one.facts) for one in (change, *change.also)]


@given(st.integers(0, 2**32))
@examples(1000, fixed=30)
def test_change_alone_starts_the_job_and_one_unit_less_does_not(seed: int) -> None:
    world = World(seed)
    if not (waiting := world.waiting()):
        return
    waits = Random(seed).choice(waiting)
    found = world.simulation.scheduler.reports.changes(waits.id, PATIENT, lambda: 0.0)
    assert found.complete
    explained = world.simulation.scheduler.reports.explanation(waits.id, 0.0)
    assert explained is not None
    assert sum(explained.nodes.first.values()) + explained.nodes.fitting == explained.nodes.total
    for change in found.changes:
        if change.kind is ChangeKind.MOVES:  # the policy of these clusters makes none
            continue
        made = parts(change)
        assert World(seed).starts(waits.id, made), (waits.id, change)
        for number, (kind, facts) in enumerate(made):
            for less in one_less(kind, facts):
                assert not World(seed).starts(waits.id, [*made[:number], (kind, less), *made[number + 1 :]]), (change, less)
            others = [*made[:number], *made[number + 1 :]]
            assert not World(seed).starts(waits.id, others), (change, "without one of them")
