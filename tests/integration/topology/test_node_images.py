"""Which nodes have which images, from the API server to the bus."""

from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.events import Event, NodeImagesChanged
from hbox_common.model import HeldImage, NodeName
from hbox_topology.adapters import images
from hbox_topology.app import run
from hbox_topology.settings import TopologySettings

from ...waiting import until
from ..jobs.edge_world import Kube, listening, running

BIG = 1 << 30
APP = "registry.local/app:1"


def said(heard: list[Event]) -> dict[str, tuple[NodeName, ...]]:
    """Nodes by the first name of each image: a shard that became empty has none of those that it had."""
    last: dict[str, tuple[NodeName, ...]] = {}
    for event in heard:
        assert isinstance(event, NodeImagesChanged)
        if event.images:
            last.update((image.names[0], image.nodes) for image in event.images)
    return last


async def test_images_are_said_when_they_change_and_a_node_that_goes_takes_its_own_along(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "EVERY_S", 0.05)
    settings = TopologySettings(kubeconfig=str(kubeconfig), nats_url=nats.url)
    async with running(run, settings) as health, listening(bus, NodeImagesChanged) as heard:
        for name in ("n1", "n2"):
            await kube.node(name)
            status = {"status": {"images": [{"names": [APP], "sizeBytes": BIG}, {"names": ["tiny"], "sizeBytes": 5}]}}
            await kube.patch_node(name, status, subresource="status")
        await until(lambda: health.ready)
        await until(lambda: said(heard) == {APP: (NodeName("n1"), NodeName("n2"))})
        await kube.delete_node("n1")
        await until(lambda: NodeImagesChanged(images=(HeldImage((APP,), BIG, (NodeName("n2"),)),)) in heard)
        await kube.patch_node("n2", {"status": {"images": None}}, subresource="status")
        await until(lambda: heard[-1] == NodeImagesChanged(images=()))
        quiet = len(heard)
        await kube.patch_node("n2", {"metadata": {"labels": {"a": "b"}}})
        await kube.node("n3")
        await until(lambda: health.ready)
        assert len(heard) == quiet, "nothing about images changed"
