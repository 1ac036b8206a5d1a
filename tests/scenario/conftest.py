"""A drawing of the cluster in, the placements out.

One line a node: its name, its cards, and words for what is special about it. One line a job: its name, what each pod asks for, how many pods
(`x4`, or `x4 min 2`), and words. What the scheduler made of it is drawn the same way: one line a job, with the nodes and cards of its pods.

    n1  8 cards                     n2  4 cards V100 shares=10 cpu=32 label zone=a taint gpu=yes:NoSchedule cordoned notready
    train  8 cards x4               infer  1 card 30% cpu=4 queue=q priority=5 on zone=a tolerates gpu port=80 volume zone=a
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from hbox_common.model import (
    DEFAULT_QUEUE,
    CardRequest,
    HostPort,
    Job,
    Match,
    MatchOperator,
    NodeState,
    NodeTerm,
    Queue,
    QueueName,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
    port_amounts,
)
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate import Simulation, job, node


def number(text: str, pattern: str, default: int) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else default


def lines(drawing: str) -> list[tuple[str, str]]:
    stripped = [line.strip() for line in drawing.strip().splitlines()]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in stripped if line]


def node_of(name: str, text: str) -> NodeState:
    model = re.search(r"\b(A100|V100|H100|T4)\b", text)
    drawn = node(
        name,
        cards=number(text, r"(\d+) cards?", 0),
        model=model[1] if model else "A100",
        card_mib=number(text, r"mib=(\d+)", 40_960),
        shares=number(text, r"shares=(\d+)", 1),
        cpu=number(text, r"cpu=(\d+)", 64),
        ready="notready" not in text,
        unschedulable="cordoned" in text,
        labels=dict(re.findall(r"label ([\w./-]+)=([\w-]+)", text)),
    )
    taints = tuple(Taint(k, v, TaintEffect(e)) for k, v, e in re.findall(r"taint ([\w.-]+)=(\w*):(\w+)", text))
    bad = {int(index) for index in re.findall(r"bad card (\d+)", text)}
    cards = tuple(replace(card, healthy=card.index not in bad) for card in drawn.cards)
    return replace(drawn, taints=taints, cards=cards)


def job_of(position: int, name: str, text: str) -> Job:
    count = number(text, r"(\d+) cards?", 0)
    percent, mib = number(text, r"(\d+)%", 0), number(text, r"mib=(\d+)", 0)
    models = tuple(re.findall(r"model=(\w+)", text))
    cards: CardRequest | int = 0
    if count:
        cards = CardRequest(
            count, cores=percent or (0 if mib else 100), memory_mib=mib, memory_percent=percent or 100, models=models
        )
    pods = number(text, r"\bx(\d+)", 1)
    drawn = job(
        name,
        pods=pods,
        min_member=number(text, r"min (\d+)", pods),
        cpu_milli=1000 * number(text, r"cpu=(\d+)", 1),
        cards=cards,
        queue=(re.search(r"queue=(\w+)", text) or [DEFAULT_QUEUE] * 2)[1],
        priority=number(text, r"priority=(\d+)", 0),
        created_at=float(position),
        node_selector=dict(re.findall(r"\bon ([\w.-]+)=([\w-]+)", text)),
    )
    tolerations = tuple(Toleration(key, TolerationOperator.EXISTS) for key in re.findall(r"tolerates (\w+)", text))
    ports = [HostPort(int(port), protocol or "TCP", address) for port, protocol, address in _PORT.findall(text)]
    volumes = tuple(
        tuple(NodeTerm((Match(key, MatchOperator.IN, (value,)),)) for value in values.split("|"))
        for key, values in re.findall(r"volume (\w+)=([\w|]+)", text)
    )
    task = drawn.tasks[0]
    requests = task.requests | port_amounts(ports)
    return replace(drawn, tasks=(replace(task, tolerations=tolerations, requests=requests, volumes=volumes),))


_PORT = re.compile(r"port=(\d+)(?:/(\w+))?(?:@([\d.]+))?")


class World:
    def __init__(self, nodes: str, *, policy: PolicyName = PolicyName.BINPACK, queues: Sequence[Queue] = ()) -> None:
        self.simulation = Simulation(policy_of(policy), queues=(Queue(DEFAULT_QUEUE), *queues))
        self.simulation.put_nodes(node_of(*line) for line in lines(nodes))
        self._jobs: dict[str, Job] = {}

    def submit(self, jobs: str) -> "World":
        drawn = [job_of(len(self._jobs) + i, *line) for i, line in enumerate(lines(jobs))]
        self._jobs.update((j.id, j) for j in drawn)
        self.simulation.submit(drawn)
        self.simulation.run()
        return self

    def finish(self, name: str) -> "World":
        pods = [pod.uid for pod in self._jobs[name].tasks[0].pods]
        self.simulation.finish(uid for uid in pods if uid in self.simulation.claims)
        self.simulation.run()
        return self

    def drawn(self) -> dict[str, str]:
        """By job: `node[:card,card] node[:card] ...` in order of the pods; jobs that wait are left out."""
        out: dict[str, list[str]] = {}
        for _, claim in sorted(self.simulation.claims.items(), key=lambda item: (item[1].job, int(item[0].rpartition("-")[2]))):
            cards = ",".join(str(s.index) for s in claim.slices)
            out.setdefault(claim.job, []).append(claim.node + (f":{cards}" if cards else ""))
        return {name: " ".join(places) for name, places in out.items()}

    def why(self, name: str) -> str:
        return self.simulation.verdicts.get(self._jobs[name].id, "")


@pytest.fixture
def world() -> Callable[..., World]:
    return World


@pytest.fixture
def capped() -> Callable[..., Queue]:
    """A queue that may use so many of one resource."""
    return lambda name, **capability: Queue(
        QueueName(name), capability={{"cards": "nvidia.com/gpu"}.get(key, key): units for key, units in capability.items()}
    )
