"""`hbox audit`."""

import click

from ..aio import run
from ..audit import Audit
from ..audit.reading import audit_platform
from ..context import Context, command_options
from ..exits import Faulty
from ..output import say
from ..platform.layout import Layout
from ..session import bus_of


@click.command("audit")
@click.option("--patience", type=click.FloatRange(0), default=15.0, show_default=True, help="Seconds for claims to settle.")
@command_options
def command(ctx: Context, patience: float) -> None:
    """Prove from outside that the platform keeps its promises.

    All pods, nodes and PodGroups are read from the API, all claims from the ledger: no card is given away beyond what it is, no gang is
    partial, ledger and cluster agree. Exit status 1 where one check fails.
    """
    result = run(lambda: _audit(ctx, patience))
    if ctx.output.machine:
        ctx.output.document("Audit", {"checks": result.checks, "faults": result.faults})
    else:
        for fault in result.faults:
            print(f"fault: {fault}")
        print(f"audit: {result.checks} checks, {len(result.faults)} faults")
    if result.faults:
        say("")
        raise Faulty(
            f"the audit found {len(result.faults)} faults", hint="they are listed above; the logs folder has the services' side"
        )


async def _audit(ctx: Context, patience_s: float) -> Audit:
    from hbox_common.kube import KubeClient  # noqa: PLC0415  half a second that --help does not need

    running = Layout(ctx.state).running()
    async with bus_of(running) as bus, KubeClient.connect(running.kubeconfig, user_agent="hbox-audit", timeout_s=30) as client:
        result, _ = await audit_platform(client, bus, patience_s=patience_s)
    return result
