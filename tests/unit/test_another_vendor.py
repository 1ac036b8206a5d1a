"""A vendor that HBox has never heard of: one class, registered here, and its cards go the whole way from a node's labels to the ledger's books."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hbox_cli.commands.quota_changes import limits_of
from hbox_common.errors import Bug, InvalidRequest
from hbox_common.events import Plan, PlansProposed
from hbox_common.kube import ResourceQuota, ResourceQuotaSpec
from hbox_common.kube.objects import Metadata
from hbox_common.model import (
    POOLED,
    VENDORS,
    Card,
    CardRequest,
    CardSlice,
    Epoch,
    Generation,
    Index,
    Job,
    NodeState,
    PodUid,
    Queue,
    QueueName,
    SchedulerId,
    Vendor,
    cards_by_model,
    cards_in,
    is_model,
    model_of,
    model_resource,
)
from hbox_common.model.devices import NodeReport
from hbox_common.model.devices.cardvendor import CardVendor
from hbox_common.model.lending import usable
from hbox_common.model.rights import CARDS_BY_NAME, KeyedCards
from hbox_common.model.rights import judged as judged_by
from hbox_jobs.core.requests import Container
from hbox_jobs.core.spec import PodSpec, Shape, shape_of
from hbox_ledger.adapters.quotas import card_quota
from hbox_ledger.core import arbitrate
from hbox_ledger.core.accounts.loans import on_loan
from hbox_ledger.core.accounts.usage import cards_of as cards_used
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.quotas.models import within_limits
from hbox_scheduler.core.simulate import Simulation, job
from hbox_scheduler.core.simulate.simulation import node as simulated_node
from hbox_topology.core.facts import NodeFacts
from hbox_topology.core.node import read_node

from ..jobterms import terms
from ..policies import one_by_one

BOARD, GPU = "acme.example/board", "nvidia.com/gpu"
B7 = f"{BOARD}.B7-Turbo"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Acme(CardVendor):
    """Boards are taken whole; a node's label says which they are, and how much memory they have."""

    name: str = "acme"
    kind: str = "Board"
    cards: str = BOARD

    def register(self, node: NodeReport) -> tuple[Card, ...]:
        model, _, gib = node.labels.get("acme.example/boards", "").partition("/")
        if model and not gib.isdecimal():
            raise InvalidRequest(f"label acme.example/boards: {gib!r} is no number of GiB")
        return tuple(Card(i, f"{node.name}/board{i}", model, 1024 * int(gib or 0)) for i in range(node.amounts.get(BOARD, 0)))


@pytest.fixture(autouse=True)
def acme() -> Iterator[Vendor]:
    before = tuple(VENDORS)
    vendor = Acme()
    VENDORS.adopt((*before, vendor))
    yield vendor
    VENDORS.adopt(before)


def node(name: str, boards: str = "B7 Turbo/64", **allocatable: str) -> NodeState:
    facts = NodeFacts(
        name,
        f"uid-{name}",
        labels={"acme.example/boards": boards},
        conditions={"Ready": "True"},
        allocatable={
            "cpu": "64",
            "memory": "256Gi",
            "pods": "110",
            **{key.replace("_", "/"): n for key, n in allocatable.items()},
        },
    )
    return read_node(facts, Generation(1)).state


def nodes() -> list[NodeState]:
    return [node("green", "", **{"nvidia.com_gpu": "4"}), node("red", **{"acme.example_board": "4"})]


def asks(*containers: Mapping[str, str]) -> Shape:
    return shape_of("s", PodSpec(tuple(Container(f"c{i}", limits=limits) for i, limits in enumerate(containers))))


def wants(name: str, boards: int, *, pods: int = 1, queue: str = "default") -> Job:
    """As job-controller reads it."""
    shape = asks({"cpu": "1", BOARD: str(boards)})
    made = job(name, pods=pods, queue=queue)
    return replace(made, tasks=tuple(replace(task, requests=shape.requests, cards=shape.cards) for task in made.tasks))


@pytest.fixture(params=["batches", "one by one"])
def simulation(request: Any) -> Callable[..., Simulation]:
    def made(*queues: Queue) -> Simulation:
        world = Simulation(
            policy_of(PolicyName.BINPACK),
            queues=queues or (Queue(QueueName("default")),),
            conf=default_conf() if request.param == "batches" else one_by_one(),
        )
        world.put_nodes(nodes())
        return world

    return made


def slices(world: Simulation) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {claim.pod: (claim.node, tuple(s.index for s in claim.slices)) for claim in world.claims.values()}


def test_its_nodes_are_read() -> None:
    red = node("red", **{"acme.example_board": "4"})
    assert [(card.uuid, card.model, card.memory_mib, card.shares) for card in red.cards] == [
        (f"red/board{i}", "B7 Turbo", 65_536, 1) for i in range(4)
    ]
    assert red.allocatable[BOARD] == 4
    broken = node("red", "B7/much", **{"acme.example_board": "4"})
    assert (broken.cards, BOARD in broken.allocatable) == ((), False), "boards that nobody can tell apart are not given away"


def test_its_pods_are_read() -> None:
    shape = asks({BOARD: "2", "cpu": "1"}, {"cpu": "1"})
    assert (shape.cards, shape.requests[BOARD], shape.problem) == (CardRequest(2, containers=2), 2, "")
    assert asks({BOARD: "0"}).cards is None
    assert asks({BOARD: "2000"}).problem.startswith(f"container c0: {BOARD} is 2000")


def test_a_pod_may_have_cards_of_several_vendors() -> None:
    shape = asks({BOARD: "1", GPU: "1"})
    assert shape.cards is not None
    assert shape.cards.devices is not None
    assert ([ask.kind for ask in shape.cards.devices.asks], shape.problem) == (["NVIDIA", "Board"], "")


def test_a_node_may_have_cards_of_several_vendors() -> None:
    facts = NodeFacts("both", "uid", conditions={"Ready": "True"}, allocatable={"cpu": "8", GPU: "2", BOARD: "4"})
    reading = read_node(facts, Generation(1))
    assert [(card.index, card.kind) for card in reading.state.cards] == [
        *((i, "NVIDIA") for i in range(2)),
        *((i, "Board") for i in range(16, 20)),
    ]
    assert (reading.state.allocatable[GPU], reading.state.allocatable[BOARD], reading.warnings) == (2, 4, ())


def test_its_pods_run_on_its_boards_alone(simulation: Callable[..., Simulation]) -> None:
    world = simulation()
    world.submit([wants("one", 1), wants("two", 2)])
    world.run()
    placed = slices(world)
    assert {where for where, _ in placed.values()} == {"red"}
    taken = [index for _, boards in placed.values() for index in boards]
    assert (len(taken), len(set(taken))) == (3, 3), "each board is one pod's"
    assert all(claim.models == {B7: len(claim.slices)} for claim in world.claims.values())


def test_who_finds_no_board_is_told_of_boards(simulation: Callable[..., Simulation]) -> None:
    world = simulation()
    world.submit([wants("all", 4)])
    world.run()
    late = wants("late", 1)
    world.submit([late])
    world.run()
    assert world.verdicts[late.id].startswith("0/2 nodes are available: 1 CardsInUse, 1 NodeInsufficientDevice")
    world.finish([PodUid("all-0")])
    world.run()
    assert slices(world)["late-0"] == ("red", (0,))


def test_a_gang_of_boards_starts_whole_or_not_at_all(simulation: Callable[..., Simulation]) -> None:
    world = simulation()
    world.submit([wants("too-many", 2, pods=3)])
    world.run()
    assert not world.claims
    world.submit([wants("fits", 2, pods=2)])
    world.run()
    assert sorted(slices(world).values()) == [("red", (0, 1)), ("red", (2, 3))]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (BOARD, f"queue default may use 3 (of )?{BOARD}.*, 2 .*are in use and 2 .*more are asked for"),
        (B7, "queue default has 1 left of its 3 cards of B7-Turbo, and a pod asks for 2: 1 node"),
    ],
)
def test_queues_are_limited_in_boards_and_in_models_of_them(
    simulation: Callable[..., Simulation], limit: str, said: str
) -> None:
    world = simulation(Queue(QueueName("default"), capability={limit: 3}))
    first, second = wants("first", 2), wants("second", 2)
    world.submit([first])
    world.run()
    world.submit([second])
    world.run()
    assert set(slices(world)) == {"first-0"}
    assert re.search(said, world.verdicts[second.id])


def test_models_of_two_vendors_do_not_mix() -> None:
    red = node("red", **{"acme.example_board": "2"})
    counted = cards_by_model(red, (CardSlice(0, 100, 65_536), CardSlice(1, 100, 65_536)))
    assert (counted, is_model(B7), model_of(B7)) == ({B7: 2}, True, "B7-Turbo")
    assert cards_in({GPU: 3, f"{GPU}.T4": 2, B7: 4}) == 7


def test_cards_of_one_name_by_two_makers_are_limited_each_by_its_own_resource(
    simulation: Callable[..., Simulation],
) -> None:
    """Whichever maker's node is known first."""
    one_name = model_resource(GPU, "B7-Turbo")
    world = simulation(Queue(QueueName("default"), capability={one_name: 1, B7: 2}))
    world.put_nodes([simulated_node("green", cards=4, model="B7 Turbo")])
    green, red = job("green", cards=1), wants("red", 2)
    second, third = job("second", cards=1), wants("third", 1)
    world.submit([green, red, second, third])
    world.run()
    assert {name: where for name, (where, _) in slices(world).items()} == {"green-0": "green", "red-0": "red"}
    assert {second.id, third.id} <= world.verdicts.keys()


def test_models_of_one_vendor_do_not_stand_for_cards_of_another() -> None:
    named = {GPU, BOARD, B7}
    assert judged_by({GPU: 1, BOARD: 3, B7: 3}, named, CARDS_BY_NAME) == [GPU, B7]
    by_column = KeyedCards({0: frozenset({2}), 1: frozenset({3})})
    assert judged_by({0: 1, 1: 3, 3: 3}, {0, 1, 2, 3}, by_column) == [0, 3]


def test_a_node_lends_the_cards_that_it_has() -> None:
    red = node("red", **{"acme.example_board": "4"})
    assert usable(red, None, [GPU, BOARD, B7, "cpu"]) == (POOLED, {GPU: 0, BOARD: 4, B7: 4, "cpu": 64_000})


@pytest.fixture
def ledger() -> LedgerState:
    state = LedgerState(Epoch(7), frozen=False)
    state.nodes.update({one.name: one for one in nodes()})
    return state


def judged(ledger: LedgerState, plan: Plan) -> str:
    """The ledger's answer: a reason, or nothing where it commits."""
    step = ledger.step(1000.0)
    ledger.records.only([terms(plan)])
    arbitrate.propose(ledger, step, PlansProposed(scheduler=SchedulerId("s"), epoch=Epoch(7), seen=Index(0), plans=(plan,)), {})
    ledger.validate()
    [answer] = step.answers[SchedulerId("s")].values()
    return answer.reason.value if answer.reason is not None else ""


def planned(name: str, boards: int) -> Plan:
    """The scheduler's own plan, on empty nodes."""
    world = Simulation(policy_of(PolicyName.BINPACK))
    world.put_nodes(nodes())
    world.submit([wants(name, boards)])
    [plan] = world.run()
    return plan


def test_the_ledger_keeps_the_books_of_boards(ledger: LedgerState) -> None:
    assert judged(ledger, planned("one", 3)) == ""
    assert ledger.used[QueueName("default")][BOARD] == 3
    assert on_loan(ledger.used[QueueName("default")], {}) == {BOARD: 3}
    [record] = ledger.live.values()
    assert cards_used(record.claim, ledger.nodes[record.claim.node]) == {"B7 Turbo": 3000}
    assert judged(ledger, planned("two", 2)) == "NodeResourcesInsufficient"
    plan = planned("other", 1)
    [placement] = plan.placements
    assert judged(ledger, plan.model_copy(update={"placements": (replace(placement, slices=()),)})) == "PlanMalformed"


def test_quotas_of_namespaces_limit_boards(ledger: LedgerState) -> None:
    hard: dict[str, str | float] = {f"limits.{BOARD}": "2"}
    quota = card_quota(ResourceQuota(Metadata("boards", "uid", "default"), ResourceQuotaSpec(hard=hard)))
    assert quota is not None
    assert (quota.limits, quota.fault) == ({BOARD: 2}, "")
    ledger.limit([quota])
    assert judged(ledger, planned("one", 2)) == ""
    assert judged(ledger, planned("two", 1)) == "ResourceQuotaNotFit"


def test_limits_are_set_of_what_its_boards_have(acme: Vendor) -> None:
    assert limits_of(acme, {"gpu": "4", "gpumem": None}) == {BOARD: 4}
    with pytest.raises(InvalidRequest, match="cards of acme are taken whole"):
        limits_of(acme, {"gpumem": "1000"})


def test_two_vendors_with_one_resource_are_refused(acme: Vendor) -> None:
    with pytest.raises(Bug, match="resource in common"):
        VENDORS.adopt((*VENDORS, Acme(name="acme-too", kind="Board2")))
    assert acme in tuple(VENDORS)


def test_limits_of_another_vendors_models_hold_nobody_back() -> None:
    task = Tasks(Columns()).of(wants("some", 2).tasks[0])
    assert within_limits(task, {f"{GPU}.A100": 2, f"{GPU}.T4": 0, B7: 8}) == (task, 4)
