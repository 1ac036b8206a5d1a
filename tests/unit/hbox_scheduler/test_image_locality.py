"""Image locality of nodeorder, in the running service: pods start where their images are already."""

from dataclasses import replace

import pytest

from hbox_common.model import HeldImage, Job, NodeName
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.images import HeldImages
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName
from hbox_scheduler.core.policy.policy import policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate import Simulation, job, node

IMAGE = "nvcr.io/nvidia/pytorch:24.01"
LARGE = 20 << 30


def runs(one: Job, image: str = IMAGE) -> Job:
    return replace(one, tasks=tuple(replace(task, images=(image,)) for task in one.tasks))


def world(arguments: str) -> Simulation:
    conf = parse_conf(
        f"""
actions: "allocate"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: predicates}}, {{name: nodeorder, arguments: {{{arguments}}}}}]
""",
        plugins=list(PLUGINS),
    )
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=conf)
    simulation.put_nodes(node(f"n{i}", cards=8) for i in range(3))
    return simulation


def place(simulation: Simulation, one: Job) -> str:
    simulation.submit([one])
    [plan] = simulation.run()
    return plan.placements[0].node


@pytest.mark.parametrize(
    ("arguments", "expected"), [("", "n2"), ("imagelocality.weight: 1", "n2"), ("imagelocality.weight: 0", "n0")]
)
def test_a_pod_goes_where_its_image_is(arguments: str, expected: str) -> None:
    simulation = world(arguments)
    simulation.scheduler.on_images("a", [HeldImage((IMAGE, f"{IMAGE}@sha256:0"), LARGE, (NodeName("n2"), NodeName("gone")))])
    assert place(simulation, runs(job("one", cards=1))) == expected


def test_an_image_that_is_there_no_more_or_of_which_nobody_told_counts_nothing() -> None:
    simulation = world("imagelocality.weight: 1")
    simulation.scheduler.on_images("a", [HeldImage((IMAGE,), LARGE, (NodeName("n2"),))])
    assert place(simulation, runs(job("other", cards=1), "other:1")) == "n0"
    simulation.scheduler.on_images("a", [])
    assert place(simulation, runs(job("one", cards=1))) != "n2"


def sizes(images: HeldImages, columns: Columns) -> list[float]:
    found = images.sizes("app:1", columns)
    assert found is not None
    return list(map(float, found))


def test_a_tag_that_was_moved_is_several_images() -> None:
    columns = Columns()
    for name in ("n0", "n1"):
        columns.put_node(node(name, cards=1))
    old, new = HeldImage(("app:1", "app:1", "old"), 5, (NodeName("n0"),)), HeldImage(("app:1", "new"), 7, (NodeName("n1"),))
    images = HeldImages([old])
    images.put("b", [new])
    assert sizes(images, columns) == [5, 7]
    images.put("", [])
    assert sizes(images, columns) == [0, 7]
    assert images.sizes("old", columns) is None
    images.put("b", [])
    assert not images


def test_nodes_that_come_later_are_found_by_name() -> None:
    columns = Columns()
    images = HeldImages([HeldImage(("app:1",), 5, (NodeName("n1"),))])
    assert images.sizes("app:1", columns) is None
    columns.put_node(node("n1", cards=1))
    assert sizes(images, columns) == [5]
