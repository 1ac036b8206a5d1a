"""What a change of queues would do: to whom, how much, in which order; and requests that are wrong.

vision    deserved 6, limit 12      12 used
  train   deserved 3                 9 used: t0, t1 of priority 1; t8 may not be preempted
  serve   deserved 3, guarantee 1    3 used
speech    deserved 5                 4 used
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError

from hbox_common.model import Claim, ClaimId, JobId, NodeName, PlanId, PodUid, Queue, QueueName, QueueTree, Resources
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import add
from hbox_common.model.weightshares import shares_by_weight
from hbox_ledger.dryrun import DryRunAnswer, DryRunRequest, judge


def claim(name: str, of: str, *, priority: int = 0, at: float = 0.0, preemptable: bool = True) -> Claim:
    return Claim(
        ClaimId(name), PodUid(name), "ml", name, JobId(name), PlanId(""), QueueName(of), priority, NodeName("n0"), {GPU: 1, "pods": 1},
        preemptable=preemptable, created_at=at,
    )  # fmt: skip


CLAIMS = tuple(
    [claim(f"t{i}", "train", priority=int(i < 2), at=float(i), preemptable=i != 8) for i in range(9)]
    + [claim(f"s{i}", "serve", at=50.0 + i) for i in range(3)]
    + [claim(f"a{i}", "speech") for i in range(4)]
)


def used_by(claims: Iterable[Claim]) -> dict[QueueName, Resources]:
    used: dict[QueueName, Resources] = {}
    for one in claims:
        add(used.setdefault(one.queue, {}), one.amounts)
    return used


@pytest.fixture
def tree() -> QueueTree:
    tree = QueueTree(used_by(CLAIMS))
    for name, parent, amounts in (
        ("vision", "", {"deserved": 6, "capability": 12}),
        ("train", "vision", {"deserved": 3}),
        ("serve", "vision", {"deserved": 3, "guarantee": 1}),
        ("speech", "", {"deserved": 5}),
    ):
        cards: Any = {amount: {GPU: units} for amount, units in amounts.items()}
        tree[QueueName(name)] = Queue(QueueName(name), parent=parent, **cards)
    return tree


def asked(tree: QueueTree, *queues: dict[str, Any], **more: Any) -> DryRunAnswer:
    return judge(DryRunRequest.model_validate({"queues": queues, **more}), tree, CLAIMS, epoch=7, index=9)


def test_it_says_who_leaves_for_whom_and_in_which_order(tree: QueueTree) -> None:
    answer = asked(tree, {"name": "speech", "deserved": {GPU: 8}})
    [gives] = answer.give_back
    assert (gives.queue, gives.to, gives.units, gives.takable, gives.pods) == ("vision", "speech", 3, 3, 3)
    assert [(one.pod, one.queue, one.priority, one.units, one.node) for one in gives.leavers] == [
        ("s2", "serve", 0, 1, "n0"), ("s1", "serve", 0, 1, "n0"), ("t7", "train", 0, 1, "n0"),
    ]  # fmt: skip
    assert (answer.epoch, answer.index) == (7, 9)


def test_several_queues_change_together(tree: QueueTree) -> None:
    """What speech gets more vision has less: alone each would be said to be wrong, or to take nothing."""
    answer = asked(
        tree,
        {"name": "vision", "deserved": {GPU: "4"}},
        {"name": "train", "deserved": {GPU: "2"}},
        {"name": "serve", "deserved": {GPU: "2"}},
        {"name": "speech", "deserved": {GPU: "7"}},
    )
    assert answer.faults == ()
    assert {(one.queue, one.to, one.units) for one in answer.give_back} == {
        ("vision", "", 2), ("train", "", 1), ("serve", "", 1), ("vision", "speech", 2),
    }  # fmt: skip


def test_every_queue_beyond_its_share_is_listed_and_by_how_much_more(tree: QueueTree) -> None:
    answer = asked(tree, {"name": "serve", "deserved": {GPU: 2}})
    assert [(one.queue, one.used, one.limit, one.more) for one in answer.over_deserved] == [
        ("serve", 3, 2, 1), ("train", 9, 3, 0), ("vision", 12, 6, 0),
    ]  # fmt: skip


def test_a_lower_wall_is_named_with_what_is_used(tree: QueueTree) -> None:
    [wall] = asked(tree, {"name": "vision", "capability": {GPU: 8}}).over_capability
    assert (wall.queue, wall.used, wall.limit, wall.more) == ("vision", 12, 8, 4)
    assert asked(tree, {"name": "vision", "capability": {GPU: None}}).over_capability == ()


def test_who_may_not_be_preempted_is_counted_as_not_to_be_had(tree: QueueTree) -> None:
    [gives] = asked(tree, {"name": "train", "deserved": {GPU: 0}, "reclaimable": False}).give_back
    assert (gives.units, gives.takable, gives.leavers) == (3, 0, ())


def test_a_new_queue_and_one_that_moves_are_judged(tree: QueueTree) -> None:
    new = asked(tree, {"name": "lab", "guarantee": {GPU: 2}, "deserved": {GPU: 2}})
    assert [(one.queue, one.to, one.units) for one in new.give_back] == [("vision", "lab", 2)]
    moved = asked(tree, {"name": "serve", "parent": "speech"})
    assert [(one.queue, one.units) for one in moved.give_back] == [("speech", 2)]
    [fault, *_] = asked(tree, {"name": "vision", "parent": "nowhere"}).faults
    assert fault.fault.startswith("above it, queue nowhere does not exist")


def test_fewer_pods_are_named_where_fewer_are_asked_for(tree: QueueTree) -> None:
    [gives] = asked(tree, {"name": "speech", "deserved": {GPU: 8}}, pods=1).give_back
    assert (gives.pods, [one.pod for one in gives.leavers]) == (3, ["s2"])


def test_a_queue_that_deserves_nothing_in_particular_gives_all_that_it_has(tree: QueueTree) -> None:
    """As the ledger judges: what has no line in a resource is never within it."""
    claims = (*CLAIMS, *(claim(f"l{i}", "loose") for i in range(2)))
    with_loose = QueueTree(used_by(claims))
    with_loose.update({**tree, QueueName("loose"): Queue(QueueName("loose"))})
    request = DryRunRequest.model_validate({"queues": [{"name": "speech", "deserved": {GPU: 8}}]})
    answer = judge(request, with_loose, claims, epoch=7, index=9)
    assert [(one.queue, one.to, one.units, one.pods) for one in answer.give_back] == [
        ("loose", "speech", 2, 2), ("vision", "speech", 1, 1),
    ]  # fmt: skip


def test_of_models_only_those_leave_of_which_the_queue_has_too_many() -> None:
    a100, h100 = f"{GPU}.A100", f"{GPU}.H100"
    held = [claim(f"{model}-{i}", "giver") for model in ("A100", "H100") for i in range(2)]
    claims = [replace(one, models={a100 if one.pod.startswith("A100") else h100: 1}) for one in held]
    tree = QueueTree(used_by(claims))
    tree[QueueName("giver")] = Queue(QueueName("giver"), deserved={GPU: 3, a100: 1, h100: 2})
    tree[QueueName("taker")] = Queue(QueueName("taker"), deserved={GPU: 0})
    request = DryRunRequest.model_validate({"queues": [{"name": "taker", "deserved": {GPU: 1}}]})
    [gives] = judge(request, tree, claims, epoch=7, index=9).give_back
    assert (gives.queue, gives.units, [one.pod for one in gives.leavers]) == ("giver", 1, ["A100-0"])


def test_the_tree_stays_as_it_is(tree: QueueTree) -> None:
    before = dict(tree)
    asked(tree, {"name": "speech", "deserved": {GPU: 8}, "parent": "vision"}, {"name": "lab"})
    assert dict(tree) == before
    tree.validate()


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({}, "Field required"),
        ({"queues": []}, "at least 1 item"),
        ({"queues": [{"name": ""}]}, "at least 1 character"),
        ({"queues": [{"name": "a", "desrved": {}}]}, "Extra inputs are not permitted"),
        ({"queues": [{"name": "a", "deserved": {GPU: "lots"}}]}, f"{GPU}: 'lots' is not a quantity"),
        ({"queues": [{"name": "a", "guarantee": {GPU: -1}}]}, f"{GPU}: -1 is negative"),
        ({"queues": [{"name": "a", "weight": 0}]}, "greater than or equal to 1"),
        ({"queues": [{"name": "a", "pools": ["x,y"]}]}, "'x,y' is no name"),
        ({"queues": [{"name": "a"}, {"name": "a"}]}, "queue a is named twice"),
        ({"queues": [{"name": "a"}], "pods": 501}, "less than or equal to 500"),
        ({"queues": [{"name": f"q{i}"} for i in range(101)]}, "at most 100 items"),
    ],
)
def test_a_request_that_is_wrong_is_refused_with_what_is_wrong(request_: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DryRunRequest.model_validate(request_)


def test_where_weights_count_a_larger_weight_asks_back_what_is_its_share_then() -> None:
    """a and b of one weight ask for all 12 cards: 6 each. With a third of the weight b has 3, and gives 3 of its 6 to a."""
    claims = [claim(f"a{i}", "a") for i in range(6)] + [claim(f"b{i}", "b", at=float(i)) for i in range(6)]
    tree = QueueTree(used_by(claims))
    for name in ("a", "b"):
        tree[QueueName(name)] = Queue(QueueName(name), weight=1)
    waiting = {QueueName("a"): {GPU: 6}, QueueName("b"): {GPU: 6}}
    asked = DryRunRequest.model_validate({"queues": [{"name": "a", "weight": 3}]})
    found = judge(asked, tree, claims, shares=partial(shares_by_weight, total={GPU: 12}, waiting=waiting))
    [excess, gives] = sorted(found.give_back, key=lambda one: one.to)
    assert (excess.queue, excess.units, gives.queue, gives.to, gives.units) == ("b", 3, "b", "a", 3)
    assert [pod.pod for pod in gives.leavers] == ["b5", "b4", "b3"]
    tree.divide({})
    assert not judge(asked, tree, claims).give_back, "without the setting weights take from nobody"
