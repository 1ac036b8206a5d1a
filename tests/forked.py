"""The `hbox` command and the services without their imports: forked from a process that has them, as often as a test asks.

Each run is a process as a user's: arguments, environment, files, exit status. Python's start and its imports, a second of a processor, are paid once; of
`hbox up`, whose own processes are its forks, those of all. What a user's own start looks like is what `Up(anew=True)` and `platform_world.HBOX` are for.

Nothing is imported here that registers metrics or reads settings: of services the cores alone; a `service` imports the rest of its own when it runs.
"""

import asyncio
import gc
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# This module is the first that the process imports which is forked: threads of a library would make that unsafe.
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _core(package: str) -> list[str]:
    """The modules of a service's core, none of which registers or reads anything."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    return [
        ".".join((package, *path.relative_to(folder).with_suffix("").parts)) for path in sorted(folder.glob("core/**/[!_]*.py"))
    ]


_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        __name__,
        "hbox_cli.__main__",
        *(
            f"hbox_cli.commands.{name}"
            for name in ("audit", "check", "events", "jobs", "nodes", "queue", "quota", "share", "usage", "why")
        ),
        "hbox_cli.access.brokersource",
        "hbox_cli.platform.crds",
        "hbox_common.kube.official",
        "uvloop",  # what these import when they are run
        "hbox_cli.commands.up",
        "hbox_cli.platform.identities",
        "hbox_common.runtime",
        "hbox_common.telemetry",
        "hbox_common.store",
        "hbox_common.store.upgrade",
        "sqlalchemy.dialects.sqlite.pysqlite",
        "hbox_sandbox.api",
        "hbox_sandbox.kubelet",
        *(
            module
            for name in ("agent", "binder", "health", "jobs", "ledger", "scheduler", "topology")
            for module in _core(f"hbox_{name}")
        ),
    ]
)


def _begin(env: Mapping[str, str], out: str | None, err: str | None) -> None:
    for path, fd in ((out, 1), (err, 2)):
        if path is not None:
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), fd)
    gc.freeze()  # what is here already stays: walking it would copy its pages
    os.environ.clear()
    os.environ.update(env)


def _run(words: tuple[str, ...], env: Mapping[str, str], out: str, err: str) -> None:
    _begin(env, out, err)
    sys.argv = ["hbox", *words]
    from hbox_cli.__main__ import main  # noqa: PLC0415  it is there already

    main()


def _module(name: str, words: tuple[str, ...], env: Mapping[str, str], out: str | None, err: str | None) -> None:
    _begin(env, out, err)
    sys.argv = [name, *words]
    runpy.run_module(name, run_name="__main__")


class Started:
    """A command that runs, as `subprocess.Popen` has it."""

    def __init__(self, process: Any, words: tuple[str, ...]) -> None:
        self._process, self._words = process, words

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        status: int | None = self._process.exitcode
        return status

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(["hbox", *self._words], timeout or 0.0)
        return status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(*words: str, env: Mapping[str, str], out: Path, err: Path) -> Started:
    """The command, whose output goes to these files, which exist. `env`: all of its environment."""
    process = _FORKS.Process(target=_run, args=(words, dict(env), str(out), str(err)), daemon=True)
    process.start()
    return Started(process, words)


def run(*words: str, timeout_s: float, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """`env`: all of its environment. Raises subprocess.TimeoutExpired."""
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        process = _FORKS.Process(target=_run, args=(words, dict(env), out.name, err.name))
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(["hbox", *words], timeout_s)
        done = subprocess.CompletedProcess(["hbox", *words], process.exitcode, out.read().decode(), err.read().decode())
        process.close()
        return done


class Service:
    """A service that runs, as `asyncio.subprocess.Process` has it; killed, where it still runs, when this process ends."""

    def __init__(self, process: Any) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def returncode(self) -> int | None:
        status: int | None = self._process.exitcode
        return status

    def send_signal(self, sig: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def join(self, timeout_s: float) -> None:
        """Until it has ended. Raises TimeoutError."""
        self._process.join(timeout_s)
        if self.returncode is None:
            raise TimeoutError

    async def wait(self) -> int:
        while (status := self.returncode) is None:  # noqa: ASYNC110  nobody tells of it
            await asyncio.sleep(0.01)
        return status


def service(module: str, *words: str, env: Mapping[str, str], out: Path | None = None, err: Path | None = None) -> Service:
    """`python -m module words`. `env`: all of its environment; `out`, `err`: files, which exist, to which its output is added."""
    files = (None if path is None else str(path) for path in (out, err))
    process = _FORKS.Process(target=_module, args=(module, words, dict(env), *files), daemon=True)
    process.start()
    return Service(process)
