"""health-monitor on a real broker, with the topology-collector, agents, the ledger and the binder played by the test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.errors import Unavailable
from hbox_common.events import (
    ClaimsAsked,
    ClaimsChanged,
    ClaimsPage,
    Event,
    HealthChanged,
    HealthPolicyAsked,
    HealthPolicyPage,
    HealthVerdict,
    NodeDecided,
    NodeStateChanged,
)
from hbox_common.model import (
    CardId,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    Generation,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    QueueName,
    Verdict,
)
from hbox_common.runtime import Health
from hbox_health.app import run
from hbox_health.settings import HealthSettings

from ...waiting import until


@dataclass
class HealthWorld:
    nats: EmbeddedServer
    bus: Bus
    folder: Path
    verdicts: list[Verdict] = field(default_factory=list)
    decisions: list[NodeDecided] = field(default_factory=list)
    events: list[HealthChanged] = field(default_factory=list)
    claims: dict[str, Claim] = field(default_factory=dict)
    index: int = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["HealthWorld"]:
        async def hear(deliveries: Sequence[Delivery]) -> None:
            for delivery in deliveries:
                match delivery.event:
                    case HealthVerdict(verdict=verdict):
                        self.verdicts.append(verdict)
                    case NodeDecided():
                        self.decisions.append(delivery.event)
                    case HealthChanged():
                        self.events.append(delivery.event)

        types: list[type[Event]] = [HealthVerdict, NodeDecided, HealthChanged]
        ears = [asyncio.create_task(self.bus.follow([t], hear, start=Start.ALL)) for t in types]
        ears.append(asyncio.create_task(self.bus.serve(ClaimsAsked, self._claims)))
        yield self
        for ear in ears:
            ear.cancel()
        await asyncio.gather(*ears, return_exceptions=True)

    @asynccontextmanager
    async def monitor(self, **settings: Any) -> AsyncIterator[Health]:
        health = Health("health-monitor")
        stored = {"health_database_url": f"sqlite:///{self.folder}/health.db"}
        config = HealthSettings(nats_url=self.nats.url, **({"recover_after_s": 0.5} | stored | settings))
        service = asyncio.create_task(run(config, health))
        await until(lambda: health.ready or service.done())
        while not service.done():  # a service is ready before it is subscribed to requests
            with suppress(Unavailable):
                await self.bus.ask(HealthPolicyAsked(asker="test"), HealthPolicyPage)
                break
            await asyncio.sleep(0.01)
        yield health
        service.cancel()
        with suppress(asyncio.CancelledError):
            await service

    async def _claims(self, _: ClaimsAsked) -> AsyncIterator[Event]:
        yield ClaimsPage(epoch=1, index=self.index, frozen=False, claims=tuple(self.claims.values()))

    async def run_pod(
        self, name: str, *cards: CardId, node: str = "n1", queue: str = "q", job: str = "", members: int = 1, ends: bool = False
    ) -> None:
        """A pod, of a job of its own or of a gang of `members`, as the ledger reports it."""
        claim = Claim(
            ClaimId(name), PodUid(name), "lab", name, JobId(f"lab/{job or name}"), PlanId(""), QueueName(queue), 0, NodeName(node), {},
            tuple(CardSlice(-1, 100, 0, card=card) for card in cards), ClaimState.VOID if ends else ClaimState.POSTED,
            min_member=members,
        )  # fmt: skip
        self.index += 1
        if ends:
            del self.claims[name]
        else:
            self.claims[name] = claim
        await self.bus.publish(ClaimsChanged(epoch=1, previous=self.index - 1, index=self.index, claims=(claim,)), "0")

    async def show(self, name: str = "n1", **facts: Any) -> None:
        base: dict[str, Any] = {"uid": name, "generation": Generation(1), "ready": True}
        await self.bus.publish(NodeStateChanged(node=NodeState(name=NodeName(name), **(base | facts))), name)

    def health(self, name: str = "n1") -> Verdict | None:
        return next((v for v in reversed(self.verdicts) if v.node == name), None)

    async def called(self, healthy: bool, name: str = "n1") -> Verdict:
        def now() -> bool:
            verdict = self.health(name)
            return verdict is not None and verdict.healthy is healthy

        await until(now)
        verdict = self.health(name)
        assert verdict is not None
        return verdict


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HealthWorld]:
    async with (
        EmbeddedServer(tmp_path / "nats") as nats,
        Bus.connect(nats.url, name="test", instance="test") as bus,
        HealthWorld(nats, bus, tmp_path).listening() as world,
    ):
        yield world
