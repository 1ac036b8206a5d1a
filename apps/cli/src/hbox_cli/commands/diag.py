"""`hbox diag`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbox_common.errors import InvalidRequest

from ..access import choice_of
from ..aio import run
from ..context import By, Context, Flags, platform_options
from ..output import notify, put
from ..platform.layout import Layout

if TYPE_CHECKING:
    from hbox_common.bus import Access

    from ..diag import Collected

MIB = 2**20


@click.command("diag")
@click.option("-f", "--file", type=click.Path(path_type=Path, dir_okay=False), help="Output file [hbox-diag-TIME.tar.gz].")
@click.option(
    "--most-mib",
    type=click.IntRange(1, 1024),
    default=64,
    show_default=True,
    help="Maximum size of all files together, uncompressed.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Kubeconfig of a cluster with the chart, instead of the state folder.",
)
@click.option("-n", "--namespace", default="hbox-system", show_default=True, help="With --kubeconfig: namespace of the chart.")
@platform_options
def command(
    ctx: Context,
    *,
    file: Path | None,
    most_mib: int,
    kubeconfig: Path | None,
    namespace: str,
) -> None:
    """Collect data for fault analysis: versions, settings, ends of logs, metrics and readiness of every service, streams and
    consumers of the broker, queues, the audit. The archive is readable by its owner only and contains `***` for seeds, passwords and tokens.

    \b
    hbox diag
    hbox diag --kubeconfig ~/.kube/config -n hbox-system
    hbox diag --kubeconfig ~/.kube/config --nats-url nats://127.0.0.1:4222 --nats-seed admin.nk

    It reads the state folder of an `hbox up`, running or not, or with --kubeconfig an installed chart; with --nats-url also its broker, as user admin.

    Sources that do not answer are listed; the archive then contains the rest.
    """
    layout = _layout(ctx) if kubeconfig is None else None
    path = file or Path(f"hbox-diag-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar.gz")
    from hbox_common.bus import Access  # noqa: PLC0415  so that --help is quick

    if layout is not None:
        done = run(lambda: _local(layout, path, most_mib * MIB))
    else:
        assert kubeconfig is not None
        broker = ctx.access.nats_url or "", Access(seed=ctx.access.nats_seed, ca=ctx.access.nats_ca)
        done = run(lambda: _cluster(kubeconfig, namespace, broker, path, most_mib * MIB))
    size = path.stat().st_size
    if not ctx.output.people:
        content = {"file": str(path), "bytes": size, "files": done.files, "missing": done.missing, "cut": done.cut}
        ctx.output.document("Diag", content)
        return
    for name, why in done.missing.items():
        put(f"missing: {name}: {why}")
    for name in done.cut:
        put(f"cut: {name}: more than --most-mib {most_mib}")
    put(f"{path}: {len(done.files)} files, {size / MIB:.1f} MiB; look into it before you send it")
    if done.missing:
        notify(f"{len(done.missing)} items are missing because their source did not answer")


def _layout(ctx: Context) -> Layout:
    """The state folder that is selected, also where nothing runs in it. Raises InvalidRequest where a context of another kind is selected."""
    if ctx.access == Flags() and (ctx.state_by is not By.DEFAULT or ctx.state.is_dir()):
        return Layout(ctx.state)
    choice = choice_of(ctx)
    if choice.state is None:
        raise InvalidRequest(
            f"hbox diag reads the state folder of an `hbox up`, or a cluster by its kubeconfig; {choice.name} is neither",
            hint="of an installed chart: --kubeconfig FILE -n NAMESPACE, and --nats-url URL --nats-seed FILE (user admin) for its broker",
        )
    return Layout(choice.state)


async def _local(layout: Layout, path: Path, most: int) -> "Collected":
    from ..diag import Archive, Scrub, collect, local  # noqa: PLC0415

    running = local.running_of(layout)
    with Archive(path, Scrub(local.secrets(layout, running)), most_bytes=most) as archive:
        return await collect(archive, local.steps(layout, running), local.about(layout, running))


async def _cluster(kubeconfig: Path, namespace: str, broker: "tuple[str, Access]", path: Path, most: int) -> "Collected":
    from hbox_common.kube import KubeClient  # noqa: PLC0415

    from ..diag import Archive, Scrub, cluster, collect  # noqa: PLC0415
    from ..diag.scrub import of_address, of_kubeconfig  # noqa: PLC0415

    nats_url, access = broker
    known = [*of_kubeconfig(kubeconfig), *of_address(nats_url)]
    if access.seed is not None and access.seed.exists():
        known.append(access.seed.read_text().strip())
    async with KubeClient.connect(str(kubeconfig), user_agent="hbox diag", timeout_s=10) as client:
        steps = await cluster.steps(client, namespace, nats_url=nats_url, access=access)
        with Archive(path, Scrub(known), most_bytes=most) as archive:
            return await collect(archive, steps, {"namespace": namespace})
