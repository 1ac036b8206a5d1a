"""What is wrong with a queue's rules, in its own words."""

from typing import Any

import pytest

from hbox_common.model import Queue, QueueName, QueueTree, Resources, faults
from hbox_common.model.devices.nvidia import GPU


def tree_of(*queues: Queue, own: dict[QueueName, Resources] | None = None) -> QueueTree:
    tree = QueueTree(own or {})
    tree.update({queue.name: queue for queue in queues})
    return tree


def queue(name: str, parent: str = "", **cards: int) -> Queue:
    amounts: Any = {amount: {GPU: units} for amount, units in cards.items()}
    return Queue(QueueName(name), parent=parent, **amounts)


GUARANTEE = "guarantee of nvidia.com/gpu (5) is above deserved (4); the guarantee counts"


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ([queue("q", deserved=4, guarantee=4, capability=4)], []),
        ([queue("q", deserved=4, guarantee=5, capability=8)], [GUARANTEE]),
        ([Queue(QueueName("q"), unknown_fields=("spec.wieght: unknown field",))], ["spec.wieght: unknown field"]),
        ([queue("q", deserved=9, capability=8)], ["deserved of nvidia.com/gpu (9) is above capability (8); the capability counts"]),
        ([queue("q", guarantee=9, capability=8)], ["guarantee of nvidia.com/gpu (9) is above capability (8); the capability counts"]),
        ([queue("q", "lost")], ["its parent lost does not exist; it takes nothing until that is mended"]),
        ([queue("q", "p"), queue("p", "lost")], ["above it, queue lost does not exist; it takes nothing until that is mended"]),
        ([queue("q", "p"), queue("p", "q")], ["its parents form a circle (q -> p -> q); it takes nothing until that is mended"]),
        (
            [queue("q", "p", capability=8), queue("p", capability=6)],
            ["capability of nvidia.com/gpu (8) is above the capability of queue p above it (6); that one counts"],
        ),
        (
            [queue("q", "p", deserved=8), queue("p", "g"), queue("g", capability=6)],
            ["deserved of nvidia.com/gpu (8) is above the capability of queue g above it (6); that one counts"],
        ),
        (
            [queue("q", guarantee=4), queue("a", "q", guarantee=3), queue("b", "q", guarantee=3)],
            ["the queues right below it are guaranteed 6 nvidia.com/gpu together, itself 4; theirs counts"],
        ),
        (
            [queue("q", deserved=4), queue("a", "q", deserved=3), queue("b", "q", deserved=3)],
            ["the queues right below it deserve 6 nvidia.com/gpu together, itself 4; its own counts against other departments"],
        ),
        (
            [Queue(QueueName("q"), fault="deserved of cpu: 'two' is not a quantity")],
            ["deserved of cpu: 'two' is not a quantity; it takes nothing until that is mended"],
        ),
    ],
)  # fmt: skip
def test_each_fault_is_named_with_its_figures(queues: list[Queue], said: list[str]) -> None:
    assert list(faults(tree_of(*queues), QueueName("q"))) == said


def test_pods_in_a_queue_that_others_were_put_below_are_named() -> None:
    tree = tree_of(queue("q"), queue("a", "q"), own={QueueName("q"): {"pods": 2}})
    assert faults(tree, QueueName("q")) == ("2 pods run in it that came before the queues below it; it takes no more",)
