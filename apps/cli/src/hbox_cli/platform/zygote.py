"""A process that has imported what all services share, and forks them: `python -m hbox_cli.platform.zygote`.

Importing costs a service one to two seconds of CPU; six of them at once on two cores are half a minute's patience for nothing, and the same is paid
again when a killed service is started anew. Here it is paid once. Services' own modules are not imported before the fork: they register
metrics and read their settings.

What not all services need is imported before the first that does is forked: those forked earlier do not carry its pages, and one that starts again
finds it there.

On standard input come orders, one JSON object a line: {"name", "module", "env", "log"}; {"log"} alone is where its own errors go. On standard output
go {"ready": true} once, then for each order {"name", "pid"}, or {"name", "error"} where it could not be forked, and for each end
{"ended": pid, "returncode": n}. No thread and no event loop lives here, so that a fork is safe. Every child dies with this process, and this one with the
supervisor (PR_SET_PDEATHSIG), however that ends.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .child import die_with, rename

SHARED = (
    "uvloop",
    "hbox_common.runtime",
    "hbox_common.telemetry",
    "hbox_common.events",
    "hbox_common.bus",
    "hbox_common.brokerkeys",
    "hbox_common.kube",
)
#: Module of a service -> what not all need.
_KUBE = "hbox_common.kube.official"
OWN = {
    "hbox_topology": (_KUBE,),
    "hbox_jobs": (_KUBE,),
    "hbox_binder": (_KUBE,),
    "hbox_console": (_KUBE,),
    "hbox_ledger": (_KUBE, "hbox_common.store"),
    "hbox_scheduler": ("numpy",),
}


def main() -> NoReturn:
    rename("hbox-zygote")
    _bring(SHARED)
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _publish({"ready": True})
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    pending = b""
    while True:
        ready = {key.fileobj for key, _ in selector.select()}
        if woken in ready:
            woken.recv(4096)
            _reap()
        if 0 in ready:
            chunk = os.read(0, 65_536)
            if not chunk:
                sys.exit(0)  # the supervisor is gone, or done with us
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                received = json.loads(line)
                if "module" not in received:
                    _write_to(received["log"], 2)
                elif (order := _fork(received)) is not None:
                    selector.close()
                    woken.close()
                    wake.close()
                    _become(order)


def become_as_ordered() -> NoReturn:
    """Take one order from standard input, when it comes, and be that. For a process that was forked before anybody knew what is to run."""
    with open(0, "rb", buffering=0, closefd=False) as orders:
        line = orders.readline()
    if not line:
        sys.exit(0)
    _become(json.loads(line))


def _bring(modules: Sequence[str]) -> None:
    gc.disable()  # what is imported stays: walking it again and again while it grows is an eighth of the time
    for module in modules:
        importlib.import_module(module)
    # What is here now lives as long as the process; the collectors of the children need not touch (and so copy) its pages.
    gc.collect()
    gc.freeze()
    gc.enable()


def _fork(order: dict[str, Any]) -> dict[str, Any] | None:
    """None in this process; in the new one, what it shall become."""
    _bring([module for module in OWN.get(order["module"], ()) if module not in sys.modules])
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as e:  # the others live on
        _publish({"name": order["name"], "error": e.strerror})
        return None
    if pid == 0:
        die_with(parent)
        return order
    _publish({"name": order["name"], "pid": pid})
    return None


def _become(order: dict[str, Any]) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if os.getsid(0) != os.getpid():
        os.setsid()
    rename(order["name"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    _write_to(order["log"], 1, 2)
    os.environ.clear()
    os.environ.update(order["env"])
    # The default was computed on import, before the fork, and would be the same for all.
    os.environ["HBOX_INSTANCE"] = f"{socket.gethostname()}-{os.getpid()}"
    sys.argv[:] = [order["module"], *order.get("argv", ())]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    sys.exit(0)


def _write_to(log: str, *targets: int) -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for target in targets:
        os.dup2(file, target)
    os.close(file)


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _publish({"ended": pid, "returncode": os.waitstatus_to_exitcode(status)})


def _publish(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
