"""A cluster, the platform's services and their users, in virtual time.

`World` has `api` (the store of the emulated API server is `api.store`), `broker`, `disk`, `now` (virtual seconds) and `ledger_path`.
"""

import asyncio
import contextvars
import logging
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO, Any

import hbox_binder.app
import hbox_binder.settings
import hbox_common.bus.client
import hbox_health.app
import hbox_health.settings
import hbox_jobs.app
import hbox_jobs.settings
import hbox_ledger.app
import hbox_ledger.settings
import hbox_scheduler.app
import hbox_scheduler.settings
import hbox_topology.app
import hbox_topology.settings
from hbox_cli.platform.crds import bring, bring_levels
from hbox_common.errors import Unavailable
from hbox_common.runtime import Health, led
from hbox_common.runtime.settings import Settings
from hbox_sandbox.api.resources import PODS as POD_TYPE

from .api import SimApi
from .broker import Broker, SimConnection
from .digest import Digest
from .disk import Disk, template
from .faults import STATEFUL, Fault
from .inflict import Inflictor
from .loop import PROCESS, Process, VirtualLoop, replaced, virtual
from .users import ENDS_S, Users

log = logging.getLogger(__name__)

#: Virtual seconds after which a service that ended is started again.
RESTART_S = 1.0
#: Pods that arrive in a virtual second, as seeds choose.
RATES = (1.0, 2.0, 4.0, 8.0)
#: Settings of services, of which seeds choose: defaults, deadlines that pauses exceed, and limits that slow evictions down.
CHOICES: dict[str, dict[str, tuple[float, ...]]] = {
    "scheduler-core": {"gang_deadline_s": (60.0, 20.0, 10.0)},
    "quota-ledger": {"evictions_most": (0, 0, 0, 4)},
    "binder": {"evictions_per_min": (2000.0, 2000.0, 2000.0, 6.0)},
}
#: Virtual seconds after which the load begins at the latest.
READY_S = 5.0


@dataclass(frozen=True, slots=True)
class Service:
    run: Callable[[Any, Health], Awaitable[None]]
    settings: Callable[..., Settings]


SERVICES: dict[str, Service] = {
    "topology-collector": Service(hbox_topology.app.run, hbox_topology.settings.TopologySettings),
    "quota-ledger": Service(led("quota-ledger", hbox_ledger.app.run), hbox_ledger.settings.LedgerSettings),
    "scheduler-core": Service(led("scheduler-core", hbox_scheduler.app.run), hbox_scheduler.settings.SchedulerSettings),
    "binder": Service(led("binder", hbox_binder.app.run), hbox_binder.settings.BinderSettings),
    "job-controller": Service(led("job-controller", hbox_jobs.app.run), hbox_jobs.settings.JobControllerSettings),
    "health-monitor": Service(led("health-monitor", hbox_health.app.run), hbox_health.settings.HealthSettings),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed runs."""

    seed: int
    seconds: float = 120.0
    nodes: int = 0  #: 0: the seed's choice
    pods_per_s: float = 0.0  #: 0: the seed's choice of RATES
    wide: bool = False  #: with faults of `faults.WIDE`, chosen settings, and restrictive users


class World:
    """Made and run by `simulate`."""

    def __init__(self, plan: Plan, loop: VirtualLoop, folder: Path, digest: Digest, faults: Sequence[Fault]) -> None:
        self.plan, self.loop, self.folder, self.digest = plan, loop, folder, digest
        self.chance = Random(plan.seed)
        self.faults = faults
        self.skews: dict[str, float] = {}  #: seconds of each service's wall clock
        self._bound = 0
        self.broker = Broker(loop, Random(f"broker {plan.seed}"), digest)
        self.api = SimApi(loop, Random(f"api {plan.seed}"), digest)
        self.disk = Disk(loop, Random(f"disk {plan.seed}"), digest)
        self.processes: dict[str, Process] = {}
        self.healths: dict[str, Health] = {}
        self.ended: list[tuple[float, str, str]] = []  #: services that failed: when, which, why
        self.restarts = 0  #: of services that ended by themselves
        self._graveyard: list[Any] = []
        self._runs = 0
        self._context = contextvars.copy_context()
        self._admin = self.api.client("sim-admin")
        nodes = plan.nodes or self.chance.randint(6, 40)
        rate = plan.pods_per_s or self.chance.choice(RATES)
        settings = Random(f"settings {plan.seed}")
        self.settings: dict[str, dict[str, float]] = {}
        if plan.wide:
            self.settings = {
                service: {name: settings.choice(values) for name, values in names.items()} for service, names in CHOICES.items()
            }
        self.users = Users(
            self._admin, self.api.cluster, Random(f"users {plan.seed}"), nodes=nodes, pods_per_s=rate, wide=plan.wide
        )

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.loop.now

    @property
    def ledger_path(self) -> Path:
        """The ledger's SQLite database."""
        return self.folder / "quota-ledger.db"

    @property
    def limits_evictions(self) -> bool:
        """Whether the seed's settings slow evictions down."""
        ledger, binder = self.settings.get("quota-ledger", {}), self.settings.get("binder", {})
        return ledger.get("evictions_most", 0) > 0 or binder.get("evictions_per_min", 2000) < 2000

    @property
    def pods_bound(self) -> int:
        return self._bound

    @property
    def pods_waiting(self) -> int:
        pods = self.api.store.collection(POD_TYPE.storage).entries.values()
        return sum(not pod.fields["spec.nodeName"] for pod in pods)

    def later(self, at: float, what: Callable[[], object]) -> None:
        """Call at a virtual second, outside of the services."""
        self.loop.call_at(at, what, context=self._context)

    # --- processes

    def start(self, name: str) -> Process:
        """Run a service as a new process."""
        self._runs += 1
        process = Process(name, f"{name}-{self._runs}", self.skews.get(name, 0.0))
        service, health = SERVICES[name], Health(name)
        urls = {
            "quota-ledger": {"database_url": f"sqlite:///{self.ledger_path}"},
            "health-monitor": {"health_database_url": f"sqlite:///{self.folder / 'health-monitor.db'}"},
        }
        settings = service.settings(instance=process.instance, **urls.get(name, {}), **self.settings.get(name, {}))
        context = self._context.copy()
        context.run(PROCESS.set, process)
        process.task = self.loop.create_task(_awaited(service.run(settings, health)), context=context)
        process.task.add_done_callback(lambda task: self._ended(process, task), context=self._context)
        self.processes[name], self.healths[name] = process, health
        return process

    def _ended(self, process: Process, task: asyncio.Task[None]) -> None:
        if not process.alive or task.cancelled():
            return
        process.alive = False
        error = task.exception()
        self.restarts += 1
        if error is None or not _is_unavailable(error):
            self.ended.append((self.now, process.service, f"{type(error).__name__}: {error}"))
        log.error("%s ended", process.instance, exc_info=error)
        self._bury(process)
        self.loop.call_later(RESTART_S, self.start, process.service, context=self._context)

    def kill(self, name: str, *, away_s: float = RESTART_S) -> None:
        """End a process without any clean-up; a new one starts after `away_s`."""
        process = self.processes[name]
        if not process.alive:
            return
        process.alive = False
        self._bury(process)
        self.loop.call_later(away_s, self.start, name, context=self._context)

    def _bury(self, process: Process) -> None:
        # Kept, so that no clean-up runs when the collector finds its tasks.
        self._graveyard.append(asyncio.all_tasks(self.loop))
        self.disk.closed_by_death(process)
        for link in list(self.broker.links):
            if link.process is process:
                self.broker.detach(link)

    # --- the run

    async def main(self) -> None:
        """Set the cluster up, run the services and the load until the end."""
        self.api.on_write.append(self._count)
        for work in self.api.tasks():
            self._graveyard.append(self.loop.create_task(_awaited(work)))
        self._graveyard.append(self.loop.create_task(self.broker.run()))
        await bring(self._admin, lambda _: None)
        await bring_levels(self._admin, lambda _: None)
        await self.users.make()
        for name in STATEFUL:
            (self.folder / f"{name}.db").write_bytes(template(name))
        for name in SERVICES:
            self.start(name)
        Inflictor(self, self.faults)
        while self.now < READY_S and not all(health.ready for health in self.healths.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        load = self.loop.create_task(self.users.run())
        self._graveyard.append(load)
        await asyncio.sleep(max(0.0, self.plan.seconds - ENDS_S - self.now))
        if load.done():
            load.result()
        load.cancel()
        await self.users.mend()
        await asyncio.sleep(max(0.0, self.plan.seconds - self.now))

    def _count(self, storage: str, event: Any) -> None:
        if storage == POD_TYPE.storage and event.previous is not None:
            self._bound += bool(event.version.fields["spec.nodeName"]) and not event.previous.fields["spec.nodeName"]


def _is_unavailable(error: BaseException) -> bool:
    """A service whose database or API server is unavailable at its start ends, and is started again."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_unavailable(one) for one in error.exceptions)
    return isinstance(error, Unavailable)


async def _awaited(work: Awaitable[None]) -> None:
    await work


@contextmanager
def prepared(plan: Plan, faults: Sequence[Fault] = (), *, trace: IO[str] | None = None) -> Iterator[World]:
    """A world with all doors in place."""
    loop = VirtualLoop()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hbox-sim-", dir=_memory())))
        stack.enter_context(virtual(loop, Random(f"chance {plan.seed}")))
        world = World(plan, loop, folder, Digest(loop, trace), faults)
        SimConnection.broker = world.broker
        stack.enter_context(world.api.installed())
        stack.enter_context(world.disk.installed())
        stack.enter_context(replaced((hbox_common.bus.client, "Connection", SimConnection)))
        asyncio.set_event_loop(loop)
        yield world


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
