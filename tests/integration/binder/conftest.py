from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.kube import KubeClient
from hbox_sandbox.api.server import ApiServer

from .binder_world import BinderWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BinderWorld]:
    async with EmbeddedServer(tmp_path / "nats") as nats, ApiServer() as api:
        kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
        async with (
            KubeClient.connect(str(kubeconfig), user_agent="test") as client,
            Bus.connect(nats.url, name="test", instance="test") as bus,
            BinderWorld(nats, api, client, bus, kubeconfig).listening() as world,
        ):
            yield world
