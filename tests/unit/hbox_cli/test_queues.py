"""What people see of queues: use and shares in a tree, bars, why a queue has what it has, and what a change would take from whom.

vision    deserved 6, limit 12      12 used
  train   deserved 3                 9 used
  serve   deserved 3, guarantee 1    3 used
speech    deserved 5                 4 used, 2 wait
"""

from dataclasses import replace
from typing import Any

import pytest

from hbox_cli.commands.share import explain
from hbox_cli.queues import bar, change_of, document, effect_lines, queue_items, scale_of, share_of, tree_rows
from hbox_cli.queues.reading import Reading
from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.model import (
    DEFAULT_QUEUE,
    Claim,
    ClaimId,
    Job,
    JobId,
    NodeName,
    PlanId,
    PodGroupTask,
    PodRef,
    PodUid,
    Queue,
    QueueName,
    QueueTree,
    Resources,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.views.queues import tree_of
from hbox_ledger.dryrun import DryRunAnswer, DryRunRequest, judge

NOW = 100.0


def queue(name: str, parent: str = "", **cards: int) -> Queue:
    amounts: Any = {amount: {GPU: units} for amount, units in cards.items()}
    return Queue(QueueName(name), parent=parent, **amounts)


def claim(name: str, of: str, *, priority: int = 0, at: float = 0.0, preemptable: bool = True) -> Claim:
    return Claim(
        ClaimId(name), PodUid(name), "ml", name, JobId(name), PlanId(""), QueueName(of), priority, NodeName("n0"), {GPU: 1, "pods": 1},
        preemptable=preemptable, created_at=at,
    )  # fmt: skip


def waiting(of: str, pods: int) -> Job:
    refs = tuple(PodRef(PodUid(f"w{i}"), f"w{i}", "1") for i in range(pods))
    return Job(JobId("w"), "ml", "w", QueueName(of), 0, 1, pods, 0, 40.0, 1, (PodGroupTask("main", {GPU: 1, "pods": 1}, refs),))


CLAIMS = tuple(
    [claim(f"t{i}", "train", priority=int(i < 2), at=float(i), preemptable=i != 8) for i in range(9)]
    + [claim(f"s{i}", "serve", at=50.0 + i) for i in range(3)]
    + [claim(f"a{i}", "speech") for i in range(4)]
)
JOBS = (waiting("speech", 2),)


@pytest.fixture
def tree() -> QueueTree:
    used: dict[str, Resources] = {}
    for one in CLAIMS:
        sums = used.setdefault(one.queue, {})
        sums[GPU] = sums.get(GPU, 0) + 1
    queues = [queue("vision", deserved=6, capability=12), queue("train", "vision", deserved=3)]
    queues += [queue("serve", "vision", deserved=3, guarantee=1), queue("speech", deserved=5)]
    return tree_of(queues, used)


def test_use_counts_all_below_and_what_is_borrowed_or_idle_is_of_the_own_share(tree: QueueTree) -> None:
    items = {item["name"]: item for item in queue_items(tree, JOBS, now=NOW)}
    assert {name: item["used"].get(GPU, 0) for name, item in items.items()} == {
        "default": 0, "vision": 12, "train": 9, "serve": 3, "speech": 4,
    }  # fmt: skip
    assert items["vision"]["borrowed"] == {GPU: 6}
    assert items["speech"]["idle"] == {GPU: 1}
    assert items["default"]["borrowed"] == {}
    speech = items["speech"]
    assert (speech["pendingJobs"], speech["pendingCards"], speech["oldestPendingSeconds"]) == (1, 2, 60.0)


def test_a_tree_is_drawn_with_children_below_their_parents_and_forgets_no_circle(tree: QueueTree) -> None:
    tree.update({QueueName(name): queue(name, parent) for name, parent in (("x", "y"), ("y", "x"))})
    drawn = [name for name, _ in tree_rows(queue_items(tree, (), now=NOW))]
    assert drawn == ["default", "speech", "vision", "├ serve", "└ train", "x", "y"]


def test_a_bar_shows_what_is_used_borrowed_and_allowed(tree: QueueTree) -> None:
    items = {item["name"]: item for item in queue_items(tree, JOBS, now=NOW)}
    scale = scale_of(items.values(), GPU)
    bars = {name: bar(item, GPU, scale=scale, width=12) for name, item in items.items()}
    assert bars == {
        "vision": "█┆█████│▒▒▒▒▒▒▏",
        "train": "███│▒▒▒▒▒▒···",
        "serve": "█┆██│·········",
        "speech": "████·│·······",
        "default": "············",
    }


def test_a_share_is_explained_level_by_level(tree: QueueTree) -> None:
    share = share_of(tree, QueueName("train"), JOBS, GPU, now=NOW)
    assert (share["used"], share["deserved"], share["borrowed"], share["room"]) == (9, 3, 6, 0)
    assert [(level["name"], level["mayGive"]) for level in share["levels"]] == [("train", 0), ("vision", 1)]
    assert explain(share).splitlines() == [
        "train has 9 of nvidia.com/gpu: it deserves 3, 6 are borrowed",
        "  nothing more starts: queue vision, above queue train, may use 12 of nvidia.com/gpu, 12 are in use and 1 more are asked for",
        "  sibling serve has 3: it deserves 3, 1 are guaranteed",
        "vision, above it, has 12: it deserves 6, 1 are guaranteed, 6 are borrowed, limit 12",
        "  sibling default has 0: it deserves none of its own",
        "  sibling speech has 4: it deserves 5, 1 of its share are not in use, 2 more are waited for; it may take 1 back",
        "  1 held by vision can be reclaimed for waiting jobs",
    ]


def effect(tree: QueueTree, name: str, **given: Any) -> DryRunAnswer:
    """By the command's options, as the ledger answers."""
    options = dict.fromkeys(("parent", "weight", "priority", "reclaimable", "pools", "namespaces", "budget")) | dict.fromkeys(
        ("guarantee", "deserved", "capability"), ()
    )
    return judge(DryRunRequest(queues=(change_of(name, options | given).asked(),)), tree, CLAIMS)


NOTHING = dict.fromkeys(("parent", "weight", "priority", "reclaimable")) | dict.fromkeys(
    ("guarantee", "deserved", "capability"), ()
)


@pytest.mark.parametrize(("given", "written"), [("1000", "1000"), ("0", "0"), ("none", None)])
def test_a_budget_is_an_annotation(given: str, written: str | None) -> None:
    change = change_of("train", NOTHING | {"budget": given})
    assert change.body == {"spec": {}, "metadata": {"annotations": {"hbox.io/budget-card-hours": written}}}


def test_a_budget_that_is_no_number_is_told() -> None:
    with pytest.raises(InvalidRequest, match="--budget lots: write it as a whole number of card-hours, or none"):
        change_of("train", NOTHING | {"budget": "lots"})


def test_a_smaller_share_names_the_claims_that_would_go_lowest_and_newest_first(tree: QueueTree) -> None:
    """train falls from 3 to 0; t8 may not be preempted, t0 and t1 have priority."""
    found = effect(tree, "train", deserved=(f"{GPU}=0",))
    [gives] = found.give_back
    assert (gives.queue, gives.units, gives.because) == ("train", 3, "it uses 9 and would deserve 0")
    assert [one.pod for one in gives.leavers] == ["t7", "t6", "t5"]
    assert effect_lines(found)[0] == "queue train may have to give back 3 of nvidia.com/gpu: it uses 9 and would deserve 0"


def test_a_larger_share_names_the_siblings_that_would_have_to_give(tree: QueueTree) -> None:
    [gives] = effect(tree, "speech", deserved=(f"{GPU}=8",)).give_back
    assert (gives.queue, gives.units, gives.because) == ("vision", 3, "queue speech could ask for 3 more of its share")
    assert [one.pod for one in gives.leavers] == ["s2", "s1", "t7"], "serve keeps the one that it is guaranteed"


def test_a_lower_wall_evicts_nobody_and_says_so(tree: QueueTree) -> None:
    found = effect(tree, "vision", capability=(f"{GPU}=8",))
    assert [(one.queue, one.resource, one.used, one.limit) for one in found.over_capability] == [("vision", GPU, 12, 8)]
    assert not found.give_back
    assert "nothing is evicted" in effect_lines(found)[0]


def test_a_queue_that_moves_takes_its_use_to_the_other_department(tree: QueueTree) -> None:
    found = effect(tree, "serve", parent="speech")
    assert [(one.queue, one.units) for one in found.give_back] == [("speech", 2)]
    assert effect(tree, "serve", parent="root").give_back == ()


def faults(answer: DryRunAnswer) -> list[str]:
    said: list[str] = document("any", answer)["faults"]
    return said


def test_a_change_that_contradicts_is_named(tree: QueueTree) -> None:
    assert faults(effect(tree, "vision", parent="train"))[0] == (
        "queue serve: its parents form a circle (vision -> train -> vision); it takes nothing until that is mended"
    )
    assert faults(effect(tree, "serve", guarantee=(f"{GPU}=4",))) == [
        "queue serve: guarantee of nvidia.com/gpu (4) is above deserved (3); the guarantee counts"
    ]
    assert faults(effect(tree, "serve", deserved=(f"{GPU}=",))) == []
    tree[QueueName("vision")] = replace(tree[QueueName("vision")], pools=("gold",))
    assert faults(effect(tree, "serve", pools="gold,lab")) == [
        "queue serve: pool lab is not among those of queue vision above it (gold); it may not use it"
    ]


@pytest.mark.parametrize("item", ["nvidia.com/gpu", "=4", "cpu=two", "cpu=-1"])
def test_what_is_no_amount_is_refused(tree: QueueTree, item: str) -> None:
    with pytest.raises(InvalidRequest):
        effect(tree, "serve", deserved=(item,))


def test_an_unknown_queue_is_told_with_the_nearest_name(tree: QueueTree) -> None:
    reading = Reading(tree, CLAIMS, JOBS)
    with pytest.raises(NotFound) as raised:
        reading.named("trian")
    assert raised.value.hint == "did you mean train?"
    assert reading.named(DEFAULT_QUEUE).name == "default"
    assert len(reading.holding(QueueName("vision"))) == 12
