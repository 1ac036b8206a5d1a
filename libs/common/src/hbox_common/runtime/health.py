"""Health of a process, for kubelets and people: /healthz (the event loop turns), /readyz (every condition is good), /metrics."""

import json
from dataclasses import dataclass, field

from aiohttp import web

from hbox_common.redaction import redacted
from hbox_common.telemetry import exposition, gauge

CONDITIONS = gauge(
    "condition", "1 where a condition of readiness is good, 0 where it is not, as /readyz tells it", ["condition"]
)


@dataclass(slots=True)
class Condition:
    """One thing that has to be good before the service is ready: `bus`, `kube`, `synced`, ..."""

    name: str
    good: bool = False
    message: str = "starting"

    def ok(self, message: str = "") -> None:
        self.good, self.message = True, redacted(message)

    def bad(self, message: str) -> None:
        self.good, self.message = False, redacted(message)


@dataclass(slots=True)
class Health:
    """The conditions of this process. No condition at all is not ready: a service names what it needs."""

    service: str
    conditions: dict[str, Condition] = field(default_factory=dict)

    def condition(self, name: str) -> Condition:
        """The condition of that name; made, as not yet good, when it is new."""
        return self.conditions.setdefault(name, Condition(name))

    @property
    def ready(self) -> bool:
        return bool(self.conditions) and all(c.good for c in self.conditions.values())

    def report(self) -> dict[str, object]:
        return {
            "service": self.service,
            "ready": self.ready,
            "conditions": {c.name: {"good": c.good, "message": c.message} for c in self.conditions.values()},
        }


class HealthServer:
    """Serves `health` on host:port; `port` is the one bound. Raises OSError where it cannot be bound."""

    def __init__(self, health: Health, *, host: str, port: int) -> None:
        self._health, self._host, self.port = health, host, port
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "HealthServer":
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        report = self._health.report()
        return web.json_response(
            report, status=200 if self._health.ready else 503, dumps=lambda o: json.dumps(o, indent=1) + "\n"
        )

    async def _metrics(self, _: web.Request) -> web.Response:
        for condition in self._health.conditions.values():
            CONDITIONS.labels(condition.name).set(condition.good)
        return web.Response(body=exposition(), content_type="text/plain", charset="utf-8")
