"""`hbox diag`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..aio import run
from ..context import Context, command_options
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
@click.option(
    "--nats-url", metavar="URL", default="", help="With --kubeconfig: address of the broker, if it is reachable from here."
)
@click.option("--nats-seed", type=click.Path(path_type=Path, dir_okay=False), help="With --nats-url: seed file of user admin.")
@command_options
def command(
    ctx: Context,
    *,
    file: Path | None,
    most_mib: int,
    kubeconfig: Path | None,
    namespace: str,
    nats_url: str,
    nats_seed: Path | None,
) -> None:
    """Collect data for fault analysis: versions, settings, ends of logs, metrics and readiness of every service, streams and
    consumers of the broker, queues, the audit. The archive is readable by its owner only and contains `***` for seeds, passwords and tokens.

    \b
    hbox diag
    hbox diag --kubeconfig ~/.kube/config -n hbox-system

    Sources that do not answer are listed; the archive then contains the rest.
    """
    if (nats_url or nats_seed) and kubeconfig is None:
        raise click.UsageError("--nats-url and --nats-seed go with --kubeconfig")
    path = file or Path(f"hbox-diag-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar.gz")
    from hbox_common.bus import Access  # noqa: PLC0415  so that --help is quick

    access = Access(seed=nats_seed)
    work = (
        (lambda: _local(Layout(ctx.state), path, most_mib * MIB))
        if kubeconfig is None
        else (lambda: _cluster(kubeconfig, namespace, (nats_url, access), path, most_mib * MIB))
    )
    done = run(work)
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
