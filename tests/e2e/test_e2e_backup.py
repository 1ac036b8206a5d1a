"""The drill: a platform with gangs and work under way is backed up, goes on, loses the ledger's database, gets the backup back, and converges."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hbox_common.kube import PODGROUPS, PODS, KubeClient

from ..postgres_server import PostgresServer
from .platform_world import Up, until, up

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SPACE = "default"
NODES = "8x8"
CONVERGES_S = 90.0


def gang(name: str, members: int) -> dict[str, Any]:
    meta = {"name": name, "namespace": SPACE}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": meta, "spec": {"minMember": members}}


def pod(name: str, *, of: str = "", cards: int = 1) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox:1.36", "resources": {"limits": {"nvidia.com/gpu": str(cards)}}}
    notes = {"scheduling.k8s.io/group-name": of} if of else {}
    spec = {"schedulerName": "hbox", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}


class World:
    """What users do, and every node that a pod was ever seen on."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.places: defaultdict[str, set[str]] = defaultdict(set)  #: by uid
        self.members: dict[str, int] = {}

    async def submit(self, name: str, members: int, *, cards: int = 1) -> None:
        if members > 1:
            await self._client.json("POST", PODGROUPS.path(SPACE), body=gang(name, members))
        self.members[name] = members
        for i in range(members):
            of = name if members > 1 else ""
            await self._client.json("POST", PODS.path(SPACE), body=pod(f"{name}-{i}", of=of, cards=cards))

    async def delete(self, name: str) -> None:
        for i in range(self.members.pop(name)):
            await self._client.json("DELETE", PODS.path(SPACE, f"{name}-{i}"), expect=(200, 202))

    async def look(self) -> dict[str, int]:
        """Pods that have a node, by job."""
        bound = Counter[str]()
        for found in (await self._client.json("GET", PODS.path(SPACE)))["items"]:
            node = found["spec"].get("nodeName")
            if node:
                self.places[found["metadata"]["uid"]].add(node)
                bound[found["metadata"]["name"].rpartition("-")[0]] += 1
        return dict(bound)

    async def settled(self, *jobs: str) -> bool:
        bound = await self.look()
        return all(bound.get(job) == self.members[job] for job in jobs)


async def eventually(holds: Callable[[], Any], what: str, timeout_s: float = CONVERGES_S) -> None:
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not await holds():
        assert asyncio.get_running_loop().time() < deadline, f"{what}: not within {timeout_s:g} s"
        await asyncio.sleep(0.1)


@contextmanager
def ledger_stopped(platform: Up) -> Iterator[None]:
    """Killed as it is, and not started again meanwhile; everything else goes on."""
    platform.process.send_signal(signal.SIGSTOP)
    try:
        os.kill(platform.pids()["quota-ledger"], signal.SIGKILL)
        yield
    finally:
        platform.process.send_signal(signal.SIGCONT)


def wipe(url: str) -> None:
    """The disk is gone."""
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        for one in path.parent.glob(f"{path.name}*"):
            one.unlink()
        return
    with closing(psycopg.connect(url.replace("+psycopg", ""), autocommit=True)) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_wiped_ledger_gets_its_backup_back_and_the_platform_converges(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    words = ["--nodes", NODES]
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        words += ["--database", server.empty_database()]
    with up(tmp_path / "state", *words) as platform:
        url = json.loads((platform.state / "platform.json").read_text())["database_url"]
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
            world = World(client)
            await world.submit("before", 8)
            await world.submit("ends", 4)
            for i in range(6):
                await world.submit(f"single{i}", 1)
            await eventually(lambda: world.settled("before", "ends", "single5"), "the first jobs")
            await world.submit("huge", 48)  # more than is left: it waits while the backup is made
            file = tmp_path / "backup.db"
            made = await asyncio.to_thread(platform.hbox, "backup", str(file), "--database", url)
            assert made.returncode == 0, made.stderr
            head = made.stdout.partition("head: ")[2].strip()
            assert head

            # What only the lost end knows of: jobs that start, a job that ends, a gang in the middle of starting.
            await world.submit("after", 8)
            await world.delete("ends")
            await world.submit("single-after", 1)
            await eventually(lambda: world.settled("after", "single-after"), "jobs after the backup")
            await world.submit("flying", 8)
            refused = await asyncio.to_thread(platform.hbox, "restore", str(file), "--overwrite", "--database", url)
            assert refused.returncode == 6, f"the ledger runs: {refused.stdout}{refused.stderr}"
            with ledger_stopped(platform):
                await asyncio.to_thread(wipe, url)
                await world.submit("meanwhile", 4)
                restored = await asyncio.to_thread(platform.hbox, "restore", str(file), "--database", url)
                assert restored.returncode == 0, restored.stderr

            jobs = ("before", "after", "flying", "meanwhile", "single-after", *(f"single{i}" for i in range(6)))
            await eventually(lambda: world.settled(*jobs), "all jobs that fit")
            bound = await world.look()
            assert bound.get("huge", 0) == 0, "a gang that does not fit is not torn"
            assert not {uid: nodes for uid, nodes in world.places.items() if len(nodes) > 1}, "no pod twice"
            # Room comes back: what ended after the backup holds nothing any more.
            for name in ("before", "after", "flying", "meanwhile"):
                await world.delete(name)
            await eventually(lambda: world.settled("huge"), "the gang that waited over the restore")
        said = platform.json("audit")
        assert (said["faults"], said["checks"] > 20) == ([], True)
        proof = platform.hbox("audit", "--ledger", "--head", head)
        assert proof.returncode == 0, f"history goes on from the backup's: {proof.stdout}{proof.stderr}"
        log = (platform.state / "logs" / "quota-ledger.log").read_text()
        assert "the books were restored or lost their end" in log


def test_a_backup_can_be_looked_at_without_its_platform(tmp_path: Path) -> None:
    with up(tmp_path / "state") as platform:
        done = platform.hbox("backup", str(tmp_path / "b.db"))
        assert done.returncode == 0, done.stderr
        until(lambda: platform.process.poll() is None, timeout_s=1, what="it goes on")
        platform.stop()
        again = platform.hbox("backup", str(tmp_path / "c.db"))
        assert again.returncode == 0, "of a platform that does not run the folder's database is meant"
        assert platform.hbox("audit", "--ledger", "--database", f"sqlite:///{tmp_path / 'c.db'}").returncode == 0
        assert platform.hbox("restore", str(tmp_path / "b.db")).returncode == 0
    with closing(sqlite3.connect(tmp_path / "state" / "ledger.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
