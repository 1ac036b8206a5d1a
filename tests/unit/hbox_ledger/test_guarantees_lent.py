"""What others are guaranteed is not given to those who give nothing back (S4): two nodes with two cards each; kept is guaranteed two of the four.

open     deserves two; of its classes, `firm` may be taken by nobody
stern    gives nothing back
"""

from dataclasses import replace

import pytest

from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.model import NodeName, PodPhase, PodUid, Queue, QueueName
from hbox_common.model.devices.nvidia import GPU

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


def wants(world: World, pod: str, queue: str, place: int) -> Plan:
    where, card = PLACES[place]
    return world.plan(f"plan-{pod}", (pod, where, [world.card(card)]), queue=queue)


def refused(world: World, plan: Plan) -> str:
    [answer] = world.propose(plan)
    assert (answer.committed, answer.reason) == (False, "QueueGuaranteedToOthers")
    world.state.validate()
    return answer.message


def test_the_third_card_that_could_not_be_taken_back_is_refused_and_said_why(tree: World) -> None:
    tree.commits(wants(tree, "p0", "stern", 0), wants(tree, "p1", "stern", 1))
    assert refused(tree, wants(tree, "p2", "stern", 2)) == SAID.format("stern", "stern")
    tree.commits(wants(tree, "p3", "open", 2))  # who may be preempted gives it back
    tree.commits(wants(tree, "p4", "kept", 3))  # and whose it is has it


def test_each_plan_of_a_message_is_judged_beside_those_before_it(tree: World) -> None:
    three = [wants(tree, f"p{i}", "stern", i) for i in range(3)]
    assert [answer.committed for answer in tree.propose(*three)] == [True, True, False]


def test_what_ended_is_room_again(tree: World) -> None:
    tree.commits(wants(tree, "p0", "stern", 0), wants(tree, "p1", "stern", 1))
    tree.see(tree.fact("p0", "a", PodPhase.SUCCEEDED))
    tree.commits(wants(tree, "p2", "stern", 2))


def test_a_node_that_breaks_takes_its_cards_out_of_what_could_be_taken_back(tree: World) -> None:
    tree.commits(wants(tree, "p0", "stern", 0))
    b = tree.state.nodes[NodeName("b")]
    tree.state.know(b.name, replace(b, ready=False))
    assert refused(tree, wants(tree, "p1", "stern", 1)).startswith("queue stern: 2 of nvidia.com/gpu are guaranteed")
    tree.state.know(b.name, b)
    tree.commits(wants(tree, "p2", "stern", 1))


def takes(world: World, pod: str, place: int, victim: str) -> Plan:
    made = wants(world, pod, "other", place)
    return made.model_copy(update={"victims": (Victim(claim=world.claim(victim).id, pod_uid=PodUid(victim)),)})


def test_nobody_is_evicted_for_one_who_could_not_be_let_in_then(tree: World) -> None:
    """Four that may be preempted hold all. The third that nobody could take back is refused before anybody leaves for it, also while the first two only have
    promises."""
    for number, (where, _) in enumerate(PLACES):
        tree.commits(wants(tree, f"p{number}", "open", number))
        tree.outcome(f"p{number}", BindOutcome.BOUND, at=where)
    tree.state.queues[QueueName("open")] = Queue(QueueName("open"), deserved={})
    tree.state.queues[QueueName("other")] = Queue(QueueName("other"), deserved={GPU: 4}, reclaimable=False)
    tree.commits(takes(tree, "f0", 0, "p0"))
    tree.commits(takes(tree, "f1", 1, "p1"))
    assert refused(tree, takes(tree, "f2", 2, "p2")).startswith("queue other: 2 of nvidia.com/gpu are guaranteed")
    assert not tree.last.evictions


# Classes that nobody takes from.

FIRM = Queue(QueueName("open"), deserved={GPU: 2}, non_preemptible_classes=("firm",))


def of_class(world: World, plan: Plan, name: str, *, offered: bool = False) -> Plan:
    """The plan, and what job-controller says of its job."""
    world.classes[plan.job] = name
    return plan.model_copy(update={"preemptable": offered})


@pytest.mark.parametrize(
    ("listed", "named", "offered", "protected"),
    [
        (("firm",), "firm", False, True),
        (("*",), "", False, True),
        (("firm",), "soft", False, False),
        (("firm",), "", False, False),
        ((), "firm", False, False),
        (("firm",), "firm", True, False),
    ],
)
def test_nobody_takes_from_a_class_that_the_queue_lists_unless_its_tenant_offers(
    tree: World, listed: tuple[str, ...], named: str, offered: bool, protected: bool
) -> None:
    tree.state.queues[QueueName("open")] = replace(FIRM, non_preemptible_classes=listed)
    tree.commits(of_class(tree, wants(tree, "p0", "open", 0), named, offered=offered))
    assert tree.claim("p0").preemptable is not protected


def test_only_within_what_the_queue_deserves_and_the_rest_is_borrowed(tree: World) -> None:
    tree.state.queues[QueueName("kept")] = Queue(QueueName("kept"))
    tree.state.queues[QueueName("open")] = FIRM
    for number in range(4):
        tree.commits(of_class(tree, wants(tree, f"p{number}", "open", number), "firm"))
    assert [tree.claim(f"p{number}").preemptable for number in range(4)] == [False, False, True, True]
    tree.see(tree.fact("p0", "a", PodPhase.SUCCEEDED))
    tree.commits(of_class(tree, wants(tree, "p4", "open", 0), "firm"))
    assert not tree.claim("p4").preemptable


def test_nor_where_a_queue_above_deserves_less(tree: World) -> None:
    tree.state.queues[QueueName("dept")] = Queue(QueueName("dept"), deserved={GPU: 1})
    tree.state.queues[QueueName("open")] = replace(FIRM, parent="dept")
    for number in range(2):
        tree.commits(of_class(tree, wants(tree, f"p{number}", "open", number), "firm"))
    assert [tree.claim(f"p{number}").preemptable for number in range(2)] == [False, True]


def test_what_others_are_guaranteed_is_borrowed_whatever_the_class(tree: World) -> None:
    tree.state.queues[QueueName("open")] = replace(FIRM, deserved={GPU: 4})
    for number in range(3):
        tree.commits(of_class(tree, wants(tree, f"p{number}", "open", number), "firm"))
    assert [tree.claim(f"p{number}").preemptable for number in range(3)] == [False, False, True]


def test_a_queue_that_lists_none_goes_by_the_one_above_it(tree: World) -> None:
    tree.state.queues[QueueName("dept")] = Queue(QueueName("dept"), deserved={GPU: 2}, non_preemptible_classes=("firm",))
    tree.state.queues[QueueName("open")] = Queue(QueueName("open"), deserved={GPU: 2}, parent="dept")
    tree.commits(of_class(tree, wants(tree, "p0", "open", 0), "firm"))
    assert not tree.claim("p0").preemptable


def test_a_pod_that_is_found_on_a_node_is_judged_alike(tree: World) -> None:
    tree.state.queues[QueueName("open")] = FIRM
    found = replace(
        tree.fact("p0", "a", PodPhase.RUNNING), queue=QueueName("open"), priority_class="firm", requests={GPU: 1}, cards=1
    )
    tree.see(replace(found, preemptable=False))
    tree.see(replace(found, uid=PodUid("p1"), name="p1", preemptable=True))
    assert [tree.claim(pod).preemptable for pod in ("p0", "p1")] == [False, True]
