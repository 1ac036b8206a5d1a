"""Queues as a tree: what counts where, which wall is in the way, and who takes no work at all."""

import pytest

from hbox_common.model import POOL, Queue, QueueName, QueuePhase, QueueTree, RefusalReason, Resources, faults, may_use, pool_of
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import add


class Uses:
    """A tree, and what its queues use of their own."""

    def __init__(self, drawing: str, **limits: int) -> None:
        """`drawing`: a name a line, indented below its parent. `limits`: capabilities in cards."""
        self.own: dict[QueueName, Resources] = {}
        self.tree = QueueTree(self.own)
        above: list[str] = []
        for line in drawing.splitlines():
            if not (name := line.strip()):
                continue
            depth = (len(line) - len(line.lstrip())) // 2
            above[depth - 2 :] = [name]
            parent = above[depth - 3] if depth > 2 else ""
            capability = {GPU: limits[name]} if name in limits else {}
            self.tree[QueueName(name)] = Queue(QueueName(name), capability=capability, parent=parent)

    def use(self, name: str, cards: int) -> None:
        add(self.own.setdefault(QueueName(name), {}), {GPU: cards})
        self.tree.book(QueueName(name), {GPU: cards})
        self.tree.validate()

    def used(self, name: str) -> int:
        return self.tree.used(QueueName(name)).get(GPU, 0)

    def headroom(self, name: str, cards: int = 1) -> tuple[int | None, str]:
        found = self.tree.headroom(QueueName(name), {GPU: cards})
        return found.times, found.message

    def said(self, name: str) -> str:
        refusal = self.tree.refusal(QueueName(name))
        return refusal.message if refusal is not None else ""


DEPARTMENTS = """
    vision
      train
      serve
    speech
      asr
        night
"""


def test_use_counts_for_all_that_stand_above() -> None:
    uses = Uses(DEPARTMENTS)
    uses.use("train", 3)
    uses.use("night", 2)
    uses.use("train", -1)
    assert [uses.used(name) for name in ("vision", "train", "serve", "speech", "asr", "night")] == [2, 2, 0, 2, 2, 2]


def test_a_queue_that_moves_takes_its_use_along() -> None:
    uses = Uses(DEPARTMENTS)
    uses.use("night", 2)
    uses.tree[QueueName("asr")] = Queue(QueueName("asr"), parent="vision")
    assert [uses.used(name) for name in ("vision", "speech", "asr")] == [2, 0, 2]


def test_what_a_dropped_queue_still_holds_counts_above_it() -> None:
    uses = Uses(DEPARTMENTS)
    uses.use("train", 3)
    del uses.tree[QueueName("train")]
    uses.use("train", -1)
    assert uses.used("vision") == 2
    assert uses.tree.children(QueueName("vision")) == ("serve",)


def test_the_lowest_wall_on_the_path_is_named() -> None:
    uses = Uses(DEPARTMENTS, vision=8, train=6)
    assert uses.headroom("train", 2)[0] == 3
    uses.use("serve", 5)
    assert uses.headroom("train", 2) == (
        1,
        "queue vision, above queue train, may use 8 of nvidia.com/gpu, 5 are in use and 2 more are asked for",
    )
    uses.use("train", 3)
    assert uses.headroom("train")[0] == 0
    assert uses.headroom("asr") == (None, "")


def test_what_leaves_makes_room_where_it_counted() -> None:
    uses = Uses(DEPARTMENTS, vision=4)
    uses.use("serve", 4)
    freed: dict[QueueName, Resources] = {QueueName("serve"): {GPU: 1}, QueueName("vision"): {GPU: 1}}
    assert uses.tree.headroom(QueueName("train"), {GPU: 1}, freed).times == 1


def test_a_path_parts_below_the_last_common_ancestor() -> None:
    tree = Uses(DEPARTMENTS).tree
    assert tree.parting(QueueName("train"), QueueName("serve")) == (("train",), ("serve",))
    assert tree.parting(QueueName("train"), QueueName("night")) == (("vision", "train"), ("speech", "asr", "night"))
    assert tree.parting(QueueName("night"), QueueName("speech")) == (("asr", "night"), ())


def test_all_below_a_queue_are_named_once_also_in_a_circle() -> None:
    tree = Uses(DEPARTMENTS).tree
    assert tree.below(QueueName("speech")) == ["asr", "night"]
    tree[QueueName("speech")] = Queue(QueueName("speech"), parent="night")
    assert tree.below(QueueName("speech")) == ["asr", "night"]


@pytest.mark.parametrize(
    ("name", "reason", "said"),
    [
        ("nowhere", RefusalReason.QUEUE_UNKNOWN, "there is no queue nowhere; create it, or name another in the job"),
        ("vision", RefusalReason.QUEUE_NOT_LEAF, "queue vision takes no work of its own; name one below it (serve, train)"),
        ("night", RefusalReason.QUEUE_CLOSED, "queue asr, above queue night, is closed and takes no new work"),
        ("lost", RefusalReason.QUEUE_INVALID, "queue gone, above queue lost, does not exist"),
        ("c", RefusalReason.QUEUE_INVALID, "queue c is in or below a cycle of parents (a -> b -> a)"),
    ],
)
def test_who_takes_nothing_says_why(name: str, reason: RefusalReason, said: str) -> None:
    uses = Uses(DEPARTMENTS)
    for child, parent in (("lost", "gone"), ("a", "b"), ("b", "a"), ("c", "a")):
        uses.tree[QueueName(child)] = Queue(QueueName(child), parent=parent)
    uses.tree[QueueName("asr")] = Queue(QueueName("asr"), QueuePhase.CLOSING, parent="speech")
    refusal = uses.tree.refusal(QueueName(name))
    assert refusal is not None
    assert (refusal.reason, refusal.message) == (reason, said)


def test_the_root_is_implied_and_so_is_the_default_queue() -> None:
    uses = Uses(DEPARTMENTS)
    uses.tree[QueueName("root")] = Queue(QueueName("root"), capability={GPU: 0})
    uses.tree[QueueName("top")] = Queue(QueueName("top"), parent="root")
    assert uses.said("top") == uses.said("default") == uses.said("train") == ""
    assert uses.headroom("top") == (None, "")
    assert uses.tree.tops() == ("speech", "top", "vision")


def test_the_root_uses_what_all_use_and_takes_no_work() -> None:
    uses = Uses(DEPARTMENTS)
    root = QueueName("root")
    uses.tree[root] = Queue(root, reclaimable=False)
    before = uses.tree.used(root).get(GPU, 0)
    uses.use("train", 3)
    uses.use("default", 2)
    assert uses.tree.used(root)[GPU] == before + 5
    assert uses.said("root") == "queue root is the root of all queues and accepts no jobs; name another queue in the job"


def test_pools_are_those_that_a_queue_names_and_all_above_it_allow() -> None:
    tree = Uses(DEPARTMENTS).tree
    assert tree.pools(QueueName("train")) == ("pooled",)
    tree[QueueName("vision")] = Queue(QueueName("vision"), pools=("gold", "pooled"))
    assert tree.pools(QueueName("train")) == ("gold", "pooled")
    tree[QueueName("train")] = Queue(QueueName("train"), parent="vision", pools=("gold", "lab"))
    assert tree.pools(QueueName("train")) == ("gold",)
    assert faults(tree, QueueName("train")) == (
        "pool lab is not among those of queue vision above it (gold, pooled); it may not use it",
    )


@pytest.mark.parametrize(
    ("labels", "plain", "gold"),
    [({}, True, False), ({POOL: "pooled"}, True, False), ({POOL: "public"}, True, True), ({POOL: "gold"}, False, True)],
)
def test_a_node_is_for_those_whose_pool_it_is(labels: dict[str, str], plain: bool, gold: bool) -> None:
    assert [may_use(pools, pool_of(labels)) for pools in (("pooled",), ("gold",))] == [plain, gold]


def test_the_nearest_queue_that_names_classes_says_whom_nobody_takes_from() -> None:
    tree = QueueTree({})
    for queue in (
        Queue(QueueName("department"), non_preemptible_classes=("firm",)),
        Queue(QueueName("own"), parent=QueueName("department"), non_preemptible_classes=("hard",)),
        Queue(QueueName("all"), parent=QueueName("department"), non_preemptible_classes=("*",)),
        Queue(QueueName("silent"), parent=QueueName("department")),
    ):
        tree[queue.name] = queue
    found = {
        name: [tree.non_preemptible(QueueName(name), of) for of in ("firm", "hard", "")] for name in ("own", "all", "silent")
    }
    assert found == {"own": [False, True, False], "all": [True, True, True], "silent": [True, False, False]}
