"""The `hbox` command without its imports: forked from a process that has them, as often as a test asks.

Each run is a process as a user's: arguments, environment, files, exit status. Python's start and its imports, a second of a processor, are paid once.
What a user's own start looks like is what `platform_world.hbox` is for.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import get_context

_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        __name__,
        "hbox_cli.__main__",
        *(
            f"hbox_cli.commands.{name}"
            for name in ("audit", "check", "events", "jobs", "nodes", "queue", "quota", "share", "usage", "why")
        ),
        "hbox_cli.platform.crds",
        "hbox_common.kube.official",
        "uvloop",  # what these import when they are run
    ]
)


def _run(words: tuple[str, ...], env: Mapping[str, str], out: str, err: str) -> None:
    for path, fd in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY), fd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["hbox", *words]
    from hbox_cli.__main__ import main  # noqa: PLC0415  it is there already

    main()


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
