"""The whole platform on the emulated API: a burst through every service, and processor time by process."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HBOX = Path(sys.executable).with_name("hbox")
PODS = 3000
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used, its own threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mib(pid: int) -> float:
    """The most memory that a process has had so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10


def main() -> None:
    state = Path(tempfile.mkdtemp(prefix="hbox-bench-"))
    up = subprocess.Popen([HBOX, "up", "--state", state], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert up.stdout is not None
        if not any(line.startswith("ready") for line in up.stdout):
            raise SystemExit(f"hbox up did not get ready; see {state}/logs")
        pids: dict[str, int] = json.loads((state / "pids.json").read_text())
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        subprocess.run(
            [HBOX, "replay", "--state", state, "--limit", str(PODS)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        used = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
        report = json.loads((state / "report.json").read_text())
        bound = report["pods"]["bound"]
        print(
            f"{bound} of {report['pods']['submitted']} pods bound, {report['pods_per_s']:.0f} pods/s, faults found by the audit: {report['audit']['faults']}"
        )
        print(
            f"submit to bound under this load: p50 {report['latency_ms']['p50']:.0f} ms, p99 {report['latency_ms']['p99']:.0f} ms"
        )
        print(f"{'process':20} {'CPU ms a pod':>12} {'memory MiB':>11}")
        for name, seconds in sorted(used.items(), key=lambda item: -item[1]):
            print(f"{name:20} {1000 * seconds / max(bound, 1):12.2f} {rss_mib(pids[name]):11.0f}")
    finally:
        up.terminate()
        up.wait(30)
        shutil.rmtree(state, ignore_errors=True)
