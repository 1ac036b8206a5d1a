"""The services: their names, and the modules behind them. `hbox-service NAME` is one of them in the foreground, as containers run it."""

import runpy
import sys
from typing import NoReturn

#: Name -> module whose `python -m` is the service, in the order in which `hbox up` starts them.
SERVICES = {
    "health-monitor": "hbox_health",  # first those that need few libraries, last those that start with what the others bring: see platform/zygote
    "topology-collector": "hbox_topology",
    "job-controller": "hbox_jobs",
    "binder": "hbox_binder",
    "quota-ledger": "hbox_ledger",
    "scheduler-core": "hbox_scheduler",
}
#: Those that may run twice: one leads, the other stands by.
PAIRED = ("job-controller", "scheduler-core", "quota-ledger", "binder")

USAGE = f"""\
usage: hbox-service NAME

Runs one service until SIGTERM: {", ".join(SERVICES)}.
Its settings come from the environment (HBOX_*) and the file that HBOX_CONFIG names; its log goes to standard error.
"""

EXIT_USAGE = 2


def main() -> NoReturn:
    """Becomes the service that the first argument names. Exit statuses: those of the service, 2 for a name that is none."""
    names = sys.argv[1:]
    if names in (["--help"], ["-h"]):
        sys.stdout.write(USAGE)
        sys.exit(0)
    if len(names) != 1 or names[0] not in SERVICES:
        sys.stderr.write(f"hbox-service: {' '.join(names) or 'no name'} is no service\n{USAGE}")
        sys.exit(EXIT_USAGE)
    sys.argv[1:] = []
    runpy.run_module(SERVICES[names[0]], run_name="__main__", alter_sys=True)
    sys.exit(0)
