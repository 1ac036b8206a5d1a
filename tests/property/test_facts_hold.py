"""Sentences of explanations on random clusters: the facts of each code are compared with the nodes, and no amount that a job needs is said to be there."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from hbox_common.model import CardRequest, Job, NodeState, Queue, QueueName, Taint, TaintEffect, Toleration
from hbox_common.model.explanation import Fact
from hbox_common.reasons import CODES
from hbox_common.reasons.facts import filled
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ..searching import examples

TEAM, SLOW = Taint("team", "a", TaintEffect.NO_SCHEDULE), Taint("slow", "", TaintEffect.PREFER_NO_SCHEDULE)
OTHER = Taint("other", "b", TaintEffect.NO_EXECUTE)
TOLERATED = Toleration(TEAM.key, value=TEAM.value)


@st.composite
def nodes(draw: st.DrawFn) -> list[NodeState]:
    return [
        replace(
            node(
                f"n{number}",
                cards=draw(st.sampled_from((0, 2, 4, 8))),
                model=draw(st.sampled_from(("A100", "H100"))),
                card_mib=draw(st.sampled_from((16_000, 80_000))),
                cpu=draw(st.sampled_from((4, 64))),
                memory_mib=draw(st.sampled_from((8_192, 262_144))),
                shares=draw(st.sampled_from((1, 4))),
                ready=draw(st.sampled_from((True, True, True, False))),
                labels={"zone": draw(st.sampled_from("ab")), "disk": draw(st.sampled_from("xy"))},
            ),
            taints=draw(st.sampled_from(((), (), (TEAM,), (SLOW,), (TEAM, SLOW, OTHER)))),
        )
        for number in range(draw(st.integers(1, 6)))
    ]


@st.composite
def jobs(draw: st.DrawFn, name: str) -> Job:
    """A gang of one or two shapes."""
    shapes = []
    for shape in range(draw(st.sampled_from((1, 1, 2)))):
        models = draw(st.sampled_from(((), ("A100",), ("H100",), ("H1OO",))))
        cards = draw(st.sampled_from((0, 1, 2, 4, 9)))
        memory = draw(st.sampled_from((0, 0, 8_000, 40_000)))
        whole, part = CardRequest(cards, models=models), CardRequest(cards, cores=0, memory_mib=memory, models=models)
        one = job(
            f"{name}-{shape}",
            pods=draw(st.integers(1, 4)),
            cpu_milli=draw(st.sampled_from((1000, 8000))),
            memory_mib=draw(st.sampled_from((1024, 16_384))),
            cards=(part if memory else whole) if cards else 0,
            node_selector=draw(st.sampled_from(({}, {}, {"zone": "a"}, {"zone": "a", "disk": "x"}, {"zone": "c"}))),
        )
        tolerations = draw(st.sampled_from(((), (TOLERATED,))))
        shapes += [replace(task, name=f"shape-{shape}", tolerations=tolerations) for task in one.tasks]
    return replace(job(name), tasks=tuple(shapes), min_member=sum(len(task.pods) for task in shapes))


@examples(150)
@given(nodes(), st.lists(st.tuples(st.sampled_from((0, 1, 2)), st.sampled_from((500, 3000))), max_size=6), jobs("waits"))
def test_sentence_of_a_pending_job_is_true(states: list[NodeState], others: list[tuple[int, int]], waits: Job) -> None:
    simulation = Simulation(policy_of(PolicyName.LEAST_WASTE), queues=[Queue(QueueName("default"))])
    simulation.put_nodes(states)
    simulation.submit([job(f"runs{n}", cards=cards, cpu_milli=cpu) for n, (cards, cpu) in enumerate(others)])
    simulation.run()
    simulation.submit([waits])
    simulation.run()
    found = simulation.scheduler.reports.explanation(waits.id, 0.0)
    assume(found is not None)
    assert found is not None
    facts = found.facts
    assert all(need > found.have[unit] for unit, need in found.need.items()), (found.code, facts, found.need, found.have)
    assert filled(CODES[found.code].text.en, facts) is not None, (found.code, facts)
    if found.code in TRUTH:
        assert TRUTH[found.code](states, waits, facts), (found.code, facts)


def _number(facts: Mapping[str, Fact], name: str) -> float:
    value = facts[name]
    assert isinstance(value, int | float)
    return value


def _most(states: list[NodeState], facts: Mapping[str, Fact], amount: Callable[[NodeState], float]) -> bool:
    """Whether the largest amount of all nodes, or of as many as the sentence is about, is as stated."""
    least = sum(1 for state in states if amount(state) <= _number(facts, "largest"))
    return least >= _number(facts, "among") if "among" in facts else least == len(states)


def _selector(states: list[NodeState], _: Job, facts: Mapping[str, Fact]) -> bool:
    labels = facts["labels"] if "labels" in facts else [f"{facts['key']}={facts['value']}"]
    assert isinstance(labels, list)
    wanted = dict(one.split("=") for one in labels)
    lacking = sum(1 for state in states if any(state.labels.get(key) != value for key, value in wanted.items()))
    return lacking >= _number(facts, "among") if "among" in facts else lacking == len(states)


def _model(states: list[NodeState], _: Job, facts: Mapping[str, Fact]) -> bool:
    without = sum(1 for state in states if facts["model"] not in {card.model for card in state.cards})
    return without >= _number(facts, "among") if "among" in facts else without == len(states)


def _resource(states: list[NodeState], _: Job, facts: Mapping[str, Fact]) -> bool:
    unit = {"cpu": ("cpu", 1000), "MiB of memory": ("memory", 1 << 20)}.get(str(facts["resource"]), (str(facts["resource"]), 1))
    return _most(states, facts, lambda state: state.allocatable.get(unit[0], 0) / unit[1])


def _taints(_: list[NodeState], waits: Job, facts: Mapping[str, Fact]) -> bool:
    tolerated = all(task.tolerations for task in waits.tasks)
    return "slow" not in str(facts["detail"]) and not (tolerated and "team" in str(facts["detail"]))


TRUTH: Mapping[str, Callable[[list[NodeState], Job, Mapping[str, Fact]], bool]] = {
    "NodeSelectorMismatch": _selector,
    "CardTypeMismatch": _model,
    "NodeInsufficientDevice": lambda states, _, facts: _most(states, facts, lambda state: len(state.cards)),
    "ResourceTooLarge": _resource,
    "UntoleratedTaint": _taints,
    "CardsInUse": lambda _, __, facts: _number(facts, "total") > _number(facts, "free"),
    "CardsSpread": lambda _, __, facts: _number(facts, "largest") < _number(facts, "cards") <= _number(facts, "free"),
    "GangPartlyFits": lambda _, __, facts: _number(facts, "fit") < _number(facts, "pods"),
}
