"""`hbox health inject`: hardware faults of emulated nodes. It writes the files that the nodes' agents read; a platform on a real cluster has no such verb."""

from pathlib import Path

import click

from hbox_common.errors import InvalidRequest
from hbox_sandbox.kubelet.hardware import NodeHardware
from hbox_sandbox.kubelet.inject import Fault, Injection

from ..access import choice_of
from ..context import Context, platform_options
from ..output import put
from ..platform.layout import Layout


@click.command("inject", epilog="\b\nFaults: " + ", ".join(Fault))
@click.argument("fault", metavar="FAULT", type=click.Choice([fault.value for fault in Fault]))
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option("--card", default="", help="UUID or index of the card  [the first]")
@click.option("--adapter", default="", help="Name of the RDMA adapter  [the first]")
@platform_options
def command(ctx: Context, fault: str, nodes: tuple[str, ...], card: str, adapter: str) -> None:
    """Inject FAULT into the hardware of emulated NODEs of `hbox up`; `repaired` repairs them and boots the nodes.

    \b
    hbox health inject xid-79 node-0001 --card 3
    hbox health inject nic-down node-0001 node-0002 node-0003 node-0004     a dead switch
    hbox health inject repaired node-0001
    """
    kubelets = _kubelets(ctx)
    for node in nodes:
        Injection(NodeHardware(kubelets / node)).inject(Fault(fault), card=card, adapter=adapter)
        put(f"{node}: {fault}")


def _kubelets(ctx: Context) -> Path:
    state = choice_of(ctx).state
    if state is None or not Layout(state).running().emulated:
        raise InvalidRequest(
            "faults are injected into emulated nodes only", hint="use --state FOLDER of an `hbox up` that started its cluster"
        )
    return Layout(state).kubelets
