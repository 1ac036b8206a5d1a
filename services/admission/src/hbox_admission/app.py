"""The admission endpoint: receives reviews of API servers, returns patches.

Its replicas are interchangeable: they store nothing, and what they know of namespaces and queues (`watch_cluster`) they watch. If none answers, API servers
admit pods unchanged (failurePolicy Ignore), and job-controller reports what each pod lacks.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from hbox_common.bus.metrics import CERTIFICATE_BEGAN, CERTIFICATE_ENDS
from hbox_common.errors import InvalidRequest
from hbox_common.kube import KubeClient
from hbox_common.model import scheduler_names
from hbox_common.model.devices.sizes import Size, parse_sizes
from hbox_common.runtime import Health, WatchedFile
from hbox_common.runtime.certificate import Certificate

from . import metrics
from .adapters.cluster import Cluster
from .adapters.server import AdmissionServer
from .core import Rules
from .settings import AdmissionSettings

log = logging.getLogger(__name__)

#: In metrics, next to the broker's and its clients' certificates.
CERTIFICATE = "admission"


async def run(settings: AdmissionSettings, health: Health) -> None:
    """The service, until cancelled. Raises InvalidRequest for a certificate or a catalogue that is none at the start."""
    if not settings.watch_cluster:
        await Admission(settings, health).run()
        return
    async with KubeClient.connect(settings.kubeconfig, user_agent="hbox-admission") as client:
        await Admission(settings, health, client).run()


class Admission:
    def __init__(self, settings: AdmissionSettings, health: Health, client: KubeClient | None = None) -> None:
        self._settings, self._health = settings, health
        self._cluster = Cluster(client, scheduler_names(settings.scheduler_names)) if client is not None else None
        self._certificate = Certificate(settings.tls_certificate, settings.tls_key)
        self._sizes = _watched(settings.sizes_file) if settings.sizes_file is not None else None
        self._rules = self._ruled()
        health.remarks["certificate"] = lambda: self._certificate.problem
        health.remarks["sizes"] = lambda: self._sizes.problem if self._sizes is not None else ""

    def _ruled(self) -> Rules:
        settings = self._settings
        return Rules(
            scheduler_names(settings.scheduler_names),
            settings.force_overwrite_default_scheduler,
            self._sizes.value if self._sizes is not None else {},
        )

    async def run(self) -> None:
        listening = self._health.condition("listening")
        self._export_certificate()
        host, port = self._settings.listen_host, self._settings.listen_port
        async with (
            AdmissionServer(self._certificate, lambda: self._rules, host=host, port=port, cluster=self._cluster) as server,
            asyncio.TaskGroup() as group,
        ):
            log.info("answering on %s", server.port, extra={"port": server.port, "sizes": len(self._rules.sizes)})
            group.create_task(self._certificate.watch(self._export_certificate))
            if self._cluster is not None:
                group.create_task(self._cluster.run(self._health.condition("cluster")))
            if self._sizes is not None:
                group.create_task(self._sizes.watch(self._take_sizes))
            listening.ok()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # It is out of the Service's endpoints now, and API servers hear of that a moment later.
                listening.bad("stopping")
                await asyncio.sleep(self._settings.linger_s)
                raise

    def _take_sizes(self, _: Mapping[str, Size]) -> None:
        self._rules = self._ruled()

    def _export_certificate(self) -> None:
        CERTIFICATE_ENDS.labels(CERTIFICATE, "").set(self._certificate.validity.ends)
        CERTIFICATE_BEGAN.labels(CERTIFICATE, "").set(self._certificate.validity.begins)
        metrics.UNREADABLE.labels("certificate").set(bool(self._certificate.problem))


def _watched(path: Path) -> WatchedFile[Mapping[str, Size]]:
    def parse(text: str) -> Mapping[str, Size]:
        return {size.name: size for size in parse_sizes(text)}

    def refused(wrong: bool) -> None:
        metrics.UNREADABLE.labels("sizes").set(wrong)

    refused(False)
    try:
        return WatchedFile(path, parse, setting="sizes_file", what="a catalogue of sizes", refused=refused)
    except InvalidRequest as e:
        raise InvalidRequest(e.message, hint=e.hint or "`hbox sizes --default` prints one to begin with") from e
