"""`hbox up`: runs the platform until it is stopped."""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import click

from hbox_common.errors import InvalidRequest
from hbox_common.kube import KubeClient
from hbox_common.model import SCHEDULER_NAME, scheduler_names
from hbox_common.model.shards import Shards
from hbox_sandbox.replay import Creation, side_by_side
from hbox_sandbox.trace import TraceNode, machines

from ..aio import Interrupted, run
from ..context import Context, command_options
from ..exits import Exit
from ..options import queues_option
from ..output import notify
from ..platform import portplan
from ..platform.early import ONE_THREAD, forked
from ..platform.supervisor import Api, Plan, Platform

POLICIES = ("least-waste", "binpack", "fgd")


@click.command("up", epilog=f"\b\n--ports-from PORT assigns ports of 127.0.0.1:\n{portplan.table()}")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Kubeconfig of the cluster to schedule [start an emulated cluster].",
)
@click.option(
    "--api",
    type=click.Choice([str(api) for api in Api]),
    default=str(Api.EMULATED),
    show_default=True,
    help="Cluster that the command starts: HBox's emulator, or kube-apiserver with etcd, controllers and "
    "kwok, from KUBEBUILDER_ASSETS or `make kube-assets`.",
)
@click.option(
    "--nodes",
    "nodes",
    metavar="NODESxCARDS[:MODEL]",
    multiple=True,
    help="Nodes of the emulated cluster, such as 16x8, 4x8:NVIDIA-A100-SXM4-80GB or "
    "2x8:AMD_Instinct_MI300X_OAM; may be repeated [none].",
)
@click.option("--as-given", is_flag=True, help="Run all services as the kubeconfig's user [one service account each].")
@click.option(
    "--standby", is_flag=True, help="Run a standby of job-controller, scheduler-core, quota-ledger, binder and health-monitor."
)
@click.option(
    "--scheduler-names",
    "scheduler_names_",
    metavar="NAME,...",
    envvar="HBOX_SCHEDULER_NAMES",
    default=SCHEDULER_NAME,
    show_default=True,
    help="schedulerNames that HBox serves; with volcano, HBox replaces Volcano's scheduler, which must be stopped.",
)
@click.option(
    "--shards",
    metavar="N | NAME=POOL,...;...",
    envvar="HBOX_SHARDS",
    default="",
    help="Scheduler shards: a number (jobs divided by queue), or pools per shard, such as main=*;lab=lab-a,lab-b [one].",
)
@click.option("--policy", type=click.Choice(POLICIES), default=POLICIES[0], show_default=True, help="Placement policy.")
@click.option(
    "--levels/--no-levels",
    default=True,
    help="Create the PriorityClasses high, medium, low and offline in the emulated cluster; the first three "
    "are HBox's levels in every cluster that has them [created].",
)
@click.option(
    "--list-classes",
    is_flag=True,
    help="As the chart: create a missing queue `default` for jobs of no PriorityClass, the cluster's default class, medium, low and offline only.",
)
@queues_option
@click.option(
    "--shares",
    type=click.Choice(("deserved", "weight", "policy")),
    envvar="HBOX_SHARES",
    help="Share that queues may reclaim: deserved (of their objects), weight (at least their share by "
    "weight), policy (by weight while the file of HBOX_SCHEDULER_CONF contains proportion) [policy if it does now, else deserved].",
)
@click.option("--database", metavar="URL", help="Database URL of the ledger [SQLite in the state folder].")
@click.option("--nats-url", metavar="URL", help="Address of a NATS server with JetStream [start one].")
@click.option(
    "--brokers",
    type=click.Choice(["1", "3", "5"]),
    default="1",
    show_default=True,
    help="Number of NATS servers to start, which replicate each stream: 3 tolerate the loss of one.",
)
@click.option(
    "--nats-users",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="With --nats-url: folder with the seeds of its users, from `hbox bus users` [the broker has no users].",
)
@click.option(
    "--time-scale",
    type=click.FloatRange(0.1, 1000),
    default=1.0,
    help="Speed of the emulated cluster's clock, relative to real time; pods and all services use that clock.",
)
@click.option(
    "--ports-from",
    type=click.IntRange(1024, portplan.LAST_PORT),
    metavar="PORT",
    help="Use fixed ports from PORT on, in the order below, best below 32768 [free ports].",
)
@click.option(
    "--ready-timeout", "ready_s", type=click.FloatRange(1), default=60.0, help="Seconds to wait until every service is ready."
)
@command_options
def command(
    ctx: Context,
    *,
    kubeconfig: Path | None,
    api: str,
    nodes: tuple[str, ...],
    as_given: bool,
    standby: bool,
    scheduler_names_: str,
    shards: str,
    policy: str,
    levels: bool,
    list_classes: bool,
    queues: str,
    shares: str | None,
    database: str | None,
    nats_url: str | None,
    nats_users: Path | None,
    brokers: str,
    time_scale: float,
    ports_from: int | None,
    ready_s: float,
) -> int:
    """Run the platform until Ctrl-C.

    \b
    hbox up                                      an emulated cluster; then: kubectl --kubeconfig .hbox/kubeconfig get nodes
    hbox up --nodes 16x8                         with 16 nodes of 8 cards
    hbox up --ports-from 18080                   with the API server on 18080, the broker on 18081, and so on
    hbox up --nodes 16x8 --shards 2              with two schedulers, which divide the queues
    hbox up --api assets                         a real control plane on this machine, without kubelets; kept between runs
    hbox up --kubeconfig ~/.kube/config          your cluster; pods with schedulerName: hbox are scheduled
    hbox up --kubeconfig ~/.kube/config --scheduler-names hbox,volcano     also serves Volcano's pods, instead of its scheduler

    When every service is ready, the command prints a line that begins with `ready`. The platform's data is in the state folder:
    pids.json (process ids), platform.json (addresses), logs/, and ledger.db. Progress goes to standard error. The command restarts a service that
    ends. At the start it drops the claims and messages of an earlier emulated cluster and keeps those of a real one; with the latter in the state folder
    no emulated cluster starts.
    """
    if kubeconfig is not None and api != Api.EMULATED:
        raise click.UsageError("--kubeconfig and --api exclude each other")
    if kubeconfig is not None and nodes:
        raise click.UsageError("--nodes makes nodes in a cluster of our own, and --kubeconfig names one of yours")
    if nats_users is not None and nats_url is None:
        raise click.UsageError("--nats-users requires --nats-url, your own broker")
    if nats_url is not None and brokers != "1":
        raise click.UsageError("--brokers and --nats-url exclude each other: the first starts brokers, the second uses yours")
    conf = os.environ.get("HBOX_SCHEDULER_CONF", "")
    if shares == "policy" and not conf:
        raise click.UsageError("--shares policy follows the policy's file, and HBOX_SCHEDULER_CONF names none")
    try:
        wanted = machines(nodes)
    except InvalidRequest as e:
        raise click.UsageError(f"--nodes: {e.message}: {e.hint}") from e
    try:
        names = scheduler_names(scheduler_names_)
    except InvalidRequest as e:
        raise click.UsageError(f"--scheduler-names: {e.message}: {e.hint}") from e
    try:
        Shards.parse(shards)
    except InvalidRequest as e:
        raise click.UsageError(f"--shards: {e.message}: {e.hint}") from e
    plan = Plan(
        ctx.state,
        kubeconfig,
        nats_url,
        nats_users,
        database,
        policy,
        time_scale,
        ready_s,
        Api(api),
        as_given,
        standby,
        names,
        queues,
        shares or _shares(conf),
        int(brokers),
        shards,
        levels=levels and kubeconfig is None,
        list_classes=list_classes,
        ports_from=ports_from,
    )
    platform: Platform | None = None
    began = time.monotonic()

    async def serve() -> None:
        nonlocal platform
        async with Platform.run(plan, _report, processes) as platform:
            running = platform.running
            await _make(wanted, running.kubeconfig)
            print(
                f"ready in {time.monotonic() - began:.1f} s: kubeconfig {running.kubeconfig}, broker {running.nats_url}, "
                f"state {platform.layout.folder}",
                flush=True,
            )
            await asyncio.Event().wait()

    def hurry() -> None:
        if platform is not None:
            platform.kill()
        os._exit(Exit.INTERRUPTED)

    try:
        with forked(cluster=plan.emulated) as processes:
            run(serve, hurry=hurry)
    except Interrupted:
        notify("stopped")
    return Exit.OK


def _shares(policy: str) -> str:
    """Setting HBOX_SHARES of the ledger: "policy" (shares by weight) if the policy file has the plugin `proportion`, else "deserved", with which the ledger
    needs no demand of waiting jobs. scheduler-core, not this function, rejects a faulty file."""
    if not policy:
        return "deserved"
    os.environ.update(ONE_THREAD)
    from hbox_common.yamltext import read_file  # noqa: PLC0415
    from hbox_scheduler.core.framework.conf import parse_conf  # noqa: PLC0415  half a second that --help does not need
    from hbox_scheduler.core.policy.registry import PLUGINS  # noqa: PLC0415

    with suppress(InvalidRequest, UnicodeError):
        conf = parse_conf(read_file(Path(policy)).decode(), plugins=tuple(PLUGINS))
        if any(plugin.name == "proportion" for plugin in conf.plugins):
            return "policy"
    return "deserved"


def without_cards(nodes: Sequence[TraceNode]) -> str:
    """How to create the nodes with cards; empty if one has cards."""
    return "" if any(node.cards for node in nodes) else f"the nodes have no cards; --nodes {len(nodes)}x8 creates each with 8"


async def _make(nodes: Sequence[TraceNode], kubeconfig: str) -> None:
    if not nodes:
        return
    async with KubeClient.connect(kubeconfig, user_agent="hbox up") as client:
        creation = Creation(client)

        async def make(rest: Iterator[TraceNode]) -> None:
            for node in rest:
                await creation.node(node)

        await side_by_side(make, iter(nodes), workers=16)
    _report(f"made {len(nodes)} nodes with {sum(node.cards for node in nodes)} cards: {nodes[0].name} to {nodes[-1].name}")
    if hint := without_cards(nodes):
        _report(hint)


def _report(message: str) -> None:
    notify(f"{time.strftime('%H:%M:%S')} {message}")
