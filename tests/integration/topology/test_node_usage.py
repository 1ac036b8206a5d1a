"""What nodes really use, from an API that serves metrics.k8s.io: here by a definition of that kind, whose objects the test writes."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.events import Event, NodesMeasured
from hbox_common.kube import CRDS, NODE_METRICS, KubeClient, wait_established
from hbox_common.model import NodeName, NodeUsage
from hbox_topology.adapters import usage
from hbox_topology.app import run
from hbox_topology.settings import TopologySettings

from ...node_metrics import NODE_METRICS_DEFINITION, measured
from ...waiting import until
from ..jobs.edge_world import Kube, listening, running

AT = datetime(2027, 1, 15, 8, tzinfo=UTC)


async def test_measurements_are_said_in_percent_once_somebody_serves_them(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes have 64 cores and 512 GiB; n2 is measured in words that nobody understands, `gone` is no node."""
    monkeypatch.setattr(usage, "EVERY_S", 0.05)
    monkeypatch.setattr(usage, "LOOK_AGAIN_S", 0.05)
    settings = TopologySettings(kubeconfig=str(kubeconfig), nats_url=nats.url)
    async with (
        KubeClient.connect(str(kubeconfig), user_agent="test") as client,
        running(run, settings) as health,
        listening(bus, NodesMeasured) as heard,
    ):
        await kube.node("n1")
        await kube.node("n2")
        await until(lambda: health.ready)
        await client.json("POST", CRDS.path(), body=NODE_METRICS_DEFINITION)
        await wait_established(client, "nodes.metrics.k8s.io")
        for name, cpu in (("n1", "32000000000n"), ("n2", "half"), ("gone", "1")):
            await client.json("POST", NODE_METRICS.path(), body=measured(name, cpu, "128Gi", at=AT))
        await until(lambda: said(heard) == [NodeUsage(NodeName("n1"), 50.0, 25.0, AT.timestamp())])
        before = len(heard)
        await client.json("DELETE", NODE_METRICS.path(name="n1"))
        await client.json("POST", NODE_METRICS.path(), body=measured("n1", "16", "128Gi", at=AT))
        await until(lambda: [usage.cpu_percent for usage in said(heard)] == [25.0])
        assert len(heard) <= before + 2, "what has not changed is not said again"


def said(heard: Sequence[Event]) -> list[NodeUsage]:
    """By the last message."""
    last = heard[-1] if heard else None
    return list(last.usages) if isinstance(last, NodesMeasured) else []
