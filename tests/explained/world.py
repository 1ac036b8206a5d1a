"""Random clusters with jobs that run and jobs that wait; the same for the same seed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hbox_common.model import (
    POOL,
    CardQuota,
    CardRequest,
    ClassQuota,
    Generation,
    HyperNode,
    Index,
    Job,
    JobId,
    Match,
    MatchOperator,
    Neighbour,
    NodeName,
    NodeState,
    PodConstraints,
    PodTerm,
    Queue,
    QueueName,
    Selector,
    Taint,
    TaintEffect,
    Toleration,
    TopologyMode,
    TopologyWish,
    Verdict,
)
from hbox_common.model.annotations import WALLTIME
from hbox_common.model.devices.nvidia import GPU, GPU_MEMORY
from hbox_common.model.explanation import ChangeKind
from hbox_common.model.hostports import HostPort, port_amounts
from hbox_common.model.resources import request_units
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.queueing.jobs import JobState
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

MODELS = ("A100", "H100")
ZONES = ("a", "b")
CLASSES = {"low": 0, "medium": 5, "high": 10}
TEAM = Taint("team", "x", TaintEffect.NO_SCHEDULE)
TOLERATED = Toleration(TEAM.key, value=TEAM.value)
HIGH = (Match("PriorityClass", MatchOperator.IN, ("high",)),)
POLICIES = (PolicyName.BINPACK, PolicyName.LEAST_WASTE)

#: One of so many clusters has each of the rarer features.
RARE = 5


@dataclass
class World:
    seed: int
    simulation: Simulation = field(init=False)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    faults: dict[str, Verdict] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    card_quotas: list[CardQuota] = field(default_factory=list)
    class_quotas: list[ClassQuota] = field(default_factory=list)
    features: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        rng = Random(self.seed)
        self.features = {
            name for name in ("pools", "models", "tree", "quotas", "late", "guarantees") if not rng.randrange(RARE)
        }
        self.queues = {one.name: one for one in self._queues(rng)}
        policy = rng.choice(POLICIES)
        self.simulation = Simulation(policy_of(policy), conf=default_conf(policy), queues=list(self.queues.values()))
        scheduler = self.simulation.scheduler
        scheduler.on_priority_classes(CLASSES)
        names = [f"n{number}" for number in range(rng.randint(2, 8))]
        self.nodes = {name: self._node(rng, name) for name in names}
        self.simulation.put_nodes(self.nodes.values())
        self._put_faults(rng, names)
        half = len(names) // 2
        leaves = [
            HyperNode(f"leaf-{i}", 1, nodes=tuple(map(NodeName, part))) for i, part in enumerate((names[:half], names[half:]))
        ]
        scheduler.on_fabric([*leaves, HyperNode("spine", 2, children=("leaf-0", "leaf-1"))])
        if "quotas" in self.features:
            self.card_quotas = [CardQuota("default", "cards", {rng.choice((GPU, GPU_MEMORY)): rng.choice((4, 12, 80_000))})]
            scheduler.on_card_quotas(self.card_quotas)
            hard, used = {"pods": rng.randint(1, 4)}, {"pods": rng.randint(0, 2)}
            self.class_quotas = [ClassQuota("default", "class", HIGH, hard, used)]
            self._put_class_quotas(self.class_quotas)
        jobs = [self._job(rng, f"j{number}") for number in range(rng.randint(2, 12))]
        self._put_neighbours(rng, jobs)
        self.simulation.submit(jobs)
        self.settle()
        if "late" in self.features:  # long enough for nodes to be set aside for gangs
            self.simulation.now += 150.0
            self.settle()
            self.simulation.submit([self._job(rng, "jlate")])
            self.settle()

    def _put_class_quotas(self, quotas: Sequence[ClassQuota]) -> None:
        self.simulation.scheduler.on_class_quotas(quotas, Index(self.simulation.scheduler.index))

    def _queues(self, rng: Random) -> Iterable[Queue]:
        if "tree" in self.features:
            yield Queue(QueueName("top"), capability={GPU: rng.randint(2, 30)})
        for name in ("one", "two"):
            limits = {f"{GPU}.{rng.choice(MODELS)}": rng.randint(0, 12)} if "models" in self.features else {}
            if rng.random() < 0.4:
                limits[GPU] = rng.randint(1, 24)
            yield Queue(
                QueueName(name),
                capability=limits,
                deserved={GPU: rng.randint(0, 16)} if rng.random() < 0.4 else {},
                guarantee={GPU: rng.randint(0, 8)} if "guarantees" in self.features and name == "one" else {},
                reclaimable=not ("guarantees" in self.features and name == "two"),
                parent="top" if "tree" in self.features else "",
                pools=("team",) if "pools" in self.features and name == "one" else (),
                priority_classes=("low", "medium") if not rng.randrange(2 * RARE) else (),
            )

    def _node(self, rng: Random, name: str) -> NodeState:
        labels = {"zone": rng.choice(ZONES), "kubernetes.io/hostname": name}
        if "pools" in self.features and rng.random() < 0.5:
            labels[POOL] = "team"
        made = node(
            name,
            cards=rng.choice((0, 2, 4, 8, 8)),
            model=rng.choice(MODELS),
            card_mib=rng.choice((16_000, 80_000)),
            cpu=rng.choice((8, 16)),
            memory_mib=64 * 1024,
            shares=rng.choice((1, 1, 4)),
            labels=labels,
            unschedulable=rng.random() < 0.2,
            ready=rng.random() > 0.1,
        )
        return replace(made, taints=(TEAM,)) if rng.random() < 0.1 else made

    def _put_faults(self, rng: Random, names: Sequence[str]) -> None:
        for name in names:
            if rng.random() < 0.1:
                cards = self.nodes[name].cards
                some = rng.random() < 0.5 and bool(cards)
                bad = tuple(card.id for card in cards[: rng.randint(1, len(cards))]) if some else ()
                self.faults[name] = Verdict(
                    NodeName(name), Generation(1), healthy=some, cards=bad, bad_cards=tuple(range(len(bad))), reason="XidError"
                )
                self.simulation.put_verdict(self.faults[name])

    def _job(self, rng: Random, name: str) -> Job:
        pods = rng.choice((1, 1, 2, 4, 6))
        made = self._shape(rng, name, pods)
        tasks, total = made.tasks, pods
        if pods > 1 and rng.random() < 0.25:
            other = self._shape(rng, f"{name}x", rng.choice((1, 2)))
            tasks += tuple(replace(task, name="other") for task in other.tasks)
            total += len(other.tasks[0].pods)
        priority_class = rng.choice(("low", "low", "low", "medium", "high"))
        return replace(
            made,
            tasks=tasks,
            min_member=rng.choice((total, total, 1)),
            members=total,
            gang=total > 1,
            queue=QueueName(rng.choice(("one", "two", "one"))),
            topology=TopologyWish(TopologyMode.HARD, 1) if total > 1 and rng.random() < 0.2 else None,
            priority_class=priority_class,
            priority=CLASSES[priority_class],
            annotations={WALLTIME: rng.choice(("10m", "2h"))} if rng.random() < 0.2 else {},
            created_at=self.simulation.now,
        )

    def _shape(self, rng: Random, name: str, pods: int) -> Job:
        models = (rng.choice((*MODELS, *MODELS, *MODELS, "B2OO")),) if rng.random() < 0.3 else ()
        count = 9 if rng.random() < 0.05 else rng.choice((1, 2, 4, 8))
        whole = CardRequest(count, models=models)
        part = CardRequest(min(count, 2), cores=0, memory_mib=rng.choice((4_000, 20_000, 100_000)), models=models)
        made = job(
            name,
            pods=pods,
            cpu_milli=20_000 if rng.random() < 0.05 else rng.choice((500, 1000, 3500)),
            memory_mib=100 * 1024 if rng.random() < 0.05 else 1024,
            cards=rng.choice((0, whole, whole, part)),
            node_selector={"zone": rng.choice((*ZONES, *ZONES, *ZONES, "moon"))} if rng.random() < 0.2 else None,
        )
        (task,) = made.tasks
        if rng.random() < 0.3:
            task = replace(task, tolerations=(TOLERATED,))
        if rng.random() < 0.08:
            task = replace(task, requests={**task.requests, **port_amounts([HostPort(rng.choice((80, 443)))])})
        return replace(made, tasks=(task,))

    def _put_neighbours(self, rng: Random, jobs: Sequence[Job]) -> None:
        """Some gangs have pods that keep apart from each other."""
        for one in jobs:
            if one.gang and rng.random() < 0.2:
                key = rng.choice(("kubernetes.io/hostname", "kubernetes.io/hostname", "zone"))
                term = PodTerm(key, Selector((Match("job", MatchOperator.IN, (one.name,)),)))
                apart = PodConstraints(anti_affinity=(term,))
                pods = [pod for task in one.tasks for pod in task.pods]
                self.simulation.scheduler.on_neighbours(Neighbour(pod.uid, "default", {"job": one.name}, apart) for pod in pods)

    def settle(self) -> None:
        """Until nothing more starts and nothing more leaves; searches that have to wait for their time are made."""
        quiet = 0
        while quiet < 2:
            started = self.simulation.run()
            quiet = 0 if self.simulation.leave() or started else quiet + 1
            self.simulation.now += 5.0

    def waiting(self) -> list[Job]:
        entries = self.simulation.scheduler._queue.entries.values()
        return [entry.job for entry in entries if entry.state is JobState.UNSCHEDULABLE]

    # What happens then.

    def starts(self, waits: JobId, changes: Sequence[tuple[ChangeKind, Mapping[str, Any]]]) -> bool:
        """Whether the job starts, the only one that waits, after these changes."""
        changed = self._alone(waits)
        for kind, facts in changes:
            if kind is ChangeKind.NODES:
                self.repair(facts["nodes"][: facts["count"]])
            elif kind is ChangeKind.LIMIT:
                queue = self.queues[facts["queue"]]
                amounts = {facts["resource"]: request_units(facts["resource"], facts["amount"])}
                self.simulation.scheduler.on_queue(replace(queue, **{facts["rule"]: getattr(queue, facts["rule"]) | amounts}))
            else:
                changed = edited(changed, kind, facts)
        return self._submitted(changed)

    def starts_when_empty(self, waits: JobId) -> tuple[bool, bool]:
        """Whether the job starts once all others have ended; and whether it does once all nodes are in service and sound too."""
        simulation, changed = self.simulation, self._alone(waits)
        others = [one.id for one in self.waiting() if one.id != waits]
        simulation.scheduler.on_withdrawn(others, [1 << 40] * len(others))
        simulation.finish([uid for uid, claim in simulation.claims.items() if claim.job != waits])
        if self.class_quotas:
            self._put_class_quotas([replace(one, used={}) for one in self.class_quotas])
        if self._submitted(changed):
            return True, True
        self.repair(self.nodes)
        return False, self._submitted(replace(changed, revision=changed.revision + 1))

    def repair(self, names: Iterable[str]) -> None:
        for name in names:
            state = self.nodes[name] = replace(
                self.nodes[name], ready=True, unschedulable=False, generation=Generation(self.nodes[name].generation + 1)
            )
            self.simulation.put_nodes([state])
            if name in self.faults:
                self.simulation.put_verdict(Verdict(NodeName(name), state.generation, healthy=True))

    def _alone(self, waits: JobId) -> Job:
        """The job, after all others that wait were withdrawn, but gangs for which nodes are reserved."""
        kept = {one.gang.strip() for one in self.simulation.scheduler.reports.reservations}
        present = {one.id: one for one in self.waiting()}
        others = [one for one in present if one != waits and one not in kept]
        self.simulation.scheduler.on_withdrawn(others, [1 << 40] * len(others))
        return present[waits]

    def _submitted(self, changed: Job) -> bool:
        before = set(self.simulation.claims)
        self.simulation.submit([replace(changed, revision=changed.revision + 1)])
        self.settle()
        return any(pod.uid in self.simulation.claims.keys() - before for task in changed.tasks for pod in task.pods)


def edited(one: Job, kind: ChangeKind, facts: Mapping[str, Any]) -> Job:
    """The job as its user writes it then."""
    match kind:
        case ChangeKind.PODS:
            return replace(one, min_member=facts["pods"])
        case ChangeKind.QUEUE:
            return replace(one, queue=QueueName(facts["queue"]))
        case ChangeKind.PRIORITY:
            return replace(one, priority=facts["value"], priority_class=facts["class"])
        case ChangeKind.TIER:
            return replace(one, topology=TopologyWish(TopologyMode(facts["mode"]), facts["tier"] or None))
        case ChangeKind.WALLTIME:
            return replace(one, annotations={**one.annotations, WALLTIME: facts["walltime"]})
    tasks = []
    for task in one.tasks:
        cards, requests, selector = task.cards, dict(task.requests), dict(task.node_selector)
        match kind:
            case ChangeKind.CARDS if cards is not None and cards.count > facts["cards"]:
                cards = replace(cards, count=facts["cards"])
                requests[GPU] = facts["cards"]
            case ChangeKind.MODEL if cards is not None and cards.models:
                cards = replace(cards, models=(facts["model"],))
            case ChangeKind.SELECTOR if selector.get(facts["key"]) == facts["of"]:
                del selector[facts["key"]]
                selector |= {facts["key"]: facts["value"]} if facts["value"] else {}
            case ChangeKind.RESOURCES if facts["resource"] == GPU_MEMORY:
                if cards is not None and not cards.whole:
                    cards = replace(cards, memory_mib=min(cards.memory_mib, int(facts["amount"])))
            case ChangeKind.RESOURCES:
                units = request_units(facts["resource"], facts["amount"])
                requests[facts["resource"]] = min(requests.get(facts["resource"], 0), units)
            case ChangeKind.CARDS | ChangeKind.MODEL | ChangeKind.SELECTOR:
                pass
            case _:
                raise AssertionError(kind)
        tasks.append(replace(task, cards=cards, requests=requests, node_selector=selector))
    return replace(one, tasks=tuple(tasks))
