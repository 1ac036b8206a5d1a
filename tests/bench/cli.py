"""Cost of `hbox --help` in seconds of processor time, which other load of the machine does not change."""

import resource
import subprocess
import sys

RUNS = 9
LIMIT_MS = 150.0  #: of the design


def processor_ms() -> float:
    """Of one `hbox --help`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "hbox_cli", "--help"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000.0 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    best = min(processor_ms() for _ in range(RUNS))
    print(f"hbox --help: {best:.0f} ms of processor, the least of {RUNS} runs (limit {LIMIT_MS:.0f})")
