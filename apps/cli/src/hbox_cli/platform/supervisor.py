"""Runs the platform's processes, and keeps them running as a kubelet would.

Order: broker, cluster and zygote at once; then the definitions that the cluster needs; then all services at once, which wait for what they
need by themselves. A service that dies is started again, at once and then with growing pauses; so is the broker, on its port and its files. The
emulated cluster lives in the memory of its process alone: when it dies there is nothing left to schedule on, and the platform stops with
an error. A cluster of real programs keeps its state, so its processes are started again like the others. Stop: services first, so that they
drain, then cluster and broker.
"""

import asyncio
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound, Unavailable
from hbox_common.model import SCHEDULER_NAME
from hbox_common.model.shards import Shards, lease_of

from ..exits import leaf
from ..services import CONSOLE, ON_NODES, PAIRED, SERVICES, SHARDED
from . import child, early, logs, probe
from .assets import API_SERVER, ETCD, PROGRAMS, ControlPlane
from .brokers import Broker, brokers, commands
from .early import Early
from .forks import Forks
from .layout import Layout, Running
from .portplan import ports as platform_ports

CLUSTER, SANDBOX = "kube-api", "hbox_sandbox"
#: Emulated nodes whose kubelets may refuse pods (`hbox_sandbox.kubelet.topology`), and how long they wait for node-agent's first report, as in the chart.
AGENT_NODES, AGENT_WAIT_S = "sandbox.hbox.io/numa", 90

#: A service's own drain takes 10 s at most (hbox_common.runtime).
GRACE_S = 12.0

#: One that ran for so long was well: the next start is without a pause.
WELL_S = 10.0
PAUSES_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0)

#: One that ends so often before the platform was ever ready will not come up by itself.
TRIES = 3

#: For a lease to be released whose holder died, and how often that is tried: on a busy machine the API server may answer late.
LEASE_S, LEASE_TRIES = 3.0, 5

#: How often the broker is asked for streams that it can write to no more, and the room that its disk needs before a start helps.
WRITABLE_S = 0.5
ROOM_BYTES = 16 * 2**20

#: Seconds for an external broker to answer.
EXTERNAL_S = 5.0

#: Exit status for wrong settings (hbox_common.runtime): no restart mends them.
WRONG_SETTINGS = 2


class Api(StrEnum):
    """What answers as Kubernetes where no kubeconfig is given."""

    EMULATED = "emulated"
    ASSETS = "assets"  #: real programs, of KUBEBUILDER_ASSETS


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run. None: of our own."""

    state: Path
    kubeconfig: Path | None = None
    nats_url: str | None = None
    nats_users: Path | None = None  #: seeds of the users of an external broker; None: it needs no authentication
    database_url: str | None = None
    policy: str = "least-waste"
    time_scale: float = 1.0
    ready_s: float = 60.0  #: to wait for the services
    api: Api = Api.EMULATED
    as_given: bool = False  #: all services act as the given kubeconfig's user, none with an identity of its own
    standby: bool = False  #: a second process of each service of PAIRED
    scheduler_names: tuple[str, ...] = (SCHEDULER_NAME,)  #: whose pods are HBox's
    queues: str = "open"  #: access to queues without a list of namespaces (`HBOX_QUEUES`)
    shares: str = "deserved"  #: what queues may take back from others (`HBOX_SHARES`)
    brokers: int = 1  #: nats-servers of our own, which keep each stream together
    shards: str = ""  #: several schedulers, as HBOX_SHARDS has them
    levels: bool = False  #: make the PriorityClasses of HBox's levels
    list_classes: bool = False  #: a new queue `default` takes jobs of everyday PriorityClasses only
    ports_from: int | None = None  #: the first of fixed ports (`portplan`); None: free ones

    @property
    def emulated(self) -> bool:
        return self.kubeconfig is None and self.api is Api.EMULATED

    @property
    def cluster(self) -> str:
        """What names a cluster whose state outlives a run; empty for an emulated one."""
        if self.kubeconfig is not None:
            return f"--kubeconfig {self.kubeconfig.absolute()}"
        return "" if self.emulated else f"--api {self.api}"

    @property
    def processes(self) -> dict[str, str]:
        """Name of each process to be run -> its service. Real nodes have agents of their own, by the chart."""
        acting = {
            process: name
            for name in SERVICES
            if self.emulated or name not in ON_NODES
            for process in (self.schedulers if name == SHARDED else (name,))
        }
        standing_by = {f"{process}-standby": name for process, name in acting.items() if name in PAIRED} if self.standby else {}
        return acting | standing_by

    @property
    def schedulers(self) -> dict[str, str]:
        """Name of each scheduler that acts -> its shard; empty where there is one."""
        shards = Shards.parse(self.shards)
        return {lease_of(SHARDED, shard): shard for shard in shards.names} if shards.several else {SHARDED: ""}

    def shard_of(self, process: str) -> str:
        """The shard of a scheduler process, leader or standby; empty if there is only one shard."""
        return self.schedulers[process.removesuffix("-standby")]


@dataclass(slots=True)
class Kept:
    """One process that is kept running."""

    name: str
    argv: list[str]
    env: dict[str, str]
    log: Path
    port: int
    restart: bool = True
    module: str = ""  #: forked from the zygote, where that is possible, as `python -m module`
    early: Early | None = None  #: one that waits to become this
    process: child.Child | None = None
    started_at: float = 0.0
    log_from: int = 0  #: where the log of this start begins


@dataclass(slots=True)
class Platform:
    """A running platform; made by `run`."""

    layout: Layout
    plan: Plan
    notify: Callable[[str], None]
    running: Running
    _brokers: Sequence[Broker]  #: own brokers; none if an external broker is named
    _cluster_port: int
    _kept: dict[str, Kept] = field(default_factory=dict)
    _ready: bool = False
    _stopping: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _forks: Forks | None = None
    _early: early.Forked = field(default_factory=early.Forked)
    _kubeconfigs: Mapping[str, str] | None = None  #: of services with an identity of their own; None: all use the platform's

    @classmethod
    @asynccontextmanager
    async def run(
        cls, plan: Plan, notify: Callable[[str], None], processes: early.Forked | None = None
    ) -> AsyncIterator["Platform"]:
        """The platform, from ready to stopped. `processes`: those that are there already (`early.forked`), which then need not be started.

        Raises Conflict when the folder is taken, InvalidRequest for wrong settings, Unavailable when broker, cluster or a service does not
        come up, and HBoxError when the emulated cluster dies; all with the process' own last words.
        """
        layout = Layout(plan.state.absolute())
        layout.prepare(notify)
        own = 0 if plan.nats_url else plan.brokers
        with layout.locked(), platform_ports(plan.processes, own, first=plan.ports_from) as ports:
            several = brokers(layout, own, ports[len(plan.processes) :]) if own else []
            platform = cls(layout, plan, notify, _address(layout, plan, ports, several), several, ports[-1])
            platform._early = processes or platform._early
            layout.forget()
            try:
                async with platform._zygote(), asyncio.TaskGroup() as tasks:
                    try:
                        await platform._start(tasks)
                        yield platform
                    finally:
                        await platform._stop()
                        layout.forget()
                    for task in platform._tasks:
                        task.cancel()
            except BaseExceptionGroup as group:
                # Report the cause alone, not the tasks that were cancelled by it.
                raise leaf(group) from None

    def pids(self) -> dict[str, int]:
        return {name: kept.process.pid for name, kept in self._kept.items() if kept.process is not None}

    def kill(self) -> None:
        """Ends all children at once, without drain: for a second Ctrl-C."""
        self._stopping = True
        for kept in self._kept.values():
            if kept.process is not None and kept.process.returncode is None:
                kept.process.kill()
        if self._forks is not None:
            self._forks.kill()

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        plan, layout = self.plan, self.layout
        self._tasks.append(
            tasks.create_task(
                logs.follow({name: layout.log(name) for name in plan.processes}, self.notify, calm=lambda: self._ready)
            )
        )
        if plan.nats_url is not None:
            await self._external_broker(plan.nats_url)
        control_plane: ControlPlane | None = None
        if plan.emulated or (plan.kubeconfig is None and not ControlPlane.exists(layout.kube)):
            _empty(layout, plan.cluster, keep_broker=plan.nats_url is not None)
        if plan.cluster:
            layout.books_of.write_text(f"{plan.cluster}\n")
        if plan.emulated:
            await self._keep(tasks, self._cluster())
        elif plan.kubeconfig is None:
            control_plane = ControlPlane.prepare(
                layout.kube, layout.kubeconfig, port=self._cluster_port, time_scale=plan.time_scale
            )
            for name in (ETCD, API_SERVER):
                await self._keep(tasks, self._program(control_plane, name))
        for name, argv in (commands(layout, self._brokers) if self._brokers else {}).items():
            await self._keep(tasks, Kept(name, argv, dict(os.environ), layout.log(name), port=0))
        if plan.emulated:
            await self._until(CLUSTER, self._cluster_ready)
        elif control_plane is not None:
            await self._until(API_SERVER, control_plane.ready)
            control_plane.admit()
            for name in PROGRAMS:
                if name not in self._kept:
                    await self._keep(tasks, self._program(control_plane, name))
        await self._bring_definitions(tasks)
        for broker in self._brokers:
            await self._until(broker.name, lambda port=broker.port: probe.greets(port))  # type: ignore[misc]
        if self._brokers:
            self._tasks.append(tasks.create_task(self._keep_brokers_writable(), name="writable"))
        await self._make_streams()
        for kept in self._services():
            await self._keep(tasks, kept)
        await self._until_services_are_ready()
        if plan.kubeconfig is None:
            await self._publish_access()
        self._ready = True
        layout.write_running(self.running)

    async def _stop(self) -> None:
        self._stopping = True
        programs = [(name,) for name in reversed(PROGRAMS)]
        for names in (tuple(self.plan.processes), (CLUSTER,), *programs, tuple(broker.name for broker in self._brokers)):
            kept = [self._kept[name] for name in names if name in self._kept]
            async with asyncio.TaskGroup() as stops:
                for one in kept:
                    if one.process is not None:
                        stops.create_task(child.stop(one.process, grace_s=GRACE_S))

    async def _make_streams(self) -> None:
        """As the broker's admin: services may make what is missing, and change nothing."""
        from hbox_common.bus import Access, Bus  # noqa: PLC0415  a third of a second, while the broker starts
        from hbox_common.bus.users import ADMIN  # noqa: PLC0415

        access, instance = Access(seed=self.running.nats_seed(ADMIN)), f"up-{os.getpid()}"
        async with Bus.connect(
            self.running.nats_url, name=ADMIN, instance=instance, access=access, replicas=max(1, len(self._brokers))
        ):
            pass

    # --- processes

    @asynccontextmanager
    async def _zygote(self) -> AsyncIterator[None]:
        if sys.platform != "linux":  # elsewhere a fork after imports is not safe
            yield
            return
        env = dict(os.environ) | {"HBOX_STATE": str(self.layout.folder)}
        async with Forks(env, self.layout.log("zygote"), self._early.zygote).running() as self._forks:
            yield

    async def _keep(self, tasks: asyncio.TaskGroup, kept: Kept) -> None:
        self._kept[kept.name] = kept
        await self._spawn(kept)
        self._tasks.append(tasks.create_task(self._watch(kept), name=kept.name))

    async def _spawn(self, kept: Kept) -> None:
        kept.log_from = kept.log.stat().st_size if kept.log.exists() else 0
        if kept.early is not None:
            kept.log.touch()  # as `child.spawn` makes it: it is read from now on
            kept.early.send(
                {"name": kept.name, "module": kept.module, "argv": kept.argv[3:], "env": kept.env, "log": str(kept.log)}
            )
            kept.process, kept.early = kept.early, None
        elif kept.module and self._forks is not None:
            kept.process = await self._forks.spawn(kept.name, kept.module, env=kept.env, log=kept.log)
        else:
            kept.process = await child.spawn(kept.argv, env=kept.env, log=kept.log)
        kept.started_at = time.monotonic()
        try:
            self.layout.write_pids(self.pids())
        except OSError as e:  # a full disk is what processes end of: the others go on
            self.notify(f"pids.json is not up to date: {e.strerror}")

    async def _watch(self, kept: Kept) -> None:
        """Restarts the process whenever it ends. Raises HBoxError where that cannot help."""
        short_lives = 0
        while True:
            assert kept.process is not None
            returncode = await kept.process.wait()
            if self._stopping:
                return
            how = child.ended(returncode)
            why = logs.last_error(kept.log, kept.log_from) if returncode >= 0 else logs.Line("", "")
            if not kept.restart:
                raise HBoxError(
                    f"{kept.name}, the emulated cluster, ended ({how}){f': {why}' if why.message else ''}; its nodes and pods lived in its memory",
                    hint=f"start again; its log is {kept.log}",
                )
            short_lives = 0 if time.monotonic() - kept.started_at >= WELL_S else short_lives + 1
            if not self._ready and (returncode == WRONG_SETTINGS or short_lives >= TRIES):
                self._give_up(kept, returncode, how, why)
            await self._release_lease(kept.name, kept.process.pid)
            pause_s = PAUSES_S[min(max(0, short_lives - 1), len(PAUSES_S) - 1)]
            await asyncio.sleep(pause_s)
            await self._spawn_again(kept)
            self.notify(
                f"{kept.name} ended ({how}){f': {why}' if why.message else ''}; started again as process {kept.process.pid}"
            )

    async def _spawn_again(self, kept: Kept) -> None:
        """Of a platform that was ready nothing ends because one process cannot be started now: memory, processes and disk come back."""
        while True:
            try:
                return await self._spawn(kept)
            except (HBoxError, OSError) as e:
                if not self._ready or self._stopping:
                    raise
                self.notify(f"{kept.name} cannot be started now: {e}; tried again in {PAUSES_S[-1]:g} s")
                await asyncio.sleep(PAUSES_S[-1])

    async def _release_lease(self, name: str, pid: int) -> None:
        """What a process led that has ended, the other may lead at once. Best effort: a lease runs out by itself."""
        service = self.plan.processes.get(name)
        if not self.plan.standby or service not in PAIRED:
            return
        lease = lease_of(service, self.plan.shard_of(name)) if service == SHARDED else service
        from hbox_common.kube import KubeClient, release_for  # noqa: PLC0415  as above

        from .identities import NAMESPACE  # noqa: PLC0415

        failed = ""
        for _ in range(LEASE_TRIES):
            try:
                async with (
                    asyncio.timeout(LEASE_S),
                    KubeClient.connect(self.running.kubeconfig, user_agent="hbox", timeout_s=LEASE_S) as client,
                ):
                    await release_for(client, NAMESPACE, lease, f"{socket.gethostname()}-{pid}")
                return
            except NotFound:
                return  # it never led
            except (HBoxError, TimeoutError) as e:
                failed = str(e) or "no answer in time"
            await asyncio.sleep(PAUSES_S[1])
        self.notify(f"the lease of {lease} runs out by itself: {failed}")

    def _give_up(self, kept: Kept, returncode: int, how: str, why: logs.Line) -> None:
        reason = why.message.removeprefix(f"{kept.name}: ") or how
        # Services exit with 2 for wrong settings and with 6 if a dependency is unreachable.
        kind = {WRONG_SETTINGS: InvalidRequest, 6: Unavailable}.get(returncode, HBoxError)
        raise kind(f"{kept.name} does not start: {reason}", hint=f"{why.hint + '; ' if why.hint else ''}its log is {kept.log}")

    def _cluster(self) -> Kept:
        port = self._cluster_port
        argv = [sys.executable, "-m", SANDBOX, "--port", str(port), "--kubeconfig-out", str(self.layout.kubeconfig)]
        argv += ["--time-scale", str(self.plan.time_scale), "--kubelet-roots", str(self.layout.kubelets)]
        argv += ["--time-scale-since", str(self.running.time_scale_since)] if self.running.time_scale_since else []
        self.layout.kubeconfig.unlink(missing_ok=True)
        kept = Kept(CLUSTER, argv, dict(os.environ), self.layout.log(CLUSTER), port, restart=False)
        if (waits := self._early.cluster) is not None:
            kept.module, kept.early = SANDBOX, waits
        return kept

    def _program(self, control_plane: ControlPlane, name: str) -> Kept:
        return Kept(name, control_plane.argv(name), dict(os.environ), self.layout.log(name), port=0)

    def _services(self) -> list[Kept]:
        kept = []
        for name, service in self.plan.processes.items():
            module = SERVICES[service]
            port = int(self.running.health[name].rsplit(":", 1)[1])
            env = dict(os.environ) | {
                "HBOX_NATS_URL": self.running.nats_url,
                "HBOX_KUBECONFIG": self.running.kubeconfig,
                "HBOX_DATABASE_URL": self.running.database_url,
                "HBOX_HEALTH_DATABASE_URL": f"sqlite:///{self.layout.health_database}",
                "HBOX_POLICY": self.plan.policy,
                "HBOX_SCHEDULER_NAMES": ",".join(self.plan.scheduler_names),
                "HBOX_QUEUES": self.plan.queues,
                "HBOX_SHARES": self.plan.shares,
                "HBOX_SHARDS": self.plan.shards,
                "HBOX_SHARD": self.plan.shard_of(name) if service == SHARDED else "",
                "HBOX_HEALTH_HOST": "127.0.0.1",
                "HBOX_HEALTH_PORT": str(port),
                "HBOX_LOG_FORMAT": "json",
            }
            if self.running.time_scale_since:
                env["HBOX_TIME_SCALE"] = str(self.running.time_scale)
                env["HBOX_TIME_SCALE_SINCE"] = str(self.running.time_scale_since)
            if service == "topology-collector" and any(one in ON_NODES for one in self.plan.processes.values()):
                env.setdefault("HBOX_AGENT_WAIT_S", str(AGENT_WAIT_S))
                env.setdefault("HBOX_AGENT_NODES", AGENT_NODES)
            if service == CONSOLE:
                env["HBOX_LISTEN_HOST"], env["HBOX_LISTEN_PORT"] = "127.0.0.1", self.running.console.rsplit(":", 1)[1]
            if service in ON_NODES:
                env["HBOX_KUBELETS"] = str(self.layout.kubelets)
            if len(self._brokers) > 1:
                env["HBOX_NATS_REPLICAS"] = str(len(self._brokers))
            if seed := self.running.nats_seed(service):
                env["HBOX_NATS_SEED"] = str(seed)
            if self.plan.standby and service in PAIRED:
                env["HBOX_LEADER_ELECTION"] = "true"
            if self._kubeconfigs is not None:
                # One without rights of its own gets no way in at all, not even by an environment that we inherited.
                env.pop("HBOX_KUBECONFIG")
                if service in self._kubeconfigs:
                    env["HBOX_KUBECONFIG"] = self._kubeconfigs[service]
            kept.append(Kept(name, [sys.executable, "-m", module], env, self.layout.log(name), port, module=module))
        self.layout.write_settings({one.name: one.env for one in kept})
        return kept

    # --- readiness

    async def _external_broker(self, url: str) -> None:
        """Raises InvalidRequest for no address, Unavailable where no broker is: services would wait for it, and say so in logs alone."""
        until = time.monotonic() + EXTERNAL_S
        while True:
            for address in url.split(","):
                try:
                    parts = urlsplit(address.strip())
                    host, port = parts.hostname, parts.port or 4222
                except ValueError:
                    host = None
                if host is None or parts.scheme not in ("nats", "tls"):
                    raise InvalidRequest(f"--nats-url {url}: not an address", hint="write it like nats://host:4222")
                if await probe.greets(port, host=host):
                    return
            if time.monotonic() > until:
                raise Unavailable(f"no broker answers at {url}", hint="start it, or leave --nats-url out for one of our own")
            await asyncio.sleep(0.2)

    async def _keep_brokers_writable(self) -> NoReturn:
        """A stream whose disk was full once takes nothing any more until nats-server starts anew, which is done as soon as there is room."""
        while True:
            await asyncio.sleep(WRITABLE_S)
            for broker in self._brokers:
                wrong = await probe.write_error(broker.health_port)
                process = self._kept[broker.name].process
                if wrong and process is not None and _room(broker.folder) > ROOM_BYTES:
                    self.notify(f"{broker.name} is started anew: {wrong}")
                    await child.stop(process, grace_s=GRACE_S)

    async def _cluster_ready(self) -> bool:
        kept = self._kept[CLUSTER]
        text = kept.log.read_bytes()[kept.log_from :]
        return any(line.startswith(b"ready ") for line in text.splitlines()) and self.layout.kubeconfig.exists()

    async def _until(self, name: str, good: Callable[[], Awaitable[bool]]) -> None:
        until = time.monotonic() + self.plan.ready_s
        while not await good():
            if time.monotonic() > until:
                raise Unavailable(
                    f"{name} is not ready after {self.plan.ready_s:g} s", hint=f"its log is {self.layout.log(name)}"
                )
            await asyncio.sleep(0.03)

    async def _bring_definitions(self, tasks: asyncio.TaskGroup) -> None:
        """What the cluster needs of ours; on a real one also accounts, rights and tokens of the services, renewed from here on."""
        from hbox_common.kube import KubeClient  # noqa: PLC0415  half a second, while the broker starts

        from . import crds, identities  # noqa: PLC0415

        async with KubeClient.connect(self.running.kubeconfig, user_agent="hbox") as client:
            if self.plan.levels:
                await crds.bring_levels(client, self.notify)
            await crds.bring(client, self.notify, listed=self.plan.list_classes)
            if self.plan.standby:
                await identities.bring_namespace(client)
            if self.plan.emulated or self.plan.as_given:
                return
            await identities.bring(client, self.notify, schedulers=tuple(self.plan.schedulers))
            tokens = identities.Tokens(self.layout.kube, Path(self.running.kubeconfig))
            self._kubeconfigs = tokens.write_kubeconfigs()
            due_s = await tokens.issue(client)
        self._tasks.append(tasks.create_task(tokens.renew(due_s, self.notify), name="tokens"))

    async def _publish_access(self) -> None:
        """Where clients of this cluster find the HTTP API."""
        from hbox_common.kube import KubeClient  # noqa: PLC0415

        from .access import publish  # noqa: PLC0415

        async with KubeClient.connect(self.running.kubeconfig, user_agent="hbox") as client:
            await publish(client, url=self.running.console)

    async def _until_services_are_ready(self) -> None:
        until = time.monotonic() + self.plan.ready_s
        waiting = dict.fromkeys(self.plan.processes, probe.Readiness(False))
        while waiting:
            for name in list(waiting):
                waiting[name] = await probe.readiness(self._kept[name].port)
                if waiting[name].ready:
                    del waiting[name]
                    self.notify(f"{name} is ready (process {self.pids()[name]})")
            if waiting and time.monotonic() > until:
                name, state = next(iter(waiting.items()))
                raise Unavailable(
                    f"{name} is not ready after {self.plan.ready_s:g} s ({state})", hint=f"its log is {self.layout.log(name)}"
                )
            if waiting:
                await asyncio.sleep(0.05)


def _address(layout: Layout, plan: Plan, ports: Sequence[int], several: Sequence[Broker]) -> Running:
    """`ports`: of the services in their order, and others behind them; the last but one is the HTTP API's."""
    return Running(
        pid=os.getpid(),
        nats_url=plan.nats_url or ",".join(broker.url for broker in several),
        kubeconfig=str(plan.kubeconfig.absolute() if plan.kubeconfig else layout.kubeconfig),
        database_url=plan.database_url or f"sqlite:///{layout.database}",
        emulated=plan.emulated,
        policy=plan.policy,
        scheduler_names=plan.scheduler_names,
        time_scale=plan.time_scale if plan.emulated else 1.0,
        time_scale_since=time.time() if plan.emulated and plan.time_scale != 1.0 else 0.0,
        nats_users=str(plan.nats_users.absolute()) if plan.nats_users else "" if plan.nats_url else str(layout.nats_users),
        health={name: f"http://127.0.0.1:{port}" for name, port in zip(plan.processes, ports, strict=False)},
        console=f"http://127.0.0.1:{ports[-2]}",
    )


def _empty(layout: Layout, cluster: str, *, keep_broker: bool) -> None:
    """Remove the ledger and the streams of a former emulated cluster. Raises Conflict if they belong to a real cluster, so that a forgotten --kubeconfig does
    not lose them."""
    whose = layout.books_of.read_text().strip() if layout.books_of.exists() else ""
    if whose not in ("", cluster):
        raise Conflict(
            f"ledger and streams in {layout.folder} are those of {whose}, and a new cluster would drop them",
            hint=f"choose another folder with --state, or start with {whose} again; to give them up, remove {layout.books_of}",
        )
    folders = () if keep_broker else (layout.nats, *layout.folder.glob(f"{layout.nats.name}-[0-9]"))
    try:
        # The folders stay: each may be a link, or a filesystem of its own.
        for path in (path for folder in folders for path in folder.iterdir()):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        for end in ("", "-wal", "-shm", "-journal", ".lock"):  # the database's own files; backups stay
            for database in (layout.database, layout.health_database):
                database.with_name(database.name + end).unlink(missing_ok=True)
    except OSError as e:
        raise InvalidRequest(
            f"{e.filename} is of a former cluster, and cannot be removed: {e.strerror}", hint="remove it"
        ) from e


def _room(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
