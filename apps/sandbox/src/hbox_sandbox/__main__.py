"""`python -m hbox_sandbox`: the emulated Kubernetes API and its kubelets as a program of their own."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hbox_common.clock import run_faster, wall_s
from hbox_common.deepjson import read_deep_json
from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.kube import KubeClient
from hbox_common.loops import new_event_loop
from hbox_common.runtime.devices import configure_devices

from .api import ApiServer
from .kubelet import KubeletRoots, Kubelets
from .replay import Creation
from .trace import TraceNode, machines


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m hbox_sandbox", description="A Kubernetes API emulator with kubelets, in memory."
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1); there is no authentication"
    )
    parser.add_argument("--port", type=int, default=0, help="its port; 0 takes a free one (default)")
    parser.add_argument(
        "--server", default="", metavar="URL", help="how others reach it, for the kubeconfig (default: loopback)"
    )
    parser.add_argument(
        "--nodes", action="append", default=[], metavar="NODESxCARDS[:MODEL]", help="make such nodes; may stand several times"
    )
    parser.add_argument("--kubeconfig-out", type=Path, metavar="PATH", help="write a kubeconfig for this server")
    parser.add_argument(
        "--time-scale",
        type=float,
        default=1.0,
        metavar="X",
        help="emulated seconds per real second, of the cluster's clock and of hbox.io/run-seconds",
    )
    parser.add_argument(
        "--time-scale-since",
        type=float,
        default=None,
        metavar="S",
        help="when both clocks agree, in seconds since 1970 (default: now)",
    )
    parser.add_argument("--faults", type=Path, metavar="FILE", help="fault plan in force from the start (JSON)")
    parser.add_argument("--kubelets", choices=("on", "off"), default="on", help="run pods (default: on)")
    parser.add_argument(
        "--kubelet-roots",
        type=Path,
        metavar="PATH",
        help="folders of the first nodes' kubelets, with the PodResources socket that node-agent asks",
    )
    parser.add_argument(
        "--history", type=int, default=20_000, metavar="N", help="events remembered per resource before a watch gets 410"
    )
    parser.add_argument(
        "--bookmark-seconds", type=float, default=10.0, metavar="S", help="interval of bookmarks on quiet watches"
    )
    parser.add_argument(
        "--device-config",
        type=Path,
        default=os.environ.get("HBOX_DEVICE_CONFIG") or None,
        metavar="FILE",
        help="HAMi's device-config.yaml, the one that the services read (default: $HBOX_DEVICE_CONFIG)",
    )
    parser.add_argument("--seed", type=int, default=None, help="of uids and generated names")
    arguments = parser.parse_args()
    if arguments.time_scale <= 0:
        parser.error("--time-scale must be above 0")
    if arguments.time_scale != 1.0:
        run_faster(arguments.time_scale, arguments.time_scale_since or wall_s())
    try:
        arguments.nodes = machines(arguments.nodes)
    except InvalidRequest as e:
        parser.error(f"--nodes: {e.message}: {e.hint}")
    try:
        configure_devices(device_config=arguments.device_config, card_resources=os.environ.get("HBOX_CARD_RESOURCES", ""))
    except InvalidRequest as e:
        parser.error(f"{e.message}: {e.hint}")
    return arguments


async def _serve(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    api = ApiServer(
        host=arguments.host,
        port=arguments.port,
        seed=arguments.seed,
        history=arguments.history,
        bookmark_s=arguments.bookmark_seconds,
    )
    if arguments.faults is not None:
        api.faults.load(arguments.faults.read_bytes())
    kubelets = Kubelets(api.cluster, time_scale=arguments.time_scale) if arguments.kubelets == "on" else None
    topologies = kubelets.topologies if kubelets is not None else None
    roots = (
        KubeletRoots(api.cluster, arguments.kubelet_roots, topologies=topologies)
        if arguments.kubelet_roots is not None
        else None
    )
    async with api:
        if arguments.nodes:
            await _make(arguments.nodes, api)
        if arguments.kubeconfig_out is not None:
            api.kubeconfig(arguments.kubeconfig_out, server=arguments.server)
        async with asyncio.TaskGroup() as tasks:
            running = []
            if kubelets is not None:
                running.append(tasks.create_task(kubelets.run(), name="kubelets"))
            if roots is not None:
                running.append(tasks.create_task(roots.run(), name="kubelet roots"))
            sys.stdout.write(f"ready {api.url}\n")
            sys.stdout.flush()
            await stop.wait()
            for task in running:
                task.cancel()


async def _make(nodes: Sequence[TraceNode], api: ApiServer) -> None:
    with TemporaryDirectory() as folder:
        kubeconfig = api.kubeconfig(Path(folder) / "kubeconfig")
        async with KubeClient.connect(str(kubeconfig), user_agent="hbox_sandbox") as client:
            creation = Creation(client)
            for node in nodes:
                await creation.node(node)


def main() -> int:
    arguments = _arguments()
    # Objects are kept as bytes, so there is little for the collector to find, and full passes over the rest would be felt as stalls.
    gc.set_threshold(50_000, 20, 50)
    read_deep_json()
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(arguments))
    except (HBoxError, OSError) as error:
        sys.stderr.write(f"hbox_sandbox: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
