"""A console on a real broker and the emulated API, with job-controller, ledger and collector played by the test."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hbox_common.bus import Bus, EmbeddedServer, Endpoint
from hbox_common.events import (
    ClaimsAsked,
    ClaimsPage,
    Event,
    JobsAsked,
    JobsPage,
    JobVerdict,
    NodeStateChanged,
    QueueStateChanged,
)
from hbox_common.kube import KubeClient, apply
from hbox_common.model import Claim, Job, NodeState, PodFact, Queue, QueueName
from hbox_common.runtime import Health
from hbox_console.app import Console
from hbox_console.settings import ConsoleSettings
from hbox_sandbox.api import ApiServer

from ...waiting import until

RBAC = "rbac.authorization.k8s.io"


@dataclass
class World:
    """`ask`: as one user. `console`: the service under test."""

    nats: EmbeddedServer
    api: ApiServer
    bus: Bus
    client: KubeClient
    session: aiohttp.ClientSession
    jobs: list[Job] = field(default_factory=list)
    pods: list[PodFact] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    lists: int = 0  #: of jobs that were read
    computed: bool = True
    paused: str = ""  #: why evictions pause
    console: Console | None = None
    health: Health = field(default_factory=lambda: Health("console"))

    async def _jobs(self, _: JobsAsked) -> AsyncIterator[Event]:
        verdicts = tuple(
            JobVerdict(job=job.id, message=self.reasons[job.name]) for job in self.jobs if job.name in self.reasons
        )
        self.lists += 1
        yield JobsPage(complete=True, computed=self.computed, jobs=tuple(self.jobs), pods=tuple(self.pods), verdicts=verdicts)

    async def _claims(self, _: ClaimsAsked) -> AsyncIterator[Event]:
        yield ClaimsPage(epoch=1, index=1, frozen=False, claims=tuple(self.claims), paused=self.paused)

    async def node(self, node: NodeState) -> None:
        await self.bus.publish(NodeStateChanged(node=node), node.name)

    async def queue(self, name: str, *, parent: str = "", used: int = 0) -> None:
        queue = Queue(QueueName(name), parent=parent)
        amounts = {"nvidia.com/gpu": used} if used else {}
        await self.bus.publish(QueueStateChanged(queue=queue, used=amounts, epoch=1, index=1), name)

    @asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator["World"]:
        config = ConsoleSettings(nats_url=self.nats.url, **settings)
        self.health = Health("console")
        self.console = console = Console(config, self.health, self.bus, self.client)
        servers = [
            asyncio.create_task(self.bus.serve(JobsAsked, self._jobs)),
            asyncio.create_task(self.bus.serve(ClaimsAsked, self._claims)),
        ]
        service = asyncio.create_task(console.run())
        try:
            await until(lambda: (self.health.ready and console.port > 0) or service.done())
            assert not service.done(), service
            yield self
        finally:
            for task in (service, *servers):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await service
            await asyncio.gather(*servers, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self.console is not None
        return f"http://127.0.0.1:{self.console.port}"

    async def ask(
        self, path: str, *, user: str = "anna", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Status, body and headers."""
        token = {"Authorization": f"Bearer sandbox:{user}"} if user else {}
        async with self.session.get(f"{self.url}{path}", headers={**token, **(headers or {})}) as answer:
            text = await answer.text()
            body = await answer.json(content_type=None) if text and "json" in answer.content_type else text
            return answer.status, body, answer.headers

    async def allow(self, user: str, namespace: str = "", *, rule: Mapping[str, Any]) -> str:
        """A role with one rule, in all namespaces or one; returns its name."""
        name = f"{user}-{namespace or 'all'}-{rule['resources'][0]}".lower()
        kind = "Role" if namespace else "ClusterRole"
        where = {"namespace": namespace} if namespace else {}
        if namespace:
            await apply(
                self.client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, field_manager="test"
            )
        for manifest in (
            {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name, **where}, "rules": [dict(rule)]},
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": f"{kind}Binding",
                "metadata": {"name": name, **where},
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
                "subjects": [{"kind": "User", "name": user}],
            },
        ):
            await apply(self.client, manifest, field_manager="test")
        return name

    async def two_tenants(self, *, used: int) -> None:
        """Queues `mine` and `theirs` with `used` cards each. Anna sees queue `mine` and the jobs of ns-a."""
        for name in ("mine", "theirs"):
            await self.queue(name, used=used)
        await self.allow("anna", "ns-a", rule=PODS)
        await self.allow("anna", rule=queues("mine"))

    @asynccontextmanager
    async def scheduler(self, *endpoints: Endpoint) -> AsyncIterator[None]:
        """A scheduler-core with these endpoints."""
        async with Bus.connect(self.nats.url, name="scheduler-core", instance="test") as bus:
            task = asyncio.create_task(bus.offer(endpoints, version="1", about="a scheduler"))
            await asyncio.sleep(0.2)  # its subscriptions
            yield
            task.cancel()

    async def forbid(self, name: str, namespace: str) -> None:
        await self.client.json("DELETE", f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings/{name}")


PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
PODGROUPS = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": ["get"]}
NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}


def queues(*names: str, verb: str = "get") -> dict[str, Any]:
    return {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "resourceNames": list(names), "verbs": [verb]}


@pytest.fixture
async def world(nats: EmbeddedServer, tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServer())
        client = await stack.enter_async_context(
            KubeClient.connect(str(api.kubeconfig(tmp_path / "kubeconfig")), user_agent="hbox-test")
        )
        bus = await stack.enter_async_context(Bus.connect(nats.url, name="console", instance="test"))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield World(nats, api, bus, client, session)
