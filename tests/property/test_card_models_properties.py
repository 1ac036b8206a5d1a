"""Laws of what is kept for those who can use no other model, for every small cluster."""

from collections import Counter
from dataclasses import dataclass
from math import ceil, floor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import CardRequest, JobId, PodGroupTask, PodUid, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework import GroupPhase
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate import node
from hbox_scheduler.core.simulate.cycles import CycleOptions, simulate

from ..searching import examples

MODELS = {"T4": 15_360, "V100": 32_768, "A100": 81_920}
POLICY = """
actions: "allocate"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: binpack}%s]
"""


@dataclass(frozen=True)
class Wish:
    """A gang: so many pods, all of which have to start, with so many whole cards, of the model or of any."""

    pods: int
    cards: int
    model: str
    priority: int


wishes = st.builds(Wish, st.integers(1, 3), st.integers(1, 3), st.sampled_from(("", "", *MODELS)), st.integers(0, 2))
clusters = st.lists(st.tuples(st.sampled_from(sorted(MODELS)), st.integers(1, 4)), min_size=2, max_size=5)


def placed(nodes: list[tuple[str, int]], gangs: list[Wish], plugin: str) -> dict[str, str]:
    """Node by pod `<gang>-<number>`, after one session over these nodes (model, cards)."""
    columns = Columns()
    columns.resource(GPU)
    for number, (model, cards) in enumerate(nodes):
        columns.put_node(node(f"n{number}", cards=cards, cpu=100, model=model, card_mib=MODELS[model]))
    tasks, made = Tasks(columns), []
    for number, wish in enumerate(gangs):
        gang = Gang(
            JobId(f"g{number}"), "d", f"g{number}", QueueName("q"), wish.priority, wish.pods, float(number), GroupPhase.INQUEUE
        )
        asked = CardRequest(wish.cards, models=(wish.model,) if wish.model else ())
        task = tasks.of(PodGroupTask("w", {CPU: 1000, GPU: wish.cards}, (), asked))
        request = np.zeros(len(columns.allocatable), dtype=np.int64)
        for column, units in task.amount:
            request[column] = units
        gang.members = [
            Member(PodUid(f"{number}-{pod}"), "d", f"{number}-{pod}", gang, "", task, request, float(number))
            for pod in range(wish.pods)
        ]
        made.append(gang)
    conf = parse_conf(POLICY % (f", {plugin}" if plugin else ""), plugins=list(PLUGINS))
    report = simulate(columns, Cluster(made, [QueueInfo(QueueName("q"))]), conf, CycleOptions(now=10.0))
    return {binding.member.name: str(binding.node) for binding in report.bindings}


@examples(150)
@given(nodes=clusters, gangs=st.lists(wishes, min_size=1, max_size=6), percent=st.sampled_from((25, 50, 100)))
def test_what_is_kept_goes_to_nobody_who_could_use_another_model(
    nodes: list[tuple[str, int]], gangs: list[Wish], percent: int
) -> None:
    where = placed(nodes, gangs, f"{{name: card-models, arguments: {{reserve.percent: {percent}}}}}")
    present: Counter[str] = Counter()
    for model, cards in nodes:
        present[model] += cards
    asked: Counter[str] = Counter()
    free_takers: Counter[str] = Counter()
    for number, wish in enumerate(gangs):
        bound = bool(wish.model) or len(present) == 1
        if wish.model in present and len(present) > 1:
            asked[wish.model] += wish.pods * wish.cards
        for pod in range(wish.pods):
            if not bound and (row := where.get(f"{number}-{pod}")) is not None:
                free_takers[nodes[int(row[1:])][0]] += wish.cards
    for model, cards in present.items():
        kept = min(ceil(asked[model]), floor(percent / 100 * cards))
        assert free_takers[model] <= cards - kept


@examples(100)
@given(nodes=clusters, gangs=st.lists(wishes.filter(lambda wish: bool(wish.model)), min_size=1, max_size=6))
def test_who_names_a_model_is_placed_as_if_the_plugin_were_not_there(nodes: list[tuple[str, int]], gangs: list[Wish]) -> None:
    plugin = "{name: card-models, arguments: {reserve.percent: 100, link.required: true}}"
    assert placed(nodes, gangs, plugin) == placed(nodes, gangs, "")


@examples(100)
@given(nodes=clusters, cards=st.integers(1, 4))
def test_one_pod_finds_a_place_exactly_when_it_would_have_found_one_and_no_cheaper_one_was_free(
    nodes: list[tuple[str, int]], cards: int
) -> None:
    alone = [Wish(1, cards, "", 0)]
    found, before = placed(nodes, alone, "{name: card-models, arguments: {link.least: 0}}"), placed(nodes, alone, "")
    assert found.keys() == before.keys()
    if found:
        order = list(MODELS)
        fitting = [order.index(model) for model, there in nodes if there >= cards]
        assert order.index(nodes[int(found["0-0"][1:])][0]) == min(fitting)
