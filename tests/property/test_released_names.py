"""Nodes, queues and pods with names that come and go: the scheduler's columns equal those of one that knows only the present state."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from hbox_common.model import DEFAULT_QUEUE, CardRequest, Generation, NodeName, NodeState, PodUid, Queue, QueueName
from hbox_scheduler.core.cluster import Columns, columns
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

NAMES = st.integers(0, 30)


@dataclass(frozen=True, slots=True)
class Step:
    """`what`: a node or a queue comes or changes, or is deleted; a pod comes or ends. `names`: numbers of its resources, labels and model."""

    what: str
    which: int
    names: tuple[int, ...]


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["node", "no node", "queue", "no queue", "pod", "pod", "no pod"]),
        st.integers(0, 5),
        st.lists(NAMES, min_size=1, max_size=4).map(tuple),
    ),
    max_size=40,
)


def described(which: int, names: Sequence[int], generation: int) -> NodeState:
    made = node(
        f"n{which}",
        cards=2,
        model=f"model-{names[0]}",
        labels={f"x.io/label-{i}": f"value-{names[-1]}" for i in names},
        generation=generation,
    )
    return replace(made, allocatable={**made.allocatable, **{f"x.io/{i}": 2 for i in names}})


class World:
    """A scheduler, and the names that exist now."""

    def __init__(self) -> None:
        self.simulation = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
        self.nodes: dict[str, NodeState] = {}
        self.queues: dict[str, Queue] = {}
        self._generation = self._pod = 0

    def step(self, step: Step) -> None:
        s = self.simulation
        s.now += 5.0
        self._generation += 1
        match step.what:
            case "node":
                state = self.nodes[f"n{step.which}"] = described(step.which, step.names, self._generation)
                s.put_nodes([state])
            case "no node" if (known := self.nodes.get(f"n{step.which}")) is not None:
                if not any(claim.node == known.name for claim in s.claims.values()):
                    del self.nodes[known.name]
                    s.scheduler.on_node(replace(known, gone=True, generation=Generation(self._generation)))
            case "queue":
                rules = {f"x.io/{i}": 1 for i in step.names}
                queue = self.queues[f"q{step.which}"] = Queue(QueueName(f"q{step.which}"), capability=rules)
                s.scheduler.on_queue(queue)
            case "no queue" if self.queues.pop(f"q{step.which}", None) is not None:
                s.scheduler.on_queue(Queue(QueueName(f"q{step.which}")), gone=True)
            case "pod":
                self._pod += 1
                made = job(f"j{self._pod}", cards=step.which % 2, queue=f"q{step.which}" if step.which % 3 else DEFAULT_QUEUE)
                spec = made.tasks[0]
                cards = CardRequest(1, models=(f"model-{step.names[0]}",)) if step.which % 2 else None
                requests = {**spec.requests, f"x.io/{step.names[-1]}": 1}
                s.submit([replace(made, tasks=(replace(spec, cards=cards, requests=requests),))])
            case "no pod" if s.claims:
                s.finish([list(s.claims)[step.which % len(s.claims)]])
        s.run()

    def afresh(self) -> Columns:
        """The columns of a new scheduler that is given the present state."""
        made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
        made.put_nodes(self.nodes.values())
        for queue in self.queues.values():
            made.scheduler.on_queue(queue)
        made.hold(self.simulation.claims.values())
        return made.scheduler.columns


def amounts(of: Columns) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Allocatable, used and leaving by resource and node, where one is not 0."""
    found = {
        (resource, name): tuple(int(some[column, row]) for some in (of.allocatable, of.used, of.leaving))
        for resource, column in of.resources.items()
        for name, row in of.row_of.items()
    }
    return {key: one for key, one in found.items() if any(one)}  # type: ignore[misc]


def models(of: Columns) -> dict[str, list[tuple[str, str]]]:
    return {
        name: [(of.model_names[code], of.model_resources[code]) for code in of.card_model[row].tolist()]
        for name, row in of.row_of.items()
    }


def labels(of: Columns) -> dict[tuple[str, str], str | None]:
    """Of each node the values of all labels, also of those that no node has."""
    keys = [f"x.io/label-{i}" for i in range(31)]
    found: dict[tuple[str, str], str | None] = {}
    for key in keys:
        column = of.descriptions.column(key)
        found.update({(key, name): column.values[column.codes[row]] for name, row in of.row_of.items()})
    return found


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_columns_equal_those_of_the_present_state(steps: list[Step]) -> None:
    world = World()
    spare, columns.SPARE_MODELS = columns.SPARE_MODELS, 1
    try:
        for step in steps:
            world.step(step)
    finally:
        columns.SPARE_MODELS = spare
    now, fresh = world.simulation.scheduler.columns, world.afresh()
    assert amounts(now) == amounts(fresh)
    assert models(now) == models(fresh)
    assert labels(now) == labels(fresh)
    assert len(now.resources) <= 2 * max(len(fresh.resources), 4)
    assert len(now.descriptions) <= len(fresh.descriptions)
    assert len(now.model_names) <= 2 * len(fresh.model_names) + 32 + 1
    for name in world.nodes:
        assert now.row_of[NodeName(name)] < now.size
    assert set(map(str, world.simulation.claims)) <= set(map(str, now_booked(world)))


def now_booked(world: World) -> list[PodUid]:
    return [*world.simulation.scheduler.bookings.all()]
