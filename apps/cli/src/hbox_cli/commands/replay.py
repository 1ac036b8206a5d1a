"""`hbox replay`: a trace through the running platform, or through one of its own."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.model import SCHEDULER_NAME
from hbox_sandbox.profile import PROFILES, generate
from hbox_sandbox.trace import Trace, read_alibaba2023

from ..aio import run
from ..context import Context, command_options
from ..exits import Exit, Faulty
from ..output import notify
from ..platform.early import Forked, forked
from ..platform.layout import Layout, Running
from ..platform.supervisor import Plan, Platform
from .up import POLICIES

T = TypeVar("T")

NODES_KNOWN_S = 60.0

#: Seconds that a service or the broker may be down during a replay: the supervisor restarts a process that was killed.
AWAY_S = 30.0


@click.command("replay")
@click.option("--trace", "pods", type=click.Path(path_type=Path), help="Pod list, CSV or gzipped (Alibaba 2023).")
@click.option("--nodes", type=click.Path(path_type=Path), help="Node list of --trace.")
@click.option("--profile", type=click.Choice(list(PROFILES)), help=f"A built-in day of work [{next(iter(PROFILES))}].")
@click.option("--seed", type=int, default=42, show_default=True, help="Seed of the arrival order.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of pods.")
@click.option("--limit-nodes", type=click.IntRange(1), help="Maximum number of nodes.")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="Pods created per second [as fast as the API accepts them]."
)
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default=POLICIES[0],
    show_default=True,
    help="Placement policy of the platform that the command starts.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Cluster of the platform that the command starts [emulated].",
)
@click.option(
    "--departments/--no-departments",
    default=None,
    help="Two departments fill the cluster, then a third reclaims its lent cards [on for an emulated cluster].",
)
@click.option("--namespace", default="replay", show_default=True, help="Namespace of its pods.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(1),
    default=120.0,
    show_default=True,
    help="Seconds without progress after which the replay fails.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file of the JSON report [report.json in the state folder].",
)
@command_options
def command(
    ctx: Context,
    *,
    pods: Path | None,
    nodes: Path | None,
    profile: str | None,
    seed: int,
    limit: int | None,
    limit_nodes: int | None,
    rate: float | None,
    policy: str,
    kubeconfig: Path | None,
    departments: bool | None,
    namespace: str,
    wait_s: float,
    report: Path | None,
) -> int:
    """Replay a trace; print report and audit.

    \b
    hbox replay
    hbox replay --limit-nodes 40 --limit 300
    hbox replay --trace openb_pod_list_default.csv.gz --nodes openb_node_list_gpu_node.csv.gz

    If a platform runs in the state folder, the replay uses it and leaves its objects in place; otherwise the command starts a platform
    and stops it at the end. Exit status 1 if the audit finds a fault, 124 if pods have neither a node nor a verdict.
    """
    layout = Layout(ctx.state.absolute())
    # Before the trace: they do not carry its pages.
    with nullcontext(Forked()) if layout.busy else forked(cluster=kubeconfig is None) as processes:
        trace = _trace(pods, nodes, profile, seed)
        cut = trace.limited(pods=limit, nodes=limit_nodes)
        platform: list[Platform] = []

        def hurry() -> None:
            for one in platform:
                one.kill()
            os._exit(Exit.INTERRUPTED)

        async def work() -> dict[str, Any]:
            async with _platform(layout, Plan(ctx.state, kubeconfig, policy=policy), platform, processes) as (
                running,
                used_policy,
            ):
                return await _replay(
                    running,
                    cut,
                    used_policy,
                    departments=bool(platform) and kubeconfig is None if departments is None else departments,
                    namespace=namespace,
                    rate=rate or 0.0,
                    wait_s=wait_s,
                    whole=limit is None and limit_nodes is None,
                )

        content = run(work, hurry=hurry)
    target = report or layout.report
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(content, indent=2) + "\n")
    except OSError as e:
        raise InvalidRequest(
            f"the report cannot be written to {target}: {e.strerror}", hint="choose another place with --report"
        ) from e
    _show(ctx, content, target)
    if content["audit"]["faults"]:
        raise Faulty(f"the audit found {content['audit']['faults']} faults", hint=f"they are listed in {target}")
    if content["pods"]["without_verdict"]:
        raise TimeoutError(f"{content['pods']['without_verdict']} pods have neither a node nor a verdict")
    return Exit.OK


def _trace(pods: Path | None, nodes: Path | None, profile: str | None, seed: int) -> Trace:
    if (pods is None) != (nodes is None):
        raise click.UsageError("--trace and --nodes go together")
    if pods is not None and nodes is not None:
        if profile is not None:
            raise click.UsageError("--trace and --profile exclude each other")
        return read_alibaba2023(pods, nodes).shuffled(seed)
    return generate(profile or next(iter(PROFILES)), seed=seed)


@asynccontextmanager
async def _platform(layout: Layout, plan: Plan, kept: list[Platform], processes: Forked) -> AsyncIterator[tuple[Running, str]]:
    """The platform that runs in the folder, else one of our own, made of these processes; and its policy."""
    if layout.busy:
        running = layout.running()
        if SCHEDULER_NAME not in running.scheduler_names:
            raise InvalidRequest(
                f"the platform in {layout.folder} places pods of {', '.join(running.scheduler_names)} alone, and a replay's are of {SCHEDULER_NAME}",
                hint="choose another folder with --state",
            )
        if plan.kubeconfig is not None:
            notify(f"a platform runs in {layout.folder} already: --kubeconfig and --policy are its own")
        yield running, running.policy
        return
    began = time.monotonic()
    async with Platform.run(plan, notify, processes) as platform:
        kept.append(platform)
        notify(f"platform ready in {time.monotonic() - began:.1f} s")
        yield platform.running, plan.policy
        notify("stopping the platform")


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Its answer, as soon as there is one. Raises Unavailable after `AWAY_S`."""
    until = time.monotonic() + AWAY_S
    while True:
        try:
            return await ask()
        except Unavailable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.5)


async def _replay(
    running: Running,
    trace: Trace,
    policy: str,
    *,
    departments: bool,
    namespace: str,
    rate: float,
    wait_s: float,
    whole: bool,
) -> dict[str, Any]:
    # Half a second of imports that `hbox replay --help` does not need.
    from hbox_common.bus import Delivery, Start  # noqa: PLC0415
    from hbox_common.events import ClaimsAsked, ClaimsPage, Event, JobsAsked, JobsPage, NodeStateChanged  # noqa: PLC0415
    from hbox_common.kube import KubeClient  # noqa: PLC0415
    from hbox_common.model.devices import VENDORS  # noqa: PLC0415
    from hbox_ledger.adapters.audit import prove  # noqa: PLC0415
    from hbox_sandbox.replay import BORROWERS, Options, Replay, TakingBack, furnish  # noqa: PLC0415

    from .. import progress, report  # noqa: PLC0415
    from ..audit.reading import audit_platform  # noqa: PLC0415
    from ..session import ASK_S, bus_of  # noqa: PLC0415

    async with (
        bus_of(running) as bus,
        KubeClient.connect(running.kubeconfig or None, user_agent="hbox-replay", timeout_s=30) as client,
    ):

        async def verdicts() -> Mapping[str, str]:
            asked = JobsAsked(asker="replay", jobs=False, verdicts=True)
            pages = await _patiently(lambda: bus.ask(asked, JobsPage, timeout_s=ASK_S))
            return {verdict.job: verdict.message for page in pages for verdict in page.verdicts}

        async def nodes_known(names: set[str]) -> None:
            missing = set(names)
            done = asyncio.Event()

            async def take(deliveries: Sequence[Delivery]) -> None:
                for delivery in deliveries:
                    event: Event = delivery.event
                    if isinstance(event, NodeStateChanged) and not event.node.gone:
                        missing.discard(event.node.name)
                if not missing:
                    done.set()

            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(bus.follow([NodeStateChanged], take, start=Start.LAST_PER_SUBJECT))
                try:
                    await asyncio.wait_for(done.wait(), NODES_KNOWN_S)
                except TimeoutError:
                    notify(f"{len(missing)} nodes are not known to the platform after {NODES_KNOWN_S:g} s; going on without")
                following.cancel()

        async def used() -> Mapping[str, int]:
            pages = await _patiently(lambda: bus.ask(ClaimsAsked(asker="replay"), ClaimsPage, timeout_s=ASK_S))
            return {queue: VENDORS.asked(amounts) for page in pages for queue, amounts in page.used.items()}

        audited_now = partial(_patiently, partial(audit_platform, client, bus, schedulers=running.scheduler_names))
        options = Options(namespace=namespace, prefix=f"r{int(time.time()) % 0xFFFFFF:06x}-", rate=rate, wait_s=wait_s)
        cards = trace.capacity_milli // 1000
        if departments:
            await furnish(client, cards)
            options = replace(options, queues=BORROWERS)
        with progress.shown() as shown:
            measured = await Replay(client, trace, options, verdicts=verdicts, nodes_known=nodes_known, progress=shown).run()
        audited, cluster = await audited_now()
        content = report.make(trace, measured, audited, nodes=cluster.nodes, pods=cluster.pods, policy=policy, whole=whole)
        if departments:
            notify("a third department takes cards back that it lent")
            taking = TakingBack(client, namespace=namespace, prefix=options.prefix, cards=cards, used=used)
            content["departments"] = report.departments(await taking.run(), cards)
            again, _ = await audited_now()
            audited.add(again)
        proof = await asyncio.to_thread(prove, running.database_url)
        audited.checks += proof.checks
        audited.faults += [f"ledger: {fault}" for fault in proof.faults]
        content["audit"] = report.audit_of(audited)
        return content


def _show(ctx: Context, content: dict[str, Any], target: Path) -> None:
    from .. import report  # noqa: PLC0415

    if not ctx.output.people:
        ctx.output.document("ReplayReport", content)
    else:
        print(report.text(content))
    notify(f"report: {target}")
