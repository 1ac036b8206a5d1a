"""Trees of queues that are kept in step, held against the same ones found anew after every change."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import Queue, QueueName, QueuePhase, QueueTree, Resources
from hbox_common.model.annotations import MIN_RUN_TIME

NAMES = [QueueName(name) for name in ("root", "default", "a", "b", "c", "d", "e")]
CARDS = "nvidia.com/gpu"
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", CARDS, f"{CARDS}.A100"]), st.integers(0, 5), max_size=2)


@st.composite
def queues(draw: st.DrawFn) -> Queue:
    pools = draw(st.sampled_from([(), (), ("pooled",), ("exclusive/x",), ("pooled", "exclusive/x")]))
    return Queue(
        draw(st.sampled_from(NAMES)),
        phase=draw(st.sampled_from([QueuePhase.OPEN, QueuePhase.OPEN, QueuePhase.CLOSED])),
        parent=draw(st.sampled_from(["", "", *NAMES, "nobody"])),
        capability=draw(AMOUNTS),
        deserved=draw(AMOUNTS),
        guarantee=draw(AMOUNTS),
        pools=pools,
        lent_pools=pools[-1:] if draw(st.booleans()) else (),
        annotations=draw(st.sampled_from([{}, {}, {MIN_RUN_TIME: "5m"}])),
    )


CHANGES = st.one_of(
    st.tuples(st.just("set"), queues()),
    st.tuples(st.just("set"), queues()),
    st.tuples(st.just("drop"), st.sampled_from(NAMES)),
    st.tuples(st.just("book"), st.tuples(st.sampled_from(NAMES), st.sampled_from(["cpu", CARDS]), st.integers(1, 3))),
    st.tuples(st.just("look"), st.sampled_from(NAMES)),
)


class Anew:
    """A tree that keeps nothing from one change to the next."""

    def __init__(self) -> None:
        self.own: dict[QueueName, Resources] = {}
        self.tree = QueueTree(self.own)

    def of(self) -> QueueTree:
        self.tree._stale = True
        self.tree._changed()
        return self.tree


def _apply(tree: QueueTree, own: dict[QueueName, Resources], kind: str, change: Any) -> None:
    if kind == "set":
        tree[change.name] = change
    elif kind == "drop":
        tree.pop(change, None)
    elif kind == "book":
        name, resource, units = change
        amounts = own.setdefault(name, {})
        amounts[resource] = amounts.get(resource, 0) + units
        tree.book(name, {resource: units})


QUESTIONS: dict[str, Callable[[QueueTree, QueueName], object]] = {
    "path": QueueTree.path,
    "children": QueueTree.children,
    "below": QueueTree.below,
    "circle": QueueTree.circle,
    "guarantee": QueueTree.guarantee,
    "amounts": QueueTree.amounts,
    "rights": QueueTree.rights,
    "pools": QueueTree.pools,
    "reach": QueueTree.reach,
    "refusal": QueueTree.refusal,
    "run_time": QueueTree.run_time,
    "used": lambda tree, name: {key: units for key, units in tree.used(name).items() if units},
    "by_model": lambda tree, _: tree.by_model,
    "lends": lambda tree, _: tree.lends,
}


@given(st.lists(CHANGES, max_size=25))
def test_a_tree_that_is_kept_answers_as_one_that_is_found_anew(changes: list[tuple[str, Any]]) -> None:
    own: dict[QueueName, Resources] = {}
    kept, anew = QueueTree(own), Anew()
    for kind, change in changes:
        _apply(kept, own, kind, change)
        _apply(anew.tree, anew.own, kind, change)
        found = anew.of()
        for name in (change,) if kind == "look" else (*NAMES, QueueName("nobody")) if kind != "book" else ():
            for what, ask in QUESTIONS.items():
                assert ask(kept, name) == ask(found, name), (what, name)
    kept.validate()


def test_a_queue_that_comes_or_changes_costs_as_little_beside_a_thousand_as_beside_ten() -> None:
    def found_anew(there: int) -> list[int]:
        """How many queues' amounts are found anew after one more came, and after one changed."""
        tree = QueueTree({})
        tree.update({name: Queue(name) for name in (QueueName(f"q{i}") for i in range(there))})
        costs = []
        for queue in (Queue(QueueName("one-more")), Queue(QueueName("q3"), weight=5)):
            for name in tree:
                tree.amounts(name)
            before = dict(tree._amounts)
            tree[queue.name] = queue
            assert not tree._stale
            for name in tree:
                tree.amounts(name)
            costs.append(sum(tree._amounts[name] is not before.get(name) for name in tree))
        return costs

    assert found_anew(1000) == found_anew(10) == [1, 1]
