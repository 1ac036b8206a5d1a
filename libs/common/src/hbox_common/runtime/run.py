"""How every service process starts, serves and stops.

settings -> logs -> traces -> health endpoints -> run(settings, health). SIGTERM and SIGINT cancel run(), which is how a service stops: its
context managers drain on the way out, within DRAIN_S. A service that ends by itself, or fails, ends the process, so that its keeper starts
it anew. Exit statuses: 0 asked to stop, 1 failed, 2 wrong settings, 6 another party cannot be reached.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import NoReturn, TypeVar

from hbox_common.bus.agreement import AGREEMENT
from hbox_common.clock import run_faster
from hbox_common.deepjson import read_deep_json
from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.loops import new_event_loop
from hbox_common.telemetry import gauge, logs, tracing

from .devices import configure_devices
from .health import Health, HealthServer
from .profile import profiled
from .settings import Settings, current_secret, help_text, load
from .turns import LoopTurns

S = TypeVar("S", bound=Settings)

log = logging.getLogger(__name__)

BUILD = gauge("build_info", "1; component and version of this process", ["component", "version"])

DRAIN_S = 10.0

EXIT_FAILED = 1
EXIT_SETTINGS = 2
EXIT_UNAVAILABLE = 6


def main(service: str, settings: type[S], run: Callable[[S, Health], Awaitable[None]]) -> NoReturn:
    """The whole of a service's `__main__`."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(help_text(settings, service), end="")  # noqa: T201  as asked for
        sys.exit(0)
    try:
        config = load(settings, service)
        warnings = configure_devices(device_config=config.device_config, card_resources=config.card_resources)
    except InvalidRequest as e:
        print(f"{service}: {e}", file=sys.stderr)  # noqa: T201  logs are not set up yet
        sys.exit(EXIT_SETTINGS)
    logs.setup(service, level=config.log_level, style=config.log_format)
    for warning in warnings:
        log.warning("%s", warning)
    if config.time_scale != 1.0:
        run_faster(config.time_scale, config.time_scale_since)
        log.warning("the wall clock runs %g times as fast as the machine's: for emulated clusters only", config.time_scale)
    tracing.setup(service, config.instance)
    BUILD.labels(service, version("hbox-common")).set(1)
    collect_seldom()
    read_deep_json()
    gc.freeze()  # what was imported stays, and need not be walked again
    try:
        with profiled(service, config.profile), asyncio.Runner(loop_factory=new_event_loop) as runner:
            status = runner.run(_serve(service, config, run))
    finally:
        tracing.shutdown()
    sys.exit(status)


def collect_seldom() -> None:
    """Long-lived columns and caches make the default collector traverse everything repeatedly: 70 % of decode time (sources: kubernetes-client). The
    middle generation has 200,000 objects at most, whose traversal takes some 20 ms: the longest pause."""
    gc.set_threshold(50_000, 4, 250)


class LongLived:
    """Keeps the collector from traversing a service's long-lived data: for 100,000 pods a traversal takes half a second, in which the process stops. `step`:
    number of new objects that are frozen together, after one traversal: for 500 jobs some 10 ms.

    Frozen objects are still freed with their last reference; only cycles among them remain, until half of the objects are gone: then the rest is traversed
    once.
    """

    def __init__(self, step: int = 500) -> None:
        self._step, self._frozen = step, 0

    def holds(self, count: int) -> None:
        """Report the present number from time to time."""
        if count >= self._frozen + self._step:
            gc.collect(1)  # what is garbage already is not kept
            gc.freeze()
            self._frozen = count
        elif self._frozen and count < self._frozen // 2:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._frozen = count


async def _serve(service: str, settings: S, run: Callable[[S, Health], Awaitable[None]]) -> int:
    drain_s = settings.drain_s or DRAIN_S
    health = Health(service, remarks={"devices": AGREEMENT.trouble})
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    work: asyncio.Future[None]

    def abandon() -> None:
        log.critical("%s did not drain within %s s", service, drain_s)
        os._exit(EXIT_FAILED)

    def stop() -> None:
        if not stopping.is_set():
            loop.call_later(drain_s, abandon)
        stopping.set()
        work.cancel()

    try:
        # Before any work: a process that cannot be asked whether it is well ends at once, and its keeper starts it again.
        async with (
            HealthServer(
                health,
                host=settings.health_host,
                port=settings.health_port,
                token=lambda: current_secret(settings, "metrics_token"),
            ) as server,
            LoopTurns(service, limit_s=settings.long_turn_ms / 1000, stage=lambda: health.stage),
        ):
            work = asyncio.ensure_future(run(settings, health))
            for sig in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(sig, stop)
            log.info("%s started", service, extra={"instance": settings.instance, "health_port": server.port})
            await asyncio.wait([work])
            if stopping.is_set():
                return 0
            work.result()
            log.error("%s ended by itself", service)
            return EXIT_FAILED
    except (HBoxError, OSError) as e:
        return _fail(service, e)
    except BaseExceptionGroup as group:
        known, unknown = group.split((HBoxError, OSError))
        if unknown is not None:
            log.critical("%s failed", service, exc_info=group)
            return EXIT_FAILED
        assert known is not None
        return _fail(service, _first(known))
    except Exception as e:  # the last handler of the process
        log.critical("%s failed: %s", service, e, exc_info=e)
        return EXIT_FAILED


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _fail(service: str, error: BaseException) -> int:
    message, hint = (error.message, error.hint) if isinstance(error, HBoxError) else (str(error), "")
    log.critical("%s: %s", service, message, extra={"hint": hint} if hint else None)
    if isinstance(error, Unavailable):
        return EXIT_UNAVAILABLE
    return EXIT_SETTINGS if isinstance(error, InvalidRequest) else EXIT_FAILED
