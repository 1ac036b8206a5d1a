"""Leader and standby: of several processes of a service one acts, the others wait for its lease.

A standby has its connections, is ready (it serves its purpose), and does nothing: it waits for its `turn`. A leader that loses its lease exits, because its
memory may be stale, and its supervisor restarts it as a standby. If it notices the loss late, as after a long pause, that must be harmless: every effect is
fenced at its target (the ledger's epoch in its database row, uid and resourceVersion at the API server, ids in inboxes). So a leader that is stopped and does
not drain soon releases its lease before it has drained.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from hbox_common.errors import Unavailable
from hbox_common.telemetry import gauge

from .health import Health
from .settings import Settings

S = TypeVar("S", bound=Settings)

#: Seconds in which a leader drains, unless a service that it depends on is unavailable; standbys wait no longer.
HAND_OVER_S = 1.0

_TERM: ContextVar[int] = ContextVar("term", default=0)


def term() -> int:
    """Of the lease under which this process acts: the higher, the later; 0 = it was not elected."""
    return _TERM.get()


@dataclass(frozen=True, slots=True)
class _Turn:
    connected: asyncio.Event  #: this process is able to begin at once
    token: asyncio.Future[int]


_TURN: ContextVar[_Turn | None] = ContextVar("turn", default=None)


async def turn() -> None:
    """Return when this process is the one to act. For `run` of a service that is `led`: what comes before it, a standby does too."""
    if (mine := _TURN.get()) is not None:
        mine.connected.set()
        _TERM.set(await asyncio.shield(mine.token))


#: `component`, not `service`: the Prometheus operator's ServiceMonitors put a label of that name on everything.
LEADING = gauge("leading", "1 while this process leads its service, 0 while it is a standby", ["component"])


def led(
    service: str, run: Callable[[S, Health], Awaitable[None]], *, lease: Callable[[S], str] | None = None
) -> Callable[[S, Health], Awaitable[None]]:
    """Wraps `run`, which awaits `turn`: if the setting `leader_election` is on, `turn` returns only while this process holds the lease `service`, or the one
    that `lease` names.

    The returned coroutine raises Unavailable if the lease is lost, and InvalidRequest if the API server rejects it.
    """

    async def run_as_leader(settings: S, health: Health) -> None:
        name = service if lease is None else lease(settings)
        leading = LEADING.labels(name)
        if not settings.leader_election:
            leading.set(1)
            return await run(settings, health)
        condition = health.condition("leader")
        condition.bad("connecting")
        leading.set(0)
        mine = _Turn(asyncio.Event(), asyncio.get_running_loop().create_future())
        _TURN.set(mine)
        work = asyncio.ensure_future(run(settings, health))
        is_lost = False

        def begin(token: int) -> None:
            condition.ok(f"leading, token {token}")
            leading.set(1)
            mine.token.set_result(token)

        def kept_from_it(why: str) -> None:
            if why:
                condition.bad(f"standing by, and kept from leading: {why}")
            else:
                condition.ok("standing by")

        def stop() -> None:
            """The work ends before the lease is given back, which takes as long as a slow API server does."""
            nonlocal is_lost
            is_lost = True
            leading.set(0)
            work.cancel()

        async def lead() -> None:
            from hbox_common.kube import KubeClient, Lease  # noqa: PLC0415  most processes of a small installation never need it

            async with KubeClient.connect(settings.kubeconfig, user_agent=f"hbox-{service}") as client:
                await mine.connected.wait()
                condition.ok("standing by")
                held = Lease(
                    client, settings.lease_namespace, name, settings.instance, settings.lease_duration_s, report=kept_from_it
                )
                async with held.hold() as grant:
                    begin(grant.token)
                    try:
                        await grant.lost.wait()
                    except asyncio.CancelledError:
                        work.cancel()
                        await asyncio.wait([work], timeout=HAND_OVER_S)
                        raise
                    stop()
                    raise Unavailable(f"the lease {settings.lease_namespace}/{name} was lost", hint="another process leads now")

        leads = asyncio.ensure_future(lead())
        try:
            await asyncio.wait([work, leads], return_when=asyncio.FIRST_COMPLETED)
            await (work if work.done() and not is_lost else leads)
        finally:
            leads.cancel()
            work.cancel()
            await asyncio.gather(work, leads, return_exceptions=True)

    return run_as_leader
