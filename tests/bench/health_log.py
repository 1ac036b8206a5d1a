"""node-agent under a hostile kernel log: LINES_PER_S records a second for SECONDS, with XIDS real XIDs hidden among them, and idle with eight cards.

Printed: how many XIDs were published and after how long, gaps, and the agent's processor and memory with its children; limits in docs/benchmarks.md. The log is
a file, from which a reader loses nothing; /dev/kmsg overwrites what is not read in time, which is reported as a gap.
"""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.clock import wall_s
from hbox_common.events import HealthReport
from hbox_common.kubelet import ALLOCATABLE, LIST, listening

from ..integration.agent.fake_nvml import COMPILER, build, environment

SECONDS = float(os.environ.get("HBOX_HEALTH_LOG_S", "60"))
LINES_PER_S, XIDS, CARDS = 10_000, 20, 8
#: Limits: seconds to publication; share of a core and MiB under the log, and idle.
LATEST_S, BUSY, IDLE = 2.0, (0.20, 60.0), (0.01, 80.0)
_STEP_S = 0.02
_CODES = (48, 62, 63, 64, 74, 79, 94, 95, 109, 119, 120, 136, 140, 143, 145, 149, 154, 155, 156, 158)


def main() -> None:
    asyncio.run(_main())


async def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _files(root / "host")
        async with (
            EmbeddedServer(root / "nats") as nats,
            Bus.connect(nats.url, name="test", instance="bench") as bus,
            listening(root / "kubelet/pod-resources/kubelet.sock", {LIST: _nothing, ALLOCATABLE: _nothing}),
        ):
            agent = _agent(nats, root)
            try:
                await _first_report(bus)
                await _hostile(bus, root / "host/dev/kmsg", agent.pid)
                (root / "host/dev/kmsg").write_text("")
                await asyncio.sleep(3.0)
                before, began = _processor_s(agent.pid), time.monotonic()
                await asyncio.sleep(SECONDS)
                share = (_processor_s(agent.pid) - before) / (time.monotonic() - began)
                _print(
                    f"idle, {CARDS} cards{'' if COMPILER else ' (no compiler: NVML is not read)'}", share, _mib(agent.pid), IDLE
                )
            finally:
                agent.terminate()
                agent.wait()


async def _nothing(_: bytes) -> bytes:
    return b""  # no pods, no devices


def _files(host: Path) -> None:
    for path, text in {
        "dev/kmsg": "",
        "proc/sys/kernel/random/boot_id": "boot-1\n",
        "proc/modules": "nvidia 1 0 - Live 0x0\n",
    }.items():
        (host / path).parent.mkdir(parents=True, exist_ok=True)
        (host / path).write_text(text)
    for card in range(CARDS):
        bus = 16 * (card + 1)
        for place, class_, name in ((0, "0x030200", ""), (1, "0x020700", f"mlx5_{card}")):
            path = f"pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.0/0000:{bus + 2 + place:02x}:00.0"
            folder = host / "sys/devices" / path
            folder.mkdir(parents=True)
            for file, text in {"class": class_, "vendor": "0x10de", "numa_node": "0"}.items():
                (folder / file).write_text(text)
            link = host / "sys/bus/pci/devices" / path.rpartition("/")[2]
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path("../../../devices") / path)
            if name:
                port = host / "sys/class/infiniband" / name / "ports/1"
                port.mkdir(parents=True)
                (port.parents[1] / "device").symlink_to(Path("../../../devices") / path)
                for file, text in {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "phys_state": "5: LinkUp"}.items():
                    (port / file).write_text(text)


def _agent(nats: EmbeddedServer, root: Path) -> subprocess.Popen[bytes]:
    settings = {
        "HBOX_NATS_URL": nats.url, "HBOX_NODE_NAME": "n1", "HBOX_KUBELET_ROOT": str(root / "kubelet"), "HBOX_HOST_ROOT": str(root / "host"),
        "HBOX_KERNEL_LOG": "true", "HBOX_HEALTH_PORT": "0", "HBOX_LOG_LEVEL": "error",
    }  # fmt: skip
    variables = dict(os.environ)
    if COMPILER is not None:
        fake = build(root / "nvml")
        with environment(fake, cards=CARDS) as found:
            variables = dict(found)
        settings |= {"HBOX_NVML": "true", "HBOX_NVML_LIBRARY": str(fake.folder)}
    return subprocess.Popen([sys.executable, "-m", "hbox_agent"], env=variables | settings)


async def _first_report(bus: Bus) -> None:
    async with asyncio.timeout(60):
        while not await bus.since(HealthReport, ("n1",), 0.0):  # noqa: ASYNC110  asks the broker
            await asyncio.sleep(0.2)


async def _hostile(bus: Bus, log: Path, pid: int) -> None:
    chance = random.Random(1)
    total = int(SECONDS * LINES_PER_S)
    places = dict(zip(sorted(chance.sample(range(total), XIDS)), _CODES, strict=True))
    noise = _noise(chance)
    written: dict[str, float] = {}
    before, began, count = _processor_s(pid), time.monotonic(), 0
    with log.open("a") as file:
        while count < total:
            due = min(total, int((time.monotonic() - began) * LINES_PER_S))
            lines = []
            for place in range(count, due):
                code = places.get(place)
                text = (
                    next(noise)
                    if code is None
                    else f"3,{place},{place * 100},-;NVRM: Xid (PCI:0000:12:00): {code}, pid=7, name=x, text\n"
                )
                lines.append(text.replace("SEQ", str(place), 1))
                if code is not None:
                    written[str(code)] = wall_s()
            file.write("".join(lines))
            file.flush()
            count = due
            await asyncio.sleep(_STEP_S)
    share = (_processor_s(pid) - before) / (time.monotonic() - began)
    await asyncio.sleep(LATEST_S)
    delays: dict[str, float] = {}
    invented = gaps = 0
    for one in await bus.since(HealthReport, ("n1",), 0.0):
        if not isinstance(one.event, HealthReport):
            continue
        for fact in one.event.facts:
            if fact.check == "kernel-log" and fact.code == "gap":
                gaps += 1
            elif fact.check == "kernel-log" and fact.code in written:
                delays.setdefault(fact.code, one.stored_at - written[fact.code])
            elif fact.check == "kernel-log":
                invented += 1
    latest = max(delays.values(), default=float("inf"))
    print(f"{total} records in {SECONDS:g} s: {len(delays)} of {XIDS} XIDs published, the latest after {latest:.2f} s (limit {LATEST_S:g}), "
          f"{gaps} gaps, {invented} invented")  # fmt: skip
    _print("hostile log", share, _mib(pid), BUSY)


def _noise(chance: random.Random) -> Iterator[str]:
    """Records of programs that imitate the driver, and of the kernel about other things; most have words by which readers search."""
    kinds = (
        "14,SEQ,1,-;NVRM: Xid (PCI:0000:12:00): 79, pid=1, name=evil, GPU has fallen off the bus.\n",
        "6,SEQ,1,-;audit: type=1300 msg='NVRM: Xid (PCI:0000:12:00): 48, pid=1'\n",
        "6,SEQ,1,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.163.01\n",
        "6,SEQ,1,-;NVRM: Xid (PCI:0000:12:0): x, pid=1\n",
        "6,SEQ,1,-;mlx5_core 0000:13:00.0: firmware version: 28.41.1000\n",
        "6,SEQ,1,-;IPv6: ADDRCONF(NETDEV_CHANGE): veth7c1: link becomes ready\n SUBSYSTEM=net\n",
        "6,SEQ,1,-;docker0: port 3(veth7c1) entered blocking state\n",
        f"6,SEQ,1,-;{'A' * 900}\n",
    )
    while True:
        yield chance.choice(kinds)


def _processor_s(pid: int) -> float:
    """Of the process and of its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _mib(pid: int) -> tuple[float, float]:
    """The process' own memory, and with the pages of files that it shares with other processes of the same image."""
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    found = {line[0]: int(line[1]) / 1024 for line in lines if line[0] in ("RssAnon:", "VmRSS:")}
    return found["RssAnon:"], found["VmRSS:"]


def _print(what: str, share: float, mib: tuple[float, float], limits: tuple[float, float]) -> None:
    own, all_ = mib
    print(
        f"{what}: {100 * share:.2f} % of a core (limit {100 * limits[0]:g}), {own:.0f} MiB (limit {limits[1]:g}), {all_:.0f} with pages of files"
    )
