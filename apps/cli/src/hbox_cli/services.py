"""The services: their names, and the modules behind them. `hbox-service NAME` is one of them in the foreground, as containers run it."""

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import NoReturn

#: Name -> module whose `python -m` is the service, in the order in which `hbox up` starts them.
SERVICES = {
    "health-monitor": "hbox_health",  # first those that need few libraries, last those that start with what the others bring: see platform/zygote
    "node-agent": "hbox_agent",
    "topology-collector": "hbox_topology",
    "job-controller": "hbox_jobs",
    "binder": "hbox_binder",
    "console": "hbox_console",
    "quota-ledger": "hbox_ledger",
    "scheduler-core": "hbox_scheduler",
}
#: Services without a connection to the bus, called by API servers alone: not part of `hbox up`.
ALONE = {"admission": "hbox_admission"}
#: The program for nodes that an operator lets HBox repair: not part of `hbox up`.
REPAIRING = {"node-remedy": "hbox_remedy"}
#: The service with the HTTP API.
CONSOLE = "console"
#: Services that run once on each node with a kubelet.
ON_NODES = ("node-agent",)
#: Services that may run twice, as leader and standby.
PAIRED = ("job-controller", "scheduler-core", "quota-ledger", "binder", "health-monitor")

#: Services of which several may run, all alike.
REPLICATED = (CONSOLE,)

USAGE = f"""\
usage: hbox-service NAME
       hbox-service --ready [URL]

Runs one service until SIGTERM: {", ".join((*SERVICES, *ALONE, *REPAIRING))}; or nats-server, with JetStream in /data and its users' keys in /keys.
Settings: the environment (HBOX_*) and the file of HBOX_CONFIG. Logs: standard error.

--ready checks the readiness of URL, or of this container's service (HBOX_HEALTH_PORT), and prints the response; exit status 1 = not ready.
"""

EXIT_NOT_READY = 1
EXIT_USAGE = 2

BROKER_FOLDER = Path("/data")
KEYS = Path("/keys")
ASK_S = 4.0


def main() -> NoReturn:
    """Becomes the service that the first argument names. Exit statuses: those of the service, 2 for a name that is none."""
    # The first process of a container ignores a signal that it has no handler for; a service brings its own once it is imported.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    match sys.argv[1:]:
        case ["-h" | "--help"]:
            sys.stdout.write(USAGE)
        case ["--ready"]:
            sys.exit(_ready(f"http://127.0.0.1:{os.environ.get('HBOX_HEALTH_PORT', '8080')}/readyz"))
        case ["--ready", str(url)]:
            sys.exit(_ready(url))
        case ["nats-server"]:
            _broker()
        case [str(name), *rest] if name in SERVICES | ALONE | REPAIRING and rest in ([], ["-h"], ["--help"]):
            sys.argv[1:] = rest
            runpy.run_module((SERVICES | ALONE | REPAIRING)[name], run_name="__main__", alter_sys=True)
        case names:
            sys.stderr.write(f"hbox-service: {' '.join(names) or 'no name'} is no service\n{USAGE}")
            sys.exit(EXIT_USAGE)
    sys.exit(0)


def _broker() -> NoReturn:
    """nats-server in this process' place, on all addresses of the container; its health is on the container's loopback alone. Keys are made where they are
    missing."""
    from hbox_common.brokerkeys import keep  # noqa: PLC0415
    from hbox_common.bus import find_binary, write_config  # noqa: PLC0415  services do not need it
    from hbox_common.bus.users import users  # noqa: PLC0415

    config = write_config(BROKER_FOLDER, host="0.0.0.0", port=4222, health_port=8222, keys=keep(KEYS, users()))
    binary = str(find_binary())
    os.execv(binary, [binary, "--config", str(config)])  # noqa: S606  a program of ours, by list


def _ready(url: str) -> int:
    from http.client import HTTPException  # noqa: PLC0415
    from urllib.request import urlopen  # noqa: PLC0415  50 ms that services need not wait for

    try:
        with urlopen(url, timeout=ASK_S) as answer:  # noqa: S310  the caller's own address
            sys.stdout.write(answer.read().decode(errors="replace"))
    except (OSError, HTTPException, ValueError) as e:
        body = e.read().decode(errors="replace") if hasattr(e, "read") else ""
        sys.stdout.write(body or f"{url}: {e}\n")
        return EXIT_NOT_READY
    return 0


#: Of which there may be several that act, one a shard.
SHARDED = "scheduler-core"
