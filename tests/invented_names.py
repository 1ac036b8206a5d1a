"""Names that a tenant may invent: jobs of each kind of name, and a search for objects that still hold such a name after its pods are gone."""

import gc
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from hbox_common.model import (
    CardQuota,
    CardRequest,
    GroupState,
    Job,
    JobId,
    Match,
    MatchOperator,
    Neighbour,
    NodeState,
    NodeTerm,
    PodConstraints,
    PodTerm,
    PodUid,
    PreferredTerm,
    Queue,
    QueueName,
    ResourceQuota,
    Selector,
    Spread,
    Toleration,
    TopologyMode,
    TopologyWish,
)
from hbox_common.model.devices import VENDORS, Ask, PodDevices
from hbox_common.model.hostports import WHOLE
from hbox_common.model.topology import SubGangPolicy
from hbox_scheduler.core.scheduler import Scheduler
from hbox_scheduler.core.simulate import Simulation, job, node

#: Part of each invented name.
MARK = "typo7"
#: More cards than a node has: the job waits, whatever the name changes.
TOO_MANY = 9
FAR = 1 << 60


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs with an invented name, by number. `neighbour`: what job-controller publishes of their pods besides; `come` and `go`: objects of the cluster that
    bring and remove the names of jobs `numbers`."""

    make: Callable[[int], Job]
    neighbour: Callable[[int], Neighbour] | None = None
    come: Callable[[Scheduler, range], None] | None = None
    go: Callable[[Scheduler, range], None] | None = None


def _job(i: int, **more: Any) -> Job:
    more.setdefault("cards", TOO_MANY)
    return replace(job(f"{MARK}-{i}", created_at=float(i), **more), namespace="tenant")


def _task(made: Job, **changes: Any) -> Job:
    return replace(made, tasks=(replace(made.tasks[0], **changes),))


def _requests(i: int, **more: int) -> Job:
    made = _job(i, cards=0)
    return _task(made, requests={**made.tasks[0].requests, **more})


def _term(i: int, operator: MatchOperator, *values: str) -> NodeTerm:
    return NodeTerm((Match(f"{MARK}.io/key-{i}", operator, values),))


def _neighbour(i: int, **more: Any) -> Neighbour:
    return Neighbour(PodUid(f"{MARK}-{i}-0"), "tenant", **more)


def _selector(i: int) -> Selector:
    return Selector((Match(f"{MARK}-{i}", MatchOperator.EXISTS),))


def _gang(i: int) -> Job:
    made = _job(i)
    spec = replace(made.tasks[0], name=f"{MARK}-role-{i}", labels={f"{MARK}-label-{i}": f"{MARK}-{i}"})
    policy = SubGangPolicy(f"{MARK}-sub-{i}", labels=(f"{MARK}-label-{i}",), size=1)
    return replace(made, tasks=(spec,), min_task_member={f"{MARK}-role-{i}": 1}, sub_gangs=(policy,), gang=True)


def _card_id(i: int) -> Job:
    devices = PodDevices((Ask(VENDORS.default.kind, 1),), wishes=(("nvidia.com/use-gpuuuid", f"GPU-{MARK}-{i}"),))
    return _task(_job(i, cards=1), cards=CardRequest(1, devices=devices))


def _put_queues(scheduler: Scheduler, numbers: range) -> None:
    for i in numbers:
        scheduler.on_queue(Queue(QueueName(f"{MARK}-queue-{i}"), capability={f"{MARK}.io/card-{i}": 1, "nvidia.com/gpu": 1}))


def _drop_queues(scheduler: Scheduler, numbers: range) -> None:
    for i in numbers:
        scheduler.on_queue(Queue(QueueName(f"{MARK}-queue-{i}")), gone=True, recent_cards=0.0)


def _name_spaces(scheduler: Scheduler, numbers: range) -> None:
    scheduler.on_namespaces({f"{MARK}-space-{i}": {f"{MARK}-label-{i}": f"{MARK}-{i}"} for i in numbers})
    scheduler.on_card_quotas([CardQuota(f"{MARK}-space-{i}", "cards", {"nvidia.com/gpu": 1}) for i in numbers])
    scheduler.on_namespace_quotas([ResourceQuota(f"{MARK}-space-{i}", "all", {f"requests.{MARK}.io/{i}": 1}) for i in numbers])


def _forget_spaces(scheduler: Scheduler, numbers: range) -> None:
    _name_spaces(scheduler, range(0))


def _put_classes(scheduler: Scheduler, numbers: range) -> None:
    scheduler.on_priority_classes({f"{MARK}-class-{i}": i % 100 for i in numbers})


def _drop_classes(scheduler: Scheduler, numbers: range) -> None:
    scheduler.on_priority_classes({})


def _groups(numbers: range, *, gone: bool, revision: int) -> Iterator[GroupState]:
    for i in numbers:
        yield GroupState(
            JobId(f"{MARK}-{i}"),
            "tenant",
            f"{MARK}-group-{i}",
            QueueName("default"),
            0,
            1,
            float(i),
            {f"{MARK}.io/group-{i}": 1},
            revision,
            annotations={f"{MARK}-{i}": "yes"},
            gone=gone,
        )


KINDS: Mapping[str, Kind] = {
    "resources": Kind(lambda i: _requests(i, **{f"{MARK}.io/x{i}": 1})),
    "card models": Kind(lambda i: _task(_job(i, cards=1), cards=CardRequest(1, models=(f"{MARK}-model-{i}",)))),
    "card ids": Kind(_card_id),
    "label keys, selectors": Kind(lambda i: _job(i, node_selector={f"{MARK}.io/key-{i}": f"{MARK}-{i}"})),
    "label keys, affinity": Kind(
        lambda i: _task(
            _job(i),
            affinity=(_term(i, MatchOperator.NOT_IN, f"{MARK}-{i}"), _term(i, MatchOperator.EXISTS)),
            preferred=(PreferredTerm(1, _term(i, MatchOperator.EXISTS)),),
        )
    ),
    "label values": Kind(lambda i: _job(i, node_selector={"kubernetes.io/hostname": f"{MARK}-{i}"})),
    "topology keys": Kind(
        _job,
        lambda i: _neighbour(
            i,
            labels={f"{MARK}-{i}": f"{MARK}-{i}"},
            constraints=PodConstraints(
                affinity=(PodTerm(f"{MARK}.io/key-{i}", _selector(i)),),
                anti_affinity=(PodTerm(f"{MARK}.io/far-{i}", _selector(i), namespaces=(f"{MARK}-space-{i}",)),),
                spread=(Spread(1, f"{MARK}.io/spread-{i}", True, _selector(i)),),
            ),
        ),
    ),
    "host ports": Kind(lambda i: _requests(i, **{f"hostport/TCP/{i % 65_535 + 1}/{MARK}-{i}": WHOLE, "nvidia.com/gpu": 9})),
    "namespaces": Kind(lambda i: replace(_job(i), namespace=f"{MARK}-space-{i}"), None, _name_spaces, _forget_spaces),
    "queues that do not exist": Kind(lambda i: replace(_job(i), queue=QueueName(f"{MARK}-queue-{i}"))),
    "queues": Kind(
        lambda i: _task(replace(_requests(i, **{f"{MARK}.io/card-{i}": 1}), queue=QueueName(f"{MARK}-queue-{i}"))),
        None,
        _put_queues,
        _drop_queues,
    ),
    "classes": Kind(
        lambda i: replace(_job(i), priority_class=f"{MARK}-class-{i}", priority=i % 100), None, _put_classes, _drop_classes
    ),
    "roles": Kind(
        _gang,
        lambda i: _neighbour(i, labels={"app": f"{MARK}-{i}"}, annotations={f"{MARK}-{i}": f"{MARK}"}, budgets=(f"{MARK}-{i}",)),
    ),
    "tolerations": Kind(lambda i: _task(_job(i), tolerations=(Toleration(f"{MARK}-{i}", value=f"{MARK}-{i}"),))),
    "images": Kind(lambda i: _task(_job(i), images=(f"docker.io/{MARK}/{i}:latest",))),
    "volumes": Kind(lambda i: _task(_job(i), volumes=((_term(i, MatchOperator.IN, f"{MARK}-{i}"),),))),
    "annotations": Kind(
        lambda i: _task(
            replace(_job(i), annotations={f"{MARK}-{i}": f"{MARK}"}, topology=TopologyWish(TopologyMode.HARD, None, f"{MARK}-{i}")),
            annotations={f"{MARK}-{i}": f"{MARK}"},
        )
    ),
    "scheduling groups": Kind(
        _job,
        None,
        lambda scheduler, numbers: scheduler.on_groups(_groups(numbers, gone=False, revision=1)),
        lambda scheduler, numbers: scheduler.on_groups(_groups(numbers, gone=True, revision=2)),
    ),
}  # fmt: skip


def bring(simulation: Simulation, kind: Kind, numbers: range) -> None:
    """The jobs of these numbers, and what comes with their names."""
    scheduler = simulation.scheduler
    if kind.come is not None:
        kind.come(scheduler, numbers)
    if kind.neighbour is not None:
        scheduler.on_neighbours(map(kind.neighbour, numbers))
    simulation.submit(map(kind.make, numbers))


def remove(simulation: Simulation, kind: Kind, numbers: range) -> None:
    """Delete them, with those of their pods that have a place."""
    jobs = [kind.make(i) for i in numbers]
    placed = [pod.uid for one in jobs for spec in one.tasks for pod in spec.pods if pod.uid in simulation.claims]
    simulation.finish(placed)
    simulation.scheduler.on_withdrawn([one.id for one in jobs], [FAR] * len(jobs))
    for one in jobs:
        simulation.verdicts.pop(one.id, None)
    if kind.go is not None:
        kind.go(simulation.scheduler, numbers)


def settle(simulation: Simulation, after: Callable[[], object] = lambda: None, cycles: int = 400) -> None:
    """Cycles, some seconds apart, until nothing is left to do. `after`: called after each."""
    for _ in range(cycles):
        simulation.now += 2.5
        out = simulation.step()
        after()
        if not out.plans and not out.more and (out.wake_at is None or out.wake_at > simulation.now + 30.0):
            return


def pass_time(simulation: Simulation, after: Callable[[], object] = lambda: None) -> None:
    """The time after which everything that is kept for a while is released."""
    for _ in range(8):
        simulation.now += 60.0
        simulation.step()
        after()


def held(roots: Mapping[str, object], mark: str = MARK) -> Counter[str]:
    """Where strings with `mark` are held that can be reached from these objects: number of places by path. Elements of containers share one path, with `[]`."""
    found: Counter[str] = Counter()
    seen = {id(root) for root in roots.values()}
    waiting: deque[tuple[str, object]] = deque(roots.items())
    while waiting:
        path, one = waiting.popleft()
        for name, part in _parts(one):
            where = f"{path}{name}"
            if isinstance(part, str | bytes):
                if (mark in part) if isinstance(part, str) else (mark.encode() in part):
                    found[where] += 1
            elif id(part) not in seen and not isinstance(part, _LEAVES) and not type(part).__module__.startswith(_EMULATED):
                seen.add(id(part))
                waiting.append((where, part))
    return found


#: Modules of the emulated cluster, which is no part of the platform.
_EMULATED = ("tests.", "hbox_sandbox")

_LEAVES = (int, float, complex, bool, type(None), type, ModuleType, BuiltinFunctionType)


def _parts(one: object) -> Iterable[tuple[str, object]]:
    if isinstance(one, dict):
        return [("[]", part) for pair in list(one.items()) for part in pair]
    if isinstance(one, list | tuple | set | frozenset | deque):
        return [("[]", part) for part in list(one)]
    if isinstance(one, FunctionType):
        cells = [cell.cell_contents for cell in one.__closure__ or () if _filled(cell)]
        return [("()", part) for part in (*cells, *(one.__defaults__ or ()), *vars(one).values())]
    if isinstance(one, MethodType):
        return [("", one.__self__)]
    if type(one).__module__.startswith(("hbox_", "tests.", "pydantic")):
        return _attributes(one)
    return [("", part) for part in gc.get_referents(one)]


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _attributes(one: object) -> list[tuple[str, object]]:
    names = [name for each in type(one).__mro__ for name in _slots(each)]
    found = [(f".{name}", getattr(one, name)) for name in names if hasattr(one, name)]
    for name, part in getattr(one, "__dict__", {}).items():
        found.append((f".{name}", part))
    if isinstance(one, Mapping | list | set | deque):
        found += [("[]", part) for part in gc.get_referents(one)]
    return found


def _slots(each: type) -> Iterable[str]:
    slots = each.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else slots
    return [name for name in names if name not in ("__weakref__", "__dict__")]


def modules(*prefixes: str) -> dict[str, object]:
    """The global variables of all imported modules of these packages, as roots of `held`."""
    return {f"{name}": dict(vars(module)) for name, module in sorted(sys.modules.items()) if name.startswith(prefixes)}


def nodes(count: int, cards: int = 8) -> list[NodeState]:
    """Nodes of the bench, with the labels that nodes usually have."""
    return [
        node(
            f"node-{i:05}",
            cards=cards,
            cpu=96,
            memory_mib=1 << 20,
            labels={
                "kubernetes.io/hostname": f"node-{i:05}",
                "topology.kubernetes.io/zone": f"zone-{i % 8}",
                "nvidia.com/gpu.product": "A100",
            },
        )
        for i in range(count)
    ]
