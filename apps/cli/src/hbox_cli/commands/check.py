"""`hbox check`."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from hbox_common.errors import HBoxError, Unavailable
from hbox_common.model import SCHEDULER_NAME
from hbox_common.redaction import redacted
from hbox_common.visible import visible

from ..access import choice_of, running_of
from ..aio import run
from ..context import Context, platform_options
from ..exits import Faulty, leaf
from ..output import Column, Form, notify
from ..platform import probe
from ..platform.layout import Layout, Running

if TYPE_CHECKING:
    from ..check.install import Install


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    good: bool
    message: str
    fix: str = ""


_CHECKS, _PRECHECKS = (
    [Column(name.upper(), lambda finding, name=name: finding[name]) for name in ("name", what, "message", "fix")]  # type: ignore[misc]
    for what in ("good", "level")
)


@click.command("check")
@click.argument("what", required=False, type=click.Choice(["node", "pod"]))
@click.argument("node", metavar="[NODE|FILE]", required=False)
@click.option(
    "--catalogue",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With pod: catalogue of standard sizes, written by `hbox sizes --settle`.",
)
@click.option(
    "--topo",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="With node: output of `nvidia-smi topo -m` on the node, to compare with /sys.",
)
@click.option(
    "--pre", is_flag=True, help="Check before an install that the cluster (and your own broker) meets the requirements."
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --pre: kubeconfig of the cluster [the pod's service account].",
)
@click.option("-n", "--namespace", default="hbox-system", show_default=True, help="With --pre: namespace of the release.")
@click.option("--release", default="hbox", show_default=True, help="With --pre: name of the release.")
@click.option(
    "--scheduler-name", "names", multiple=True, metavar="NAME", help="With --pre: schedulerName that HBox will serve [hbox]."
)
@platform_options
def command(
    ctx: Context,
    *,
    what: str | None,
    node: str | None,
    catalogue: Path | None,
    topo: Path | None,
    pre: bool,
    kubeconfig: Path | None,
    namespace: str,
    release: str,
    names: tuple[str, ...],
) -> None:
    """Check broker, streams, Kubernetes API, CRDs, database and every service, with a remedy for each fault.

    It reads the broker of an `hbox up` or, for operators, of an installed chart (--nats-url, --nats-seed; or a context with them): there without the
    database and the services.

    \b
    hbox check
    hbox check node node-0001          the kubelet's settings and the machine's layout
    hbox check pod job.yaml            what the admission webhook would write into its pods, and what HBox rejects (- = standard input)
    hbox check --pre --kubeconfig ~/.kube/config
    hbox check --pre --kubeconfig ~/.kube/config --nats-url nats://nats:4222 --nats-seed admin.nk
    hbox check --nats-url nats://127.0.0.1:4222 --nats-seed operator.nk

    With --pre, --nats-url is the address of your own broker, and --nats-seed the seed file of its user admin.

    Exit status 0 without faults, else 6. With --pre: 0 without faults (warnings are allowed), 1 with faults, 6 if the API server does not
    answer. With pod: 1 if HBox would reject a pod.
    """
    if what == "pod":
        if node is None:
            raise click.UsageError("which file? - is standard input")
        from ..check.pod import check_pod  # noqa: PLC0415

        check_pod(ctx, node, catalogue)
        return
    if catalogue is not None:
        raise click.UsageError("--catalogue requires the argument pod")
    if what is not None:
        if node is None:
            raise click.UsageError("which node? `hbox nodes` lists them")
        from ..check.node import check_node  # noqa: PLC0415

        check_node(ctx, running_of(ctx), node, topo)
        return
    if topo is not None:
        raise click.UsageError("--topo requires the argument node")
    if pre:
        from hbox_common.bus import Access  # noqa: PLC0415  so that `hbox check --help` is quick

        from ..check.install import Install  # noqa: PLC0415

        given = ctx.access
        access = Access(seed=given.nats_seed, ca=given.nats_ca)
        _precheck(ctx, kubeconfig, Install(release, namespace, names or (SCHEDULER_NAME,), given.nats_url or "", access))
        return
    if kubeconfig or names:
        raise click.UsageError("--kubeconfig and --scheduler-name go with --pre")
    state = choice_of(ctx).state
    running = running_of(ctx)
    if state is None:
        notify("hbox: the database and the services are not checked: `kubectl get pods -n hbox-system` shows which are ready")
    findings = run(lambda: _findings(running, None if state is None else Layout(state)))
    if ctx.output.form in (Form.NAME, Form.CSV):
        ctx.output.rows("Check", [asdict(f) for f in findings], _CHECKS)
    elif ctx.output.machine:
        checks = [{"name": f.name, "good": f.good, "message": f.message, "fix": f.fix} for f in findings]
        ctx.output.document("Check", {"good": all(f.good for f in findings), "checks": checks})
    else:
        for f in findings:
            mark = ctx.output.coloured("ok  ", "32") if f.good else ctx.output.coloured("BAD ", "31")
            print(f"{mark} {f.name:20} {f.message}" + (f"\n     {'':20} fix: {f.fix}" if f.fix and not f.good else ""))
    bad = [f.name for f in findings if not f.good]
    if bad:
        raise Unavailable(f"not well: {', '.join(bad)}", hint="the fixes are listed above")


def _precheck(ctx: Context, kubeconfig: Path | None, install: "Install") -> None:
    from hbox_common.kube import KubeClient  # noqa: PLC0415

    from ..check.install import Level, Line, lines  # noqa: PLC0415

    async def look() -> list[Line]:
        async with KubeClient.connect(str(kubeconfig) if kubeconfig else None, user_agent="hbox check") as client:
            return await lines(client, install)

    found = run(look)
    faults = [line.name for line in found if line.level is Level.FAULT]
    if ctx.output.form in (Form.NAME, Form.CSV):
        ctx.output.rows("Check", [asdict(f) for f in found], _PRECHECKS)
    elif ctx.output.machine:
        checks = [{"name": f.name, "level": f.level.value, "message": f.message, "fix": f.fix} for f in found]
        ctx.output.document("Precheck", {"good": not faults, "checks": checks})
    else:
        colours = {Level.OK: "32", Level.WARNING: "33", Level.FAULT: "31"}
        for f in found:
            print(f"{ctx.output.coloured(f'{f.level.value:7}', colours[f.level])} {f.name:16} {visible(f.message)}")
            if f.fix:
                print(f"{'':24} do: {visible(f.fix)}")
    if faults:
        raise Faulty(f"not fit for an install: {', '.join(faults)}", hint="what to do is listed above; then check again")


async def _findings(running: Running, layout: Layout | None) -> list[Finding]:
    """`layout`: of an `hbox up`; None: only what the broker and the cluster answer."""
    log = "check the address, the seed, and the broker's pod" if layout is None else f"see {layout.log('nats-server')}"
    checks = [
        _tried("broker", lambda: _broker(running), log),
        _tried("kubernetes", lambda: _kubernetes(running), f"check the kubeconfig {running.kubeconfig}"),
        _tried(
            "nodes",
            lambda: _nodes(running),
            "`hbox nodes` shows what each node refused; on the node, check `journalctl -u kubelet` and the device plugin",
        ),
        _tried("definitions", lambda: _definitions(running), "`hbox up` brings what is missing; of a chart: `helm upgrade`"),
        _tried("workloads", lambda: _workloads(running), f"check the kubeconfig {running.kubeconfig}"),
    ]
    if layout is not None:
        checks.append(_tried("database", lambda: _database(running.database_url), "see the quota-ledger's log"))
        checks += [_service(name, url, layout) for name, url in running.health.items()]
    return list(await asyncio.gather(*checks))


async def _tried(name: str, check: Callable[[], Awaitable[str]], fix: str) -> Finding:
    try:
        return Finding(name, True, await check())
    except (Exception, BaseExceptionGroup) as e:  # also an answer that cannot be read
        error = leaf(e)
        if not isinstance(error, Exception):
            raise
        reason = error.message if isinstance(error, HBoxError) else str(error)
        if not isinstance(error, HBoxError | OSError) or not reason:
            reason = f"{type(error).__name__}: {reason}".removesuffix(": ")
        hint = getattr(error, "hint", "")
        return Finding(name, False, reason, fix if not hint or "hbox check" in hint else hint)


async def _broker(running: Running) -> str:
    from hbox_common.events import NodeStateChanged  # noqa: PLC0415  so that `hbox check --help` is quick

    from ..session import bus_of, last_values  # noqa: PLC0415

    async with bus_of(running) as bus:
        nodes = await last_values(bus, [NodeStateChanged])
    return f"{running.nats_url}, the stream of states answers: {len(nodes)} nodes"


async def _workloads(running: Running) -> str:
    """Raises Unavailable if the cluster serves kinds of workloads that job-controller may not read."""
    from hbox_common.kube import KubeClient  # noqa: PLC0415

    from ..check.workloads import found  # noqa: PLC0415

    async with KubeClient.connect(running.kubeconfig or None, user_agent="hbox", timeout_s=5) as client:
        answer = await found(client)
    if answer.unreadable:
        raise Unavailable(answer.message, hint=answer.remedy)
    return answer.message


async def _nodes(running: Running) -> str:
    """Raises Unavailable while a node rests for all pods of a kind, or is used without a first report of node-agent."""
    from hbox_common.clock import wall_s  # noqa: PLC0415
    from hbox_common.events import NodeRests, NodeStateChanged  # noqa: PLC0415
    from hbox_common.views.firstreport import report_text  # noqa: PLC0415
    from hbox_common.views.nodes import rest_text  # noqa: PLC0415

    from ..session import bus_of, last_values  # noqa: PLC0415

    async with bus_of(running) as bus:
        values = await last_values(bus, [NodeRests, NodeStateChanged])
    rests = [event.rest for event in values if isinstance(event, NodeRests)]
    refusing = [one for one in rests if any(not kind.only for kind in one.lasting(wall_s()))]
    if refusing:
        more = f"; and {len(refusing) - 1} more nodes" if len(refusing) > 1 else ""
        raise Unavailable(f"{refusing[0].node}: {rest_text(refusing[0], wall_s())}{more}")
    nodes = [event.node for event in values if isinstance(event, NodeStateChanged)]
    if missing := sorted((node for node in nodes if node.report_missing), key=lambda node: node.name):
        more = f"; and {len(missing) - 1} more nodes" if len(missing) > 1 else ""
        raise Unavailable(f"{missing[0].name}: {report_text(missing[0], wall_s())}{more}")
    return "no node rests after a refusal of its kubelet"


async def _kubernetes(running: Running) -> str:
    from hbox_common.kube import PODGROUPS, QUEUES, KubeClient  # noqa: PLC0415

    async with KubeClient.connect(running.kubeconfig or None, user_agent="hbox", timeout_s=5) as client:
        version = await client.json("GET", "/version")
        for resource in (QUEUES, PODGROUPS):
            await client.json("GET", resource.path(), params={"limit": "1"})
    return f"{client.base}, {version.get('gitVersion', '?')}, the definitions of Queue and PodGroup are there"


async def _definitions(running: Running) -> str:
    """Definitions of others are used as they are; what that costs is worth knowing, and no fault."""
    from hbox_common.kube import KubeClient  # noqa: PLC0415

    from ..platform import crds  # noqa: PLC0415

    async with KubeClient.connect(running.kubeconfig or None, user_agent="hbox", timeout_s=5) as client:
        return "; ".join(await crds.lacking(client)) or "the cluster's definitions have every field that HBox reads"


async def _database(url: str) -> str:
    if not url.startswith("sqlite:///"):
        return f"{redacted(url)}: asked through the quota-ledger below"

    def look() -> str:
        path = Path(url.removeprefix("sqlite:///"))
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5)) as db:
            (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise OSError(f"{path}: {verdict}")
        return f"{path}, {path.stat().st_size // 1024} KiB, no damage"

    try:
        return await asyncio.to_thread(look)
    except sqlite3.Error as e:
        raise OSError(f"{url}: {e}") from e


async def _service(name: str, url: str, layout: Layout) -> Finding:
    state = await probe.readiness(int(url.rsplit(":", 1)[1]))
    return Finding(name, state.ready, str(state), f"see {layout.log(name)}; the platform starts a dead service again by itself")
