"""Standard sizes on a running platform: a manifest that names one becomes a slice of a card of the vendor that is there."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient
from hbox_common.yamltext import contents_of

from .platform_world import Up, given_of, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

REGISTER = [
    {
        "id": f"GPU-{i}",
        "index": i,
        "count": 10,
        "devmem": 40_960,
        "devcore": 100,
        "type": "NVIDIA-A100-SXM4-40GB",
        "health": True,
    }
    for i in range(2)
]
MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: small}
spec:
  schedulerName: hbox
  containers:
  - name: main
    image: pause
    resources: {limits: {sizes.hbox.io/8GB-compute: 2}}
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("sizes") / "state") as running:
        asyncio.run(_node(running))
        yield running


async def _node(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        body = node("n1")
        body["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps(REGISTER)}
        await client.json("POST", NODES.path(), body=body)


def sizes(platform: Up) -> dict[str, Any]:
    return {item["name"]: item for item in platform.json("sizes")["items"]}


async def test_a_size_in_a_manifest_becomes_a_slice_of_a_card(platform: Up, client: KubeClient, tmp_path: Path) -> None:
    seen = await asyncio.to_thread(
        until, lambda: sizes(platform) if sizes(platform)["8GB-compute"]["free"] else None, timeout_s=30, what="the node"
    )
    assert (seen["8GB-compute"]["kind"], seen["8GB-compute"]["way"], seen["8GB-compute"]["free"]) == ("NVIDIA", "share", 8)
    assert (seen["whole-training"]["free"], seen["10GB-strict"]["kind"]) == (2, "")
    path = tmp_path / "small.yaml"
    path.write_text(MANIFEST)
    done = platform.hbox("sizes", "apply", str(path))
    assert done.returncode == 0, done.stderr
    assert "container main: 8GB-compute is share of NVIDIA" in done.stderr
    [body] = contents_of(done.stdout.encode())
    await client.json("POST", PODS.path("default"), body=body)

    bound = await asyncio.to_thread(
        until, lambda: sizes(platform)["8GB-compute"]["free"] == 6, timeout_s=30, what="the pod's place"
    )
    pod = await client.json("GET", PODS.path("default", "small"))
    assert (bound, given_of(pod["metadata"]["annotations"]["hbox.io/cards"])) == (True, "25:8192,25:8192"), (
        "two of it are parts of two cards"
    )


async def test_a_size_that_nobody_resolved_is_said_to_its_owner(platform: Up, client: KubeClient) -> None:
    [body] = contents_of(MANIFEST.encode())
    body["metadata"]["name"] = "raw"
    await client.json("POST", PODS.path("default"), body=body)

    def reason() -> str:
        jobs = platform.json("jobs")["items"]
        return next((str(job["reason"]) for job in jobs if "raw" in job["name"] and job["reason"]), "")

    said = await asyncio.to_thread(until, reason, timeout_s=20, what="the reason")
    assert "sizes.hbox.io/8GB-compute is a standard size" in said
    assert "hbox sizes apply" in said
