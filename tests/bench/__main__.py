"""`make bench` runs the benchmarks of BENCHES; `python -m tests.bench NAME...` runs the named ones, of BENCHES or ASKED_FOR.

Figures depend on the machine and its other load: compare ratios within one run. The limits are those of docs/benchmarks.md.
"""

import importlib
import os
import platform as machine
import sys
import time

BENCHES = (
    "cli",
    "scheduler",
    "slices",
    "devices",
    "shares",
    "victims",
    "topology",
    "fabric",
    "placement",
    "ledger",
    "platform",
    "day",
    "starts",
)
ASKED_FOR = (
    "waits",
    "reclaim",
    "real",
    "cost",
    "ceiling",
    "size",
    "scale",
    "large",
    "flood",
    "vgpu",
    "shards",
    "wishes",
    "owners",
    "health",
    "health-log",
    "health-day",
    "health-reports",
    "why",
    "history",
    "core",
    "bulk",
    "names",
    "startup",
)  #: take minutes, and the first programs that are not everywhere


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES + ASKED_FOR]
    if unknown:
        print(f"no benchmark called {unknown[0]}; there are {', '.join(BENCHES + ASKED_FOR)}", file=sys.stderr)
        return 2
    print(f"{os.cpu_count()} cores, Python {machine.python_version()}, {machine.machine()}, {time.strftime('%Y-%m-%d')}")
    for name in names or BENCHES:
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"tests.bench.{name.replace('-', '_')}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
