"""Processor time of `hbox --help`, and user time of `hbox jobs` with 500 jobs as a multiple of that of `hbox --help`, which other load changes little."""

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hbox_common.bus.users import OPERATOR
from hbox_common.kube import NODES, PODS, KubeClient

from ..e2e.platform_world import until, up
from ..e2e.traced_jobs import node

RUNS = 9
LIMIT_MS = 150.0  #: of the design, for `hbox --help`
JOBS, LIMIT_RATIO = 500, 3.0
SPACE = "default"


def main() -> None:
    best = min(sum(_seconds(["--help"])) for _ in range(RUNS))
    print(f"hbox --help: {1000 * best:.0f} ms of processor, the least of {RUNS} runs (limit {LIMIT_MS:.0f})")
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch, up(Path(scratch) / "state") as running:
        asyncio.run(_submit(running.state / "kubeconfig"))
        until(lambda: len(running.json("jobs")["items"]) == JOBS, timeout_s=120, what=f"{JOBS} jobs")
        known = json.loads((running.state / "platform.json").read_text())
        over_http = ["--state", str(running.state), "jobs"]
        through_the_broker = ["--nats-url", known["nats_url"], "jobs"]
        if known["nats_users"]:
            through_the_broker[2:2] = ["--nats-seed", str(Path(known["nats_users"]) / f"{OPERATOR}.nk")]
        commands = ["--help"], over_http, through_the_broker
        times = [[_seconds(one)[0] for one in commands] for _ in range(RUNS)]  # in turns: the same load for all
    base, *found = (min(column) for column in zip(*times, strict=True))
    for what, took in zip(("over HTTP", "through the broker"), found, strict=True):
        print(
            f"hbox jobs {what}, {JOBS} jobs: {1000 * took:.0f} ms of user time, {took / base:.1f} times hbox --help "
            f"(limit {LIMIT_RATIO:g})"
        )


def _seconds(arguments: Sequence[str]) -> tuple[float, float]:
    """User and system time of one `hbox`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "hbox_cli", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


async def _submit(kubeconfig: Path) -> None:
    """One node with 8 cards, and jobs of one card each."""
    async with KubeClient.connect(str(kubeconfig), user_agent="bench") as client:
        await client.json("POST", NODES.path(), body=node("n0"))
        for number in range(JOBS):
            container = {"name": "main", "image": "pause", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            spec = {"schedulerName": "hbox", "containers": [container]}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"job-{number}"}, "spec": spec}
            await client.json("POST", PODS.path(SPACE), body=body)
