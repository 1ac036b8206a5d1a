"""The HTTP API of the running platform: what a tenant gets, and that no name of others is in it."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hbox_common.kube import CONFIGMAPS, NAMESPACES, PODS, QUEUES, KubeClient, apply

from .. import waiting
from .platform_world import Up, hbox, up

pytestmark = pytest.mark.e2e

RBAC = "rbac.authorization.k8s.io"
#: Planted by other tenants: names of queues, namespaces and pods that no other text contains.
PLANTED = [f"zq{number:03}x" for number in range(100)]
ADMIN = "sandbox:admin:system:masters"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("console") / "state", "--nodes", "2x8") as running:
        yield running


def _pod(name: str, namespace: str, queue: str, cards: int) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": str(cards)}}}
    metadata = {"name": name, "namespace": namespace, "annotations": {"scheduling.volcano.sh/queue-name": queue}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "hbox", "containers": [container]},
    }


async def _rights(client: KubeClient) -> None:
    """Anna sees jobs of namespace mine, queue mine, and nodes."""
    await client.json("POST", NAMESPACES.path(), body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}})
    jobs = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    use = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "resourceNames": ["mine"], "verbs": ["use"]}
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    anna = [{"kind": "User", "name": "anna", "apiGroup": RBAC}]
    for kind, metadata, rules in (
        ("Role", {"name": "jobs", "namespace": "mine"}, [jobs]),
        ("ClusterRole", {"name": "anna"}, [use, nodes]),
    ):
        role = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}
        reference = {"apiGroup": RBAC, "kind": kind, "name": metadata["name"]}
        await apply(client, role, field_manager="test")
        await apply(client, role | {"kind": f"{kind}Binding", "roleRef": reference, "subjects": anna}, field_manager="test")


async def _tenants(client: KubeClient) -> None:
    """Queue mine, and 100 others that each have a queue, a namespace and a pod with a card."""

    async def queue(name: str) -> None:
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"weight": 1},
        }
        await client.json("POST", QUEUES.path(), body=body)

    async def namespace(name: str) -> None:
        await client.json("POST", NAMESPACES.path(), body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    for name in ("mine", *PLANTED):
        await queue(name)
        if name != "mine":
            await namespace(name)
            await client.json("POST", PODS.path(name), body=_pod(f"{name}-pod", name, name, 1))


async def test_no_name_of_others_is_in_any_answer(platform: Up) -> None:
    async with (
        KubeClient.connect(str(Path(platform.state) / "kubeconfig"), user_agent="hbox-test") as client,
        aiohttp.ClientSession() as session,
    ):
        access = await client.json("GET", CONFIGMAPS.path("kube-public", "hbox-access"))
        url = access["data"]["url"]

        async def ask(path: str, token: str = "sandbox:anna") -> tuple[int, Any]:
            async with session.get(f"{url}/api/v1{path}", headers={"Authorization": f"Bearer {token}"}) as answer:
                return answer.status, json.loads(await answer.text())

        async def until(what: str, path: str, holds: Any, token: str = "sandbox:anna") -> Any:
            async with asyncio.timeout(120):
                while True:
                    _, found = await ask(path, token)
                    if holds(found):
                        return found
                    await asyncio.sleep(0.5)

        await _rights(client)
        stream = await session.get(f"{url}/api/v1/watch", headers={"Authorization": "Bearer sandbox:anna"})
        await _tenants(client)
        await until("sixteen run", "/jobs?state=RUNNING,BOUND", lambda found: len(found["items"]) == 16, ADMIN)
        await client.json("POST", PODS.path("mine"), body=_pod("mine-pod", "mine", "mine", 8))
        await client.json("POST", PODS.path("mine"), body=_pod("small-pod", "mine", "mine", 1))
        await until("a reason", "/jobs", lambda found: any(item["reason"] for item in found["items"]))
        placed = "io.hbox.job.placed.v1"
        await until("events", "/events?limit=500", lambda found: placed in [item["type"] for item in found["items"]], ADMIN)
        texts = []
        for path, status in (
            ("/whoami", 200), ("/jobs", 200), ("/jobs?limit=1", 200), ("/jobs/mine/mine-pod", 200),
            ("/jobs/mine/mine-pod/explanation", 200), ("/queues", 200), ("/queues/mine", 200), ("/nodes", 200),
            ("/nodes/node-0001", 200), ("/share?queue=mine", 200), ("/usage", 200), ("/usage?by=user,department", 200),
            ("/events", 200), ("/evictions", 200), ("/jobs?namespace=other", 403), ("/queues/other", 403),
        ):  # fmt: skip
            found, body = await ask(path)
            assert found == status, (path, body)
            texts.append(json.dumps(body))
        _, every = await ask("/jobs?limit=500", ADMIN)
        assert len(every["items"]) == 102, "all of them are there"
        queues = await until("the others and `default`", "/queues", lambda found: found["metadata"]["others"]["queues"] == 101)
        assert queues["metadata"]["others"]["used"]["nvidia.com/gpu"] == 16
        async with asyncio.timeout(10):
            texts.append((await stream.content.readany()).decode())
        stream.close()
        assert "mine-pod" in "".join(texts)
        assert [name for name in PLANTED if name in "".join(texts)] == []


def test_commands_about_one_job_or_node_work_with_a_tenants_rights(platform: Up, tmp_path: Path) -> None:
    """After the test above: 16 of 100 pods of others run, and anna's waits for a whole node."""
    token = tmp_path / "token"
    token.write_text("sandbox:anna")
    url = json.loads((platform.state / "platform.json").read_text())["console"]
    access = ("--server", url, "--token-file", str(token))
    shown = []
    for status, words, text in (
        (0, ("why", "mine/mine-pod"), "mine/mine-pod  WAITING"),
        (0, ("why", "mine/mine-pod", "--node", "node-0001"), "node-0001 fails"),
        (0, ("why", "mine/mine-pod", "--vs", "mine/small-pod"), "mine/small-pod has not started either"),
        (0, ("node", "show", "node-0001"), "(another namespace)/(another pod)"),
        (0, ("node", "show", "node-0001", "--numa"), "(another namespace)/(another pod)"),
        (0, ("nodes", "--devices"), "node-0002"),
        (0, ("evictions", "show"), "evictions go on"),
        (3, ("why", "mine/mine-pod", "--placed"), "mine/mine-pod has no places"),
        (3, ("why", "mine/mine-pod", "--evicted"), "no eviction of mine/mine-pod is on record"),
        (4, ("why", f"{PLANTED[0]}/{PLANTED[0]}-pod", "--placed"), "you may not see jobs"),
        (4, ("why", f"{PLANTED[0]}/{PLANTED[0]}-pod", "--node", "node-0001"), "you may not see jobs"),
        (4, ("why", "mine/mine-pod", "--vs", f"{PLANTED[0]}/{PLANTED[0]}-pod"), "you may not see jobs"),
    ):
        done = hbox(*words, *access)
        assert (done.returncode, text in done.stdout + done.stderr) == (status, True), (words, done)
        shown.append(done.stdout + done.stderr.replace(PLANTED[0], ""))  # the refusal repeats what was asked
    assert [name for name in PLANTED if name in "".join(shown)] == []
    seen = platform.json("node", "show", "node-0001")
    assert [name for name in PLANTED if name in json.dumps(seen)], "an operator reads the names from the broker"
    assert platform.json("evictions", "show") == json.loads(hbox("evictions", "show", *access, "-o", "json").stdout)


def test_operators_check_a_platform_by_its_broker(platform: Up) -> None:
    """As after an installation by the chart: without the state folder."""
    running = json.loads((platform.state / "platform.json").read_text())
    seed = Path(running["nats_users"]) / "hbox-cli.nk"
    env = {"KUBECONFIG": str(platform.state / "kubeconfig")}
    done = hbox("check", "--nats-url", running["nats_url"], "--nats-seed", str(seed), "-o", "json", env=env)
    assert done.returncode == 0, done
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert list(checks) == ["broker", "kubernetes", "nodes", "definitions", "workloads"]
    assert "2 nodes" in checks["broker"]["message"]
    assert "the services are not checked" in done.stderr


async def test_running_jobs_stay_listed_after_a_crash_of_job_controller(platform: Up) -> None:
    """No message announces them: they have no pods to place."""
    async with (
        KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="hbox-test") as client,
        aiohttp.ClientSession() as session,
    ):
        url = (await client.json("GET", CONFIGMAPS.path("kube-public", "hbox-access")))["data"]["url"]

        async def create(name: str) -> None:
            manifest = _pod(name, "default", "default", 1)
            manifest["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
            await client.json("POST", PODS.path("default"), body=manifest)

        async def runs(name: str) -> bool:
            headers = {"Authorization": f"Bearer {ADMIN}"}
            async with session.get(f"{url}/api/v1/jobs/default/{name}", headers=headers) as answer:
                return str((await answer.json()).get("state")) == "RUNNING"

        async def next_runs() -> bool:
            assert await runs("kept")
            return await runs("next")

        await create("kept")
        await waiting.until(lambda: runs("kept"), "a job runs", timeout_s=40)
        os.kill(platform.pids()["job-controller"], signal.SIGKILL)
        await create("next")
        await waiting.until(next_runs, "the next one runs", timeout_s=40)
