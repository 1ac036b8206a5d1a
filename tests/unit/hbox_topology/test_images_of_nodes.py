"""Which nodes have which images: the larger ones, by shard, and only what changed is stale."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common import kube
from hbox_common.events import IMAGE_SHARDS, shard_of
from hbox_common.model import HeldImage, NodeName, image_name
from hbox_topology.adapters.objects import images_of, without_images
from hbox_topology.core.images import LEAST_BYTES, MOST_OF_A_NODE, ImageTable

N1, N2 = NodeName("n1"), NodeName("n2")
BIG = 1 << 30


def held(table: ImageTable) -> list[HeldImage]:
    return [image for shard in range(IMAGE_SHARDS) for image in table.read(str(shard))]


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1.25", "docker.io/library/nginx:1.25"),
        ("team/app@sha256:00", "docker.io/team/app@sha256:00"),
        ("docker.io/nginx:1", "docker.io/library/nginx:1"),
        ("docker.io/library/nginx", "docker.io/library/nginx:latest"),
        ("nvcr.io/nvidia/pytorch:24.01", "nvcr.io/nvidia/pytorch:24.01"),
        ("localhost/app", "localhost/app:latest"),
        ("registry:5000/app", "registry:5000/app:latest"),
    ],
)
def test_a_name_is_completed_as_runtimes_do(written: str, whole: str) -> None:
    assert image_name(written) == whole
    assert image_name(whole) == whole


def test_nodes_with_the_same_image_stand_at_it_together() -> None:
    table = ImageTable()
    table.observe(N2, [(["nginx", "nginx@sha256:1"], BIG)])
    table.observe(N1, [(["nginx", "nginx@sha256:1"], BIG), (["other"], LEAST_BYTES)])
    names = ("docker.io/library/nginx:latest", "docker.io/library/nginx@sha256:1")
    assert sorted(held(table), key=lambda image: image.size_bytes) == [
        HeldImage(("docker.io/library/other:latest",), LEAST_BYTES, (N1,)),
        HeldImage(names, BIG, (N1, N2)),
    ]
    table.observe(N2, [])
    assert HeldImage(names, BIG, (N1,)) in held(table)


def test_only_the_shards_of_images_that_came_or_went_are_stale() -> None:
    table = ImageTable()
    assert table.stale == {str(i) for i in range(IMAGE_SHARDS)}
    held(table)
    assert not table.stale
    table.observe(N1, [(["a:1"], BIG)])
    assert table.stale == {shard_of("docker.io/library/a:1", IMAGE_SHARDS)}
    held(table)
    table.observe(N1, [(["a:1"], BIG), (["small:1"], LEAST_BYTES - 1), (["<none>:<none>"], BIG), (["bad\u202e"], BIG)])
    assert not table.stale
    table.republish()
    assert len(table.stale) == IMAGE_SHARDS


def test_of_a_node_the_largest_count() -> None:
    table = ImageTable()
    table.observe(N1, [([f"i{i}:1"], BIG + i) for i in range(2 * MOST_OF_A_NODE)])
    assert sorted(image.size_bytes for image in held(table)) == [BIG + i for i in range(MOST_OF_A_NODE, 2 * MOST_OF_A_NODE)]


images = st.lists(st.tuples(st.lists(st.sampled_from("abcd"), max_size=3), st.sampled_from([1, BIG, BIG + 1])), max_size=5)


@given(st.lists(st.tuples(st.sampled_from([N1, N2]), images), max_size=12))
def test_what_is_kept_is_what_the_nodes_said_last(observed: list[tuple[NodeName, list[tuple[list[str], int]]]]) -> None:
    table, last = ImageTable(), ImageTable()
    for node, found in observed:
        table.observe(node, found)
    for node, found in dict(observed).items():
        last.observe(node, found)
    assert held(table) == held(last)


def test_images_are_read_from_a_node_and_not_kept_with_it() -> None:
    node = kube.Node(
        metadata=kube.Metadata(name="n1", uid="u"),
        status=kube.NodeStatus(images=(kube.ContainerImage(("a",), 5), kube.ContainerImage(None, 7)), allocatable={"cpu": "4"}),
    )
    assert list(images_of(node)) == [(("a",), 5), ((), 7)]
    kept = without_images(node)
    assert (kept.status.images, kept.status.allocatable, kept.metadata) == (None, {"cpu": "4"}, node.metadata)
