"""Of a platform of `hbox up`, in its state folder; also of one that has died there."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from hbox_common.bus import Access
from hbox_common.bus.inspection import look
from hbox_common.bus.users import ADMIN
from hbox_common.errors import HBoxError, NotFound, Unavailable
from hbox_common.events import NodeStateChanged, QueueStateChanged
from hbox_common.kube import KubeClient

from ..audit.reading import audit_platform
from ..platform.layout import Layout, Running
from ..session import bus_of, jobs_of, last_values, ledger_of
from .archive import Files, Step
from .scrub import of_address, of_environment, of_kubeconfig
from .versions import versions

#: Of each log its end.
LOG_BYTES = 2 * 2**20
ANSWER_BYTES = 4 * 2**20


def running_of(layout: Layout) -> Running | None:
    """None where nothing runs there."""
    try:
        return layout.running()
    except HBoxError:
        return None


def secrets(layout: Layout, running: Running | None) -> Iterator[str]:
    """All that is secret of this platform, wherever it may stand."""
    for path in layout.nats_users.glob("*") if layout.nats_users.is_dir() else ():
        if path.suffix == ".nk":
            yield _seed(path)
    yield from of_kubeconfig(layout.kubeconfig)
    yield from of_environment(dict(os.environ))
    if running is not None:
        yield from (*of_address(running.database_url), *of_address(running.nats_url), *of_kubeconfig(Path(running.kubeconfig)))
        for seed in Path(running.nats_users).glob("*.nk") if running.nats_users else ():
            yield _seed(seed)
    for variables in layout.settings().values():
        yield from of_environment(variables)


def _seed(path: Path) -> str:
    """Empty where it cannot be read: by its form it is known too."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeError):
        return ""


def steps(layout: Layout, running: Running | None) -> list[Step]:
    found = [Step("versions", versions), Step("settings", lambda: _settings(layout)), Step("logs", lambda: _logs(layout))]
    if running is None:
        return [*found, Step("platform", lambda: _nothing(layout))]
    found += [Step(name, lambda name=name, url=url: _service(name, url)) for name, url in running.health.items()]  # type: ignore[misc]
    return [
        *found,
        Step("broker", lambda: _broker(running)),
        Step("kubernetes", lambda: _kubernetes(running)),
        Step("queues", lambda: _queues(running)),
        Step("nodes", lambda: _nodes(running)),
        Step("jobs", lambda: _jobs(running)),
        Step("ledger", lambda: _ledger(running)),
        Step("audit", lambda: _audit(running)),
    ]


async def _nothing(layout: Layout) -> Files:
    raise NotFound(f"no platform runs in {layout.folder}")


async def _settings(layout: Layout) -> Files:
    """What services were started with, the files that they name, and what other commands know of the platform."""
    services = layout.settings()
    files: dict[str, Any] = {f"settings/{name}.json": variables for name, variables in services.items()}
    keys = ("HBOX_CONFIG", "HBOX_SCHEDULER_CONF", "HBOX_POOLS_FILE", "HBOX_FABRICS_FILE")
    named = {variables[key] for variables in services.values() for key in keys if variables.get(key)}
    brokers = sorted(layout.folder.glob("nats*/nats.conf"))
    for path in [layout.folder / "platform.json", layout.folder / "pids.json", *brokers, *map(Path, sorted(named))]:
        if path.is_file():
            files[f"settings/files/{path.parent.name}-{path.name}"] = _tail(path, ANSWER_BYTES)
    return files


async def _logs(layout: Layout) -> Files:
    """Ends of all logs."""
    return {f"logs/{path.name}": _tail(path, LOG_BYTES) for path in sorted(layout.logs.glob("*.log*")) if path.is_file()}


def _tail(path: Path, most: int) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        raw = file.read(most)
    if size > most:
        raw = b"... (%d bytes before)\n" % (size - most) + raw.partition(b"\n")[2]
    return raw.decode("utf-8", "replace")


async def _service(name: str, url: str) -> Files:
    """Raises Unavailable where it does not answer."""
    found: dict[str, Any] = {}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        for page, file in (("readyz", f"ready/{name}.json"), ("metrics", f"metrics/{name}.txt")):
            try:
                async with session.get(f"{url}/{page}") as answer:
                    found[file] = (await answer.content.read(ANSWER_BYTES)).decode("utf-8", "replace")
            except (aiohttp.ClientError, TimeoutError) as e:
                raise Unavailable(f"{name} does not answer at {url}: {str(e) or type(e).__name__}") from e
    return found


async def _broker(running: Running) -> Files:
    seed = running.nats_seed(ADMIN)
    found = await look(running.nats_url, user=ADMIN, access=Access(seed=seed if seed is not None and seed.exists() else None))
    return {
        "bus/broker.json": {"version": found.version, "max_payload": found.max_payload, "account": found.account},
        "bus/streams.json": found.streams,
        "bus/consumers.json": found.consumers,
    }


async def _kubernetes(running: Running) -> Files:
    async with KubeClient.connect(running.kubeconfig, user_agent="hbox diag", timeout_s=5) as client:
        return {"kubernetes/version.json": await client.json("GET", "/version")}


async def _queues(running: Running) -> Files:
    async with bus_of(running) as bus:
        return {"queues.json": [event.model_dump(mode="json") for event in await last_values(bus, [QueueStateChanged])]}


async def _nodes(running: Running) -> Files:
    async with bus_of(running) as bus:
        return {"nodes.json": [event.model_dump(mode="json") for event in await last_values(bus, [NodeStateChanged])]}


async def _jobs(running: Running) -> Files:
    """How many there are, and why those wait that do; annotations and names of tenants' files are their own."""
    async with bus_of(running) as bus:
        jobs, pods, verdicts = await jobs_of(bus)
    waiting = [
        {
            "job": f"{job.namespace}/{job.name}",
            "queue": job.queue,
            "members": job.members,
            "bound": job.bound,
            "why": verdicts.get(job.id, ""),
        }
        for job in jobs
        if job.tasks
    ]
    return {"jobs.json": {"jobs": len(jobs), "pods": len(pods), "waiting": len(waiting), "first": waiting[:500]}}


async def _ledger(running: Running) -> Files:
    async with bus_of(running) as bus:
        head = await ledger_of(bus)
    recorded: dict[str, Any] = head.model_dump(mode="json", exclude={"claims", "queues"})
    if running.database_url.startswith("sqlite:///"):
        path = Path(running.database_url.removeprefix("sqlite:///"))
        recorded["files"] = {one.name: one.stat().st_size for one in path.parent.glob(f"{path.name}*")}
    return {"ledger.json": recorded}


async def _audit(running: Running) -> Files:
    async with bus_of(running) as bus, KubeClient.connect(running.kubeconfig, user_agent="hbox diag", timeout_s=15) as client:
        result, _ = await audit_platform(client, bus, patience_s=5.0, schedulers=running.scheduler_names)
    return {"audit.json": {"checks": result.checks, "faults": result.faults, "notes": result.notes}}


def about(layout: Layout, running: Running | None) -> Mapping[str, Any]:
    return {"state": str(layout.folder), "running": running is not None, "emulated": running.emulated if running else None}
