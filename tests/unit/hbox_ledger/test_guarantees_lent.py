"""What others are guaranteed is not given to those who give nothing back (S4): two nodes with two cards each; kept is guaranteed two of the four.

open     deserves two, its jobs may be preempted unless a plan says otherwise
stern    gives nothing back
"""

from dataclasses import replace

import pytest

from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.model import NodeName, PodPhase, PodUid, Queue, QueueName
from hbox_common.model.devices import GPU

from .conftest import World

PLACES = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
SAID = (
    "queue {}: 2 of nvidia.com/gpu are guaranteed to queues that do not hold them, 2 are free or could be taken back for them; "
    "1 more, from which queue {} gives nothing back, would leave too few"
)


@pytest.fixture
def tree(world: World) -> World:
    for queue in (
        Queue(QueueName("kept"), guarantee={GPU: 2}),
        Queue(QueueName("open"), deserved={GPU: 2}),
        Queue(QueueName("other"), deserved={GPU: 2}),
        Queue(QueueName("stern"), reclaimable=False),
    ):
        world.state.queues[queue.name] = queue
    return world


def wants(world: World, pod: str, queue: str, place: int, *, non_preemptible: bool = False) -> Plan:
    where, card = PLACES[place]
    made = world.plan(f"plan-{pod}", (pod, where, [world.card(card)]), queue=queue)
    return made.model_copy(update={"preemptable": not non_preemptible})


def refused(world: World, plan: Plan) -> str:
    [answer] = world.propose(plan)
    assert (answer.committed, answer.reason) == (False, "QueueGuaranteedToOthers")
    world.state.validate()
    return answer.message


def test_the_third_card_that_could_not_be_taken_back_is_refused_and_said_why(tree: World) -> None:
    tree.commits(wants(tree, "p0", "open", 0, non_preemptible=True), wants(tree, "p1", "open", 1, non_preemptible=True))
    assert refused(tree, wants(tree, "p2", "open", 2, non_preemptible=True)) == SAID.format("open", "open")
    tree.commits(wants(tree, "p3", "open", 2))  # who may be preempted gives it back
    tree.commits(wants(tree, "p4", "kept", 3, non_preemptible=True))  # and whose it is has it


def test_so_is_that_of_a_queue_that_gives_nothing_back(tree: World) -> None:
    tree.commits(wants(tree, "p0", "stern", 0), wants(tree, "p1", "stern", 1))
    assert refused(tree, wants(tree, "p2", "stern", 2)) == SAID.format("stern", "stern")


def test_each_plan_of_a_message_is_judged_beside_those_before_it(tree: World) -> None:
    three = [wants(tree, f"p{i}", "open", i, non_preemptible=True) for i in range(3)]
    assert [answer.committed for answer in tree.propose(*three)] == [True, True, False]


def test_what_ended_is_room_again(tree: World) -> None:
    tree.commits(wants(tree, "p0", "open", 0, non_preemptible=True), wants(tree, "p1", "open", 1, non_preemptible=True))
    tree.see(tree.fact("p0", "a", PodPhase.SUCCEEDED))
    tree.commits(wants(tree, "p2", "open", 2, non_preemptible=True))


def test_a_node_that_breaks_takes_its_cards_out_of_what_could_be_taken_back(tree: World) -> None:
    tree.commits(wants(tree, "p0", "open", 0, non_preemptible=True))
    b = tree.state.nodes[NodeName("b")]
    tree.state.know(b.name, replace(b, ready=False))
    assert refused(tree, wants(tree, "p1", "open", 1, non_preemptible=True)).startswith(
        "queue open: 2 of nvidia.com/gpu are guaranteed"
    )
    tree.state.know(b.name, b)
    tree.commits(wants(tree, "p2", "open", 1, non_preemptible=True))


def takes(world: World, pod: str, place: int, victim: str) -> Plan:
    made = wants(world, pod, "other", place, non_preemptible=True)
    return made.model_copy(update={"victims": (Victim(claim=world.claim(victim).id, pod_uid=PodUid(victim)),)})


def test_nobody_is_evicted_for_one_who_could_not_be_let_in_then(tree: World) -> None:
    """Four that may be preempted hold all. The third who would stand firm is refused before anybody leaves for it, also while the first two only have
    promises."""
    for number, (where, _) in enumerate(PLACES):
        tree.commits(wants(tree, f"p{number}", "open", number))
        tree.outcome(f"p{number}", BindOutcome.BOUND, at=where)
    tree.state.queues[QueueName("open")] = Queue(QueueName("open"), deserved={})
    tree.state.queues[QueueName("other")] = Queue(QueueName("other"), deserved={GPU: 4})
    tree.commits(takes(tree, "f0", 0, "p0"))
    tree.commits(takes(tree, "f1", 1, "p1"))
    assert refused(tree, takes(tree, "f2", 2, "p2")).startswith("queue other: 2 of nvidia.com/gpu are guaranteed")
    assert not tree.last.evictions
