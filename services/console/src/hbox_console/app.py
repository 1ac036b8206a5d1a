"""The console process: follows the bus into a read model, and answers HTTP requests by the clients' rights.

It stores nothing, so its replicas are interchangeable. If the broker is away, answers have the last known state (and the service is not ready); if the API
server is away, nothing is shown, since no client's rights are known.
"""

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.bus.metrics import CERTIFICATE_BEGAN, CERTIFICATE_ENDS
from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest
from hbox_common.insisting import insist
from hbox_common.kube import KubeClient
from hbox_common.runtime import Health, LongLived, connected
from hbox_common.runtime.certificate import Certificate

from . import metrics
from .adapters import clientca, owncertificate
from .adapters.feed import Feed
from .adapters.gate import Gate
from .adapters.handlers import Handlers
from .adapters.questions import Questions
from .adapters.reviews import Reviews
from .adapters.server import ApiServer, renew
from .adapters.watches import Watches
from .core.history import History
from .core.model import ReadModel
from .settings import ConsoleSettings

log = logging.getLogger(__name__)

TICK_S, STARTING_S = 1.0, 0.05
#: In metrics, next to the broker's and its clients' certificates.
CERTIFICATE = "console"


async def run(settings: ConsoleSettings, health: Health) -> None:
    """The service, until cancelled. Raises InvalidRequest for a certificate that is none at the start."""
    health.condition("bus")
    async with (
        connected(settings) as bus,
        KubeClient.connect(settings.kubeconfig, user_agent="hbox-console") as client,
    ):
        await Console(settings, health, bus, client).run()


class Console:
    def __init__(self, settings: ConsoleSettings, health: Health, bus: Bus, client: KubeClient) -> None:
        self._settings, self._health, self._bus, self._client = settings, health, bus, client
        self.model, self.history = ReadModel(), History()
        self._reviews = Reviews(client, lasts_s=settings.review_cache_s)
        self._feed = Feed(bus, self.model, self.history, instance=settings.instance)
        self._certificate: Certificate | None = None
        self.port = 0
        health.remarks["certificate"] = lambda: self._certificate.problem if self._certificate is not None else ""

    async def run(self) -> None:
        settings = self._settings
        listening = self._health.condition("listening")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed.run())
            group.create_task(self._keep_time())
            await self._read_certificate(group)
            handlers = Handlers(self.model, self._reviews)
            questions = Questions(self._bus, self.model, self.history, self._reviews, handlers)
            gate = Gate()
            watches = Watches(self.model, self._reviews, handlers, gate, most=settings.watches)
            answers = {
                "whoami": handlers.whoami,
                "jobs": handlers.jobs,
                "job": handlers.job,
                "queues": handlers.queues,
                "queue": handlers.queue,
                "nodes": handlers.nodes,
                "node": handlers.node,
                "cards": handlers.cards,
                "nodeCards": questions.node_cards,
                "explanation": questions.explanation,
                "nodeRules": questions.node_rules,
                "placement": questions.placement,
                "share": questions.share,
                "usage": questions.usage,
                "events": questions.events,
                "evictions": questions.evictions,
                "evicted": questions.evicted,
                "evictionPause": questions.eviction_pause,
            }
            async with ApiServer(
                answers,
                {"watch": watches.watch},
                self._reviews,
                self._health,
                gate,
                certificate=self._certificate,
                host=settings.listen_host,
                port=settings.listen_port,
                connections=settings.connections,
            ) as server:
                self.port = server.port
                watches.renew, watches.identify = renew, server.identity
                log.info("answering on %s", server.port, extra={"port": server.port})
                listening.ok()
                await asyncio.Event().wait()

    async def _read_certificate(self, group: asyncio.TaskGroup) -> None:
        settings = self._settings
        paths = settings.tls_certificate, settings.tls_key
        if settings.tls_secret:
            paths = await insist(
                lambda: owncertificate.keep(
                    self._client,
                    namespace=settings.lease_namespace,
                    name=settings.tls_secret,
                    names=settings.names,
                    folder=Path(tempfile.gettempdir()) / "hbox-console-tls",
                ),
                on_unavailable=lambda e: log.warning("the certificate cannot be read yet: %s", e),
            )
        if paths[0] is None or paths[1] is None:
            return
        authority = await clientca.client_ca(self._client) if settings.client_certificates else ""
        self._certificate = certificate = Certificate(paths[0], paths[1], client_ca=authority)
        self._export_certificate()
        group.create_task(certificate.watch(self._export_certificate))
        if authority:
            group.create_task(clientca.watch(self._client, authority, self._trust))

    def _trust(self, authority: str) -> None:
        assert self._certificate is not None
        try:
            self._certificate.trust_clients_of(authority)
        except InvalidRequest as e:
            log.error("the former client CA stays: %s", e)

    def _export_certificate(self) -> None:
        if self._certificate is not None:
            CERTIFICATE_ENDS.labels(CERTIFICATE, "").set(self._certificate.validity.ends)
            CERTIFICATE_BEGAN.labels(CERTIFICATE, "").set(self._certificate.validity.begins)

    async def _keep_time(self) -> NoReturn:
        on_bus, synced = self._health.condition("bus"), self._health.condition("synced")
        memory, current_at = LongLived(), monotonic_s()
        while True:
            if self._bus.connected:
                on_bus.ok()
            else:
                on_bus.bad("NATS cannot be reached")
            if self._feed.ready:
                synced.ok()
            else:
                synced.bad(f"not read yet: {self._feed.missing}")
            if self._bus.connected and self._feed.ready:
                current_at = monotonic_s()
            metrics.STALE_SECONDS.set(monotonic_s() - current_at)
            for kind, count in (
                ("job", len(self.model.jobs)),
                ("queue", len(self.model.queues)),
                ("node", len(self.model.nodes)),
            ):
                metrics.OBJECTS.labels(kind).set(count)
            self._reviews.export()
            memory.holds(len(self.model.jobs))
            await asyncio.sleep(TICK_S if self._health.ready else STARTING_S)
