"""A real control plane in processes of its own, without the platform: the programs of `make kube-assets`, or KUBEBUILDER_ASSETS."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import MappingProxyType

from hbox_cli.platform.assets import API_SERVER, ETCD, PROGRAMS, ControlPlane
from hbox_cli.platform.child import die_with
from hbox_common.ports import free_port

READY_S = 60.0
STOP_S = 20.0


@contextmanager
def control_plane(
    folder: Path, programs: Sequence[str] = PROGRAMS, more: Mapping[str, Mapping[str, str | None]] = MappingProxyType({})
) -> Iterator[ControlPlane]:
    """Ready, in `folder`; stopped at the end of the block. The administrator's kubeconfig is `.kubeconfig`.

    `more`: flags by program, in place of those that it has else; None: without that flag.
    """
    plane = ControlPlane.prepare(folder / "kube", folder / "kubeconfig", port=free_port())
    with ExitStack() as stack:
        api = [stack.enter_context(_running(plane, name, more.get(name, {}))) for name in (ETCD, API_SERVER)][1]
        asyncio.run(_ready(plane, api))
        plane.admit()
        for name in programs:
            if name not in (ETCD, API_SERVER):
                stack.enter_context(_running(plane, name, more.get(name, {})))
        yield plane


def kill_api_server(plane: ControlPlane) -> None:
    """By SIGKILL; etcd stays."""
    words = [os.fsencode(word) for word in plane.argv(API_SERVER)]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (entry / "cmdline").read_bytes().split(b"\0")[:-1] == words:
            os.kill(int(entry.name), signal.SIGKILL)
            return
    raise AssertionError("no API server runs")


@asynccontextmanager
async def api_server(plane: ControlPlane) -> AsyncIterator[None]:
    """Another one on the same data, ready."""
    with _running(plane, API_SERVER, {}) as process:
        await _ready(plane, process)
        yield


@contextmanager
def kube_scheduler(plane: ControlPlane, folder: Path, configuration: str) -> Iterator[int]:
    """kube-scheduler by this KubeSchedulerConfiguration, until the end of the block; its process id. Its log is in `folder`."""
    config, us = folder / "scheduler.yaml", os.getpid()
    config.write_text(configuration)
    with (folder / "kube-scheduler.log").open("wb") as log:
        process = subprocess.Popen(
            [plane.programs / "kube-scheduler", f"--config={config}", "--secure-port=0"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=lambda: die_with(us),  # noqa: PLW1509  a system call and no more
        )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


async def _ready(plane: ControlPlane, api_server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + READY_S
    while not await plane.ready():
        assert api_server.poll() is None, f"kube-apiserver ended; its log is beside {plane.folder}"
        assert time.monotonic() < until, f"kube-apiserver is not ready after {READY_S:g} s; its log is beside {plane.folder}"
        await asyncio.sleep(0.05)


@contextmanager
def _running(plane: ControlPlane, name: str, more: Mapping[str, str | None]) -> Iterator[subprocess.Popen[bytes]]:
    us = os.getpid()
    with (plane.folder.parent / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(word for word in plane.argv(name) if word.partition("=")[0].removeprefix("--") not in more),
                *(f"--{flag}={value}" for flag, value in more.items() if value is not None),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: die_with(us),  # noqa: PLW1509  a system call and no more
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
