"""A reader of one queue asks every micro service of a running platform, on a closed broker: what it is told has nothing of other tenants, not even their names.

dept          deserves less than what stands below promises: a fault that names it
  ml          the reader's; lends to `secret`
    train     with a job that waits and one that runs
  secret      another tenant's, with the same
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from hbox_common.brokerkeys import keep
from hbox_common.bus import EmbeddedServer
from hbox_common.bus.micro import inbox_of, reader_subject
from hbox_common.bus.users import OPERATOR, read_only, users
from hbox_common.kube import NAMESPACES, PODS, QUEUES, KubeClient

from ..waiting import until
from .platform_world import SLOWER, Up

pytestmark = pytest.mark.e2e

GPU = "nvidia.com/gpu"
READER, MINE = "grafana", ["ml", "train"]
FOREIGN = ("secret", "hidden", "dept")
TREE: dict[str, dict[str, Any]] = {
    "dept": {"deserved": {GPU: 4}},
    "ml": {"parent": "dept", "deserved": {GPU: 4}},
    "train": {"parent": "ml", "deserved": {GPU: 2}},
    "secret": {"parent": "dept", "deserved": {GPU: 4}},
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    others = {READER: read_only(READER, MINE)}
    async with EmbeddedServer(tmp_path / "nats", keys=keep(tmp_path / "users", (*users(), *others)), readers=others) as running:
        yield running


async def test_a_reader_is_told_of_its_own_queues_alone(tmp_path: Path, server: EmbeddedServer) -> None:
    words = ("--nodes", "1x8", "--nats-url", server.url, "--nats-users", str(tmp_path / "users"))

    def start() -> Up:
        return Up(tmp_path / "state", *words)

    platform = await asyncio.to_thread(start)
    try:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as kube:
            await _tenants(kube)
            await _story(tmp_path, server)
    finally:
        await asyncio.to_thread(platform.stop)


async def _tenants(kube: KubeClient) -> None:
    for name, spec in TREE.items():
        notes = {"hbox.io/lent-to": "secret"} if name == "ml" else {}
        head = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name, "annotations": notes},
        }
        await kube.json("POST", QUEUES.path(), body=head | {"spec": spec})
    for space, queue in (("team", "train"), ("hidden", "secret")):
        await kube.json("POST", NAMESPACES.path(), body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
        for name, cards in ((f"{space}-runs", 1), (f"{space}-waits", 9)):
            asked = {"requests": {"cpu": "100m"}, "limits": {GPU: str(cards)}}
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "annotations": {"scheduling.volcano.sh/queue-name": queue}},
                "spec": {"schedulerName": "hbox", "containers": [{"name": "main", "image": "pause", "resources": asked}]},
            }
            await kube.json("POST", PODS.path(space), body=body)


async def _story(folder: Path, server: EmbeddedServer) -> None:
    operator = await _client(server, folder, OPERATOR)
    reader = await _client(server, folder, READER)

    async def asked(service: str, endpoint: str, queue: str, request: dict[str, Any] | None = None) -> Any:
        subject = reader_subject(service, endpoint, queue, READER)
        answer = await reader.request(subject, json.dumps(request or {}).encode(), timeout=10)
        return (answer.headers or {}).get("Nats-Service-Error") or json.loads(answer.data)

    async def jobs_are_there() -> bool:
        answer = await operator.request("hbox.v1.api.job-controller.jobs", b"{}", timeout=10)
        found = {one["name"]: one for one in json.loads(answer.data or b'{"jobs": []}')["jobs"]}
        return len(found) == 4 and all(one["reason"] or one["bound"] for one in found.values())

    await until(jobs_are_there, "the jobs", timeout_s=30 * SLOWER)

    # Every endpoint that there is, by the services' own list.
    inbox = operator.new_inbox()
    listed = await operator.subscribe(inbox)
    await operator.publish("$SRV.INFO", b"", reply=inbox)
    endpoints: dict[tuple[str, str], str] = {}
    while (said := await _next(listed)) is not None:
        info = json.loads(said)
        for one in info["endpoints"]:
            if one["metadata"].get("format") == "application/json":
                endpoints[info["name"].removeprefix("hbox-"), one["name"]] = one["subject"]
    answered = {}
    for service, endpoint in endpoints:
        try:
            answered[service, endpoint] = [await asked(service, endpoint, queue) for queue in MINE]
        except nats.errors.NoRespondersError:
            pass  # it is not for readers
    assert set(answered) == {("quota-ledger", "queues"), ("quota-ledger", "usage"), ("job-controller", "jobs")}
    assert len(endpoints) > len(answered), "some are for operators alone"
    for what, answers in answered.items():
        for answer in answers:
            assert isinstance(answer, dict), (what, answer)
            assert not [name for name in FOREIGN if name in json.dumps(answer)], (what, answer)

    # And what is its own is there.
    of_ml, of_train = answered["quota-ledger", "queues"]
    assert [one["rules"]["name"] for one in of_ml["queues"]] == ["ml", "train"]
    assert [one["rules"]["name"] for one in of_train["queues"]] == ["train"]
    assert of_ml["queues"][1]["used"][GPU] == 1
    jobs = {one["name"]: one for one in answered["job-controller", "jobs"][1]["jobs"]}
    assert jobs.keys() == {"team-runs", "team-waits"}
    assert jobs["team-waits"]["reason"]
    users_of_it = await asked("quota-ledger", "usage", "ml", {"by": ["user"]})
    assert {row["user"] for row in users_of_it["usage"]} <= {"team", ""}
    for endpoint, request in (
        ("queues", {"names": ["secret"]}),
        ("usage", {"by": ["department"]}),
    ):
        assert isinstance(await asked("quota-ledger", endpoint, "ml", request), str)
    assert isinstance(await asked("job-controller", "jobs", "train", {"queues": ["secret"]}), str)
    # The operator's answers have all of it.
    whole = await operator.request("hbox.v1.api.quota-ledger.queues", b"{}", timeout=10)
    assert {"secret", "dept", "ml"} <= {one["rules"]["name"] for one in json.loads(whole.data)["queues"]}
    assert any(one["faults"] for one in json.loads(whole.data)["queues"])
    await operator.close()
    await reader.close()


async def _next(listed: Any) -> bytes | None:
    """None: nobody says anything for two seconds."""
    try:
        return bytes((await listed.next_msg(timeout=2)).data)
    except nats.errors.TimeoutError:
        return None


async def _client(server: EmbeddedServer, folder: Path, user: str) -> Client:
    return await nats.connect(server.url, nkeys_seed=str(folder / "users" / f"{user}.nk"), inbox_prefix=inbox_of(user).encode())
