"""Cards that nodes count by model (`nvidia.com/A100`), on a running platform that was told so."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient

from .platform_world import Up, given_of, hbox, placed, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

A100, H800 = "nvidia.com/A100", "nvidia.com/H800"
TOLD = {"HBOX_CARD_RESOURCES": f"{A100}=A100-SXM4-80GB,{H800}"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in TOLD.items():
            environment.setenv(name, value)
        with up(tmp_path_factory.mktemp("bymodel") / "state") as running:
            asyncio.run(_nodes(running))
            yield running


async def _nodes(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for name, resource in (("n-a100", A100), ("n-h800", H800)):
            body = node(name)
            size = {"cpu": "64", "memory": "512Gi", "pods": "110", resource: "4"}
            body["status"] |= {"capacity": size, "allocatable": size}
            await client.json("POST", NODES.path(), body=body)


async def test_pods_get_cards_of_the_model_that_they_name(platform: Up, client: KubeClient) -> None:
    for name, resource, count in (("a", A100, 3), ("b", H800, 4), ("late", A100, 2)):
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "schedulerName": "hbox",
                "containers": [{"name": "c", "image": "pause", "resources": {"limits": {resource: str(count)}}}],
            },
        }
        await client.json("POST", PODS.path("default"), body=body)

    def waiting() -> str:
        return next(
            (str(job["reason"]) for job in platform.json("jobs")["items"] if "late" in job["name"] and job["reason"]), ""
        )

    reason = await asyncio.to_thread(until, waiting, timeout_s=30, what="the reason")
    assert reason.startswith("0/2 nodes are available"), reason
    assert await placed(client, "default") == {"a": "n-a100", "b": "n-h800"}
    pod = await client.json("GET", PODS.path("default", "a"))
    assert given_of(pod["metadata"]["annotations"]["hbox.io/cards"]) == "100:0,100:0,100:0"
    nodes = {item["name"]: item for item in platform.json("nodes")["items"]}
    assert [(nodes[name]["model"], nodes[name]["cards"]["free"]) for name in ("n-a100", "n-h800")] == [
        ("A100-SXM4-80GB", 1),
        ("H800", 0),
    ]
    assert platform.json("share", "default", "--resource", A100)["used"] == 3
    audit = platform.hbox("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr


async def test_audit_fails_with_device_settings_other_than_the_platforms(platform: Up) -> None:
    words = ("--state", str(platform.state), "audit")
    done = await asyncio.to_thread(hbox, *words)
    assert (done.returncode, "0 faults" in done.stdout) == (0, True), done.stdout + done.stderr
    done = await asyncio.to_thread(lambda: hbox(*words, env={"HBOX_CARD_RESOURCES": ""}))
    assert done.returncode != 0
    assert "fault" not in done.stdout
    assert "device settings of this command differ from those of quota-ledger" in done.stderr
    assert "set HBOX_CARD_RESOURCES" in done.stderr
