"""Leader and standby: of several processes of a service one acts, the others wait for its lease.

A standby is ready (it serves its purpose) and does nothing. A leader that loses its lease ends its process: whatever it had in memory may be
old, and its keeper starts it again, as a standby. That it noticed too late, as after a long pause, must be harmless all the same: every
effect is fenced where it lands (the ledger's epoch in its database row, uid and resourceVersion at the API server, ids in inboxes).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

from hbox_common.errors import Unavailable
from hbox_common.telemetry import gauge

from .health import Health
from .settings import Settings

S = TypeVar("S", bound=Settings)

_TERM: ContextVar[int] = ContextVar("term", default=0)


def term() -> int:
    """Of the lease under which this process acts: the higher, the later; 0 = it was not elected."""
    return _TERM.get()


#: `component`, not `service`: the Prometheus operator's ServiceMonitors put a label of that name on everything.
LEADING = gauge("leading", "1 while this process acts for its service, 0 while it stands by", ["component"])


def led(
    service: str, run: Callable[[S, Health], Awaitable[None]], *, lease: Callable[[S], str] | None = None
) -> Callable[[S, Health], Awaitable[None]]:
    """`run`, but where the setting `leader_election` is on only while this process holds the lease `service`, or what `lease` says.

    The returned coroutine raises Unavailable when the lease is lost, and InvalidRequest when the API refuses it.
    """

    async def run_as_leader(settings: S, health: Health) -> None:
        name = service if lease is None else lease(settings)
        leading = LEADING.labels(name)
        if not settings.leader_election:
            leading.set(1)
            return await run(settings, health)
        from hbox_common.kube import KubeClient, Lease  # noqa: PLC0415  most processes of a small installation never need it

        condition = health.condition("leader")
        condition.ok("standing by")
        leading.set(0)
        async with KubeClient.connect(settings.kubeconfig, user_agent=f"hbox-{service}") as client:
            held = Lease(client, settings.lease_namespace, name, settings.instance, settings.lease_duration_s)
            async with held.hold() as grant:
                condition.ok(f"leading, token {grant.token}")
                leading.set(1)
                _TERM.set(grant.token)
                work = asyncio.ensure_future(run(settings, health))
                lost = asyncio.ensure_future(grant.lost.wait())
                try:
                    await asyncio.wait([work, lost], return_when=asyncio.FIRST_COMPLETED)
                    if not work.done():
                        raise Unavailable(
                            f"the lease {settings.lease_namespace}/{name} was lost", hint="another process leads now"
                        )
                    await work
                finally:
                    work.cancel()
                    lost.cancel()
                    await asyncio.gather(work, lost, return_exceptions=True)

    return run_as_leader
