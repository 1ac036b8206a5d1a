"""An upgrade from a ledger whose rows and pods have indices of cards, and a plugin that renumbers the cards right behind it: no card is booked twice."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import create_engine

from hbox_common.events import PlansProposed
from hbox_common.model import (
    CardId,
    CardSlice,
    ClaimId,
    Index,
    NodeName,
    NodeState,
    PlanId,
    PodFact,
    PodUid,
    SchedulerId,
)
from hbox_ledger.adapters.audit import prove
from hbox_ledger.core.claimids import claim_id
from hbox_topology.core.facts import NodeFacts
from hbox_topology.core.inventory import Inventory

from ...jobterms import terms
from .conftest import Kit, Running
from .older_schemas import create
from .test_ledger_migration import fill

KEY = b"k" * 32
N0 = NodeName("n0")
#: Pod by the index of its card; card c is idle.
HELD = {"pod0": 0, "pod1": 1, "pod3": 3}


def slices(index: int) -> tuple[CardSlice, ...]:
    return (CardSlice(index, 100, 40_960),)


def older_claim(pod: str) -> ClaimId:
    return claim_id(KEY, PlanId(f"plan-{pod}"), PodUid(pod), N0, slices(HELD[pod]))


@pytest.fixture
def old(empty_database: Callable[[], str]) -> str:
    """A database of the schema before `card_names`, with a pod on each of the cards a, b and d."""
    url = empty_database()
    engine = create_engine(url)
    with engine.connect() as connection:
        create(connection, "0011")
        fill(connection, {older_claim(pod): (pod, index) for pod, index in HELD.items()}, key=KEY)
        connection.commit()
    engine.dispose()
    return url


def written(pod: str) -> PodFact:
    """The pod as the older binder bound it."""
    found = Kit.fact(pod, N0, claim=older_claim(pod), slices=slices(HELD[pod]))
    text = f"GPU-{'abcd'[HELD[pod]]},NVIDIA,40960,100:;"
    return replace(found, requests={"nvidia.com/gpu": 1}, allocated={"NVIDIA": text})


def registered(cards: str) -> NodeFacts:
    """The Node object: HAMi's plugin numbers these cards from 0 up."""
    text = "".join(f"GPU-{card},10,40960,100,NVIDIA-A100,0,true:" for card in cards)
    amounts = {"cpu": "64", "pods": "100", "nvidia.com/gpu": str(10 * len(cards))}
    notes = {"hami.io/node-nvidia-register": text}
    return NodeFacts("n0", "u0", annotations=notes, conditions={"Ready": "True"}, allocatable=amounts)


def observed(*states: str, lasting: bool = True) -> list[NodeState]:
    """The states that topology-collector publishes of these registrations; `lasting`: indices stay, as they do since cards have ids."""
    inventory, found = Inventory(), []
    for cards in states:
        inventory = inventory if lasting else Inventory()
        inventory.observe(registered(cards), now=1.0)
        found += list(inventory.states())
    return found


async def proposed(running: Running, kit: Kit, card: str) -> bool:
    """Whether the ledger takes a plan for a new pod on this card."""
    plan = kit.plan(f"on-{card}", (f"new-{card}", "n0", (CardSlice(-1, 100, 40_960, card=CardId(f"gpu:GPU-{card}")),)))
    running.ledger.state.records.only([terms(plan)])
    await running.ledger.propose(
        [PlansProposed(scheduler=SchedulerId("s"), epoch=running.ledger.state.epoch, seen=Index(0), plans=(plan,))]
    )
    return bool(f"new-{card}" in running.states())


BEFORE, BEHIND = observed("abcd", "bcd")
[RAW] = observed("bcd", lasting=False)


@pytest.mark.parametrize(
    "states",
    [
        pytest.param([BEFORE, BEHIND], id="the ledger knows the node from before"),
        pytest.param([BEHIND], id="topology-collector alone knows it"),
        pytest.param([BEFORE, RAW], id="an older topology-collector renumbers them"),
        pytest.param([RAW], id="an older topology-collector renumbers them while no ledger runs"),
    ],
)
async def test_no_card_is_booked_twice_if_cards_are_renumbered_right_after_the_upgrade(
    kit: Kit, old: str, states: list[NodeState]
) -> None:
    async with kit.started(old, nodes=()) as running:
        for state in states:
            running.ledger.node(state)
        await running.open(*map(written, HELD))
        held = {record.claim.pod: record.claim.slices[0].card for record in running.ledger.state.live.values()}
        assert {pod: card for pod, card in held.items() if pod != "pod0"} == {"pod1": "gpu:GPU-b", "pod3": "gpu:GPU-d"}
        assert [await proposed(running, kit, card) for card in "bdc"] == [False, False, True]
    async with kit.started(old, nodes=states[-1:]) as running:
        await running.open(*map(written, HELD))
        assert running.states().keys() == {*HELD, "new-c"}
        cards = {record.claim.pod: record.claim.slices[0].card for record in running.ledger.state.live.values()}
        assert (cards["pod1"], cards["pod3"], cards["new-c"]) == ("gpu:GPU-b", "gpu:GPU-d", "gpu:GPU-c")
    assert prove(old).faults == []
