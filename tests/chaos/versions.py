"""Rollback and upgrade of one service at a time under load: an older version runs with the present versions of all other services."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from hbox_cli.services import PAIRED
from hbox_common.clock import monotonic_s
from hbox_common.kube import LEASES, KubeClient

from .. import waiting
from .faults import HEAL_LIMIT_S, MODULES, SERVICES, START_S, Fault, Target

ROOT = Path(__file__).parents[2]
NAMESPACE = "hbox-system"
HOLDER = "older"


def is_there(commit: str) -> bool:
    """Whether this clone has the commit; a shallow clone may lack it."""
    words = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The sources of a commit, in a temporary folder. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="hbox-older-") as folder:
        sources = Path(folder) / "sources"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", sources, commit], check=True)
        try:
            yield sources
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", sources], check=True)


def older(name: str, sources: Path, hold_s: float) -> Fault:
    """Roll a service back for `hold_s` seconds and upgrade it again: by leases if it supports a standby, else the present one is stopped meanwhile."""

    async def act(target: Target) -> None:
        env = os.environ | target.env(name) | {"PYTHONPATH": _path(sources), "HBOX_INSTANCE": f"{HOLDER}-{name}"}
        env |= {"HBOX_LEADER_ELECTION": "true"} if name in PAIRED else {}
        env["HBOX_HEALTH_PORT"] = port = str(_free_port())
        url = f"http://127.0.0.1:{port}/readyz"
        with (target.state / "logs" / f"older-{name}.log").open("ab") as log:
            other = await asyncio.create_subprocess_exec(sys.executable, "-m", MODULES[name], env=env, stdout=log, stderr=log)
        try:
            if name in PAIRED:
                await _ready(other, url)  # it starts as a standby, like the new pod of a rolling update
                await _hand_over(target, name, other)
                await asyncio.sleep(hold_s)
            else:
                await _instead(target, name, other, url, hold_s)
        finally:
            assert other.returncode is None, f"{name} of the older version ended: {other.returncode}; see its log"
            other.terminate()
            async with asyncio.timeout(START_S):
                await other.wait()

    return Fault(f"older {name}", HEAL_LIMIT_S, act)


def each_in_turn(sources: Path, hold_s: float) -> list[Fault]:
    return [older(name, sources, hold_s) for name in SERVICES]


async def _hand_over(target: Target, name: str, other: asyncio.subprocess.Process) -> None:
    """Stop the present instances until the older one leads."""
    until = monotonic_s() + 8 * START_S
    async with KubeClient.connect(target.running["kubeconfig"], user_agent="chaos", timeout_s=10) as client:
        while not await _leads(client, name):
            assert monotonic_s() < until, f"{name} of the older version does not come to lead"
            assert other.returncode is None, f"{name} of the older version ended: {other.returncode}; see its log"
            # Processes that ran long enough are restarted without a pause, which would pause the platform; a restarted one may get the lease first.
            for pid in [await target.well(process) for process in (f"{name}-standby", name)]:
                os.kill(pid, signal.SIGTERM)
            with suppress(AssertionError):
                await waiting.until(lambda: _leads(client, name), timeout_s=START_S / 3)


async def _ready(process: asyncio.subprocess.Process, url: str) -> None:
    def asked() -> bool:
        try:
            with urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    async with asyncio.timeout(4 * START_S):
        while not await asyncio.to_thread(asked):
            assert process.returncode is None, f"the older version ended: {process.returncode}; see its log"
            await asyncio.sleep(0.1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def _leads(client: KubeClient, name: str) -> bool:
    lease = await client.json("GET", LEASES.path(NAMESPACE, name))
    return str(lease["spec"].get("holderIdentity") or "").startswith(HOLDER)


async def _instead(target: Target, name: str, other: asyncio.subprocess.Process, url: str, hold_s: float) -> None:
    pid = await target.pid(name)
    os.kill(pid, signal.SIGSTOP)
    try:
        await _ready(other, url)
        await asyncio.sleep(hold_s)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _path(sources: Path) -> str:
    """PYTHONPATH with the older sources, which takes precedence over the installed ones."""
    return os.pathsep.join(str(folder) for folder in sorted(sources.glob("*/*/src")))
