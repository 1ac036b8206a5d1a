"""node-remedy as a process on a real broker, on a node that is a folder: its /proc and /sys, and commands that record their calls."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.clock import wall_s
from hbox_common.events import RemediesDecided, RemedyObserved
from hbox_common.model import NodeName
from hbox_common.model.remedy import Decision, Outcome, Verb

from ... import forked
from ...waiting import until

NODE = NodeName("n1")
UUID, PCI = "GPU-6a1f0c9e-3a5d-4a51-8c3e-1f2b3c4d5e6f", "0000:18:00.0"
CARD = f"gpu:{UUID}"
DRIVER = "550.54.15"

_INFORMATION = f"""\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 184
GPU UUID: \t {UUID}
Video BIOS: \t 96.00.74.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
Bus Location: \t {PCI}
Device Minor: \t 2
GPU Excluded:\t No
"""

#: Each command records its call and answers from the files of its own folder: `<command>/<last argument>`, with the status in `.status`. While a file `hold`
#: exists there, the command does not end.
_COMMAND = """\
#!/bin/sh
PATH=/usr/bin:/bin
for last; do :; done
echo "NAME $*" >> HOST/calls
[ -f "HOST/NAME/$last.hold" ] && while [ -f "HOST/NAME/$last.hold" ]; do sleep 0.05; done
[ -f "HOST/NAME/$last" ] && cat "HOST/NAME/$last"
[ -f "HOST/NAME/$last.status" ] && exit "$(cat "HOST/NAME/$last.status")"
exit 0
"""
COMMANDS = ("nvidia-smi", "systemctl", "modprobe", "setpci", "nv-fabricmanager", "nvidia-bug-report.sh", "power-cycle", "dcgmi")
MODES = "--format=csv,noheader"
#: DCGM's number of the card is not its index.
DISCOVERY = """\
2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 3      | Name: NVIDIA H100 80GB HBM3                                          |
|        | PCI Bus ID: 00000000:18:00.0                                         |
|        | Device UUID: UUID_0                        |
+--------+----------------------------------------------------------------------+
| 4      | Name: NVIDIA H100 80GB HBM3                                          |
|        | PCI Bus ID: 00000000:2A:00.0                                         |
|        | Device UUID: GPU-00000000-0000-0000-0000-000000000004                |
+--------+----------------------------------------------------------------------+
0 NvSwitches found.
"""


def decision(verb: Verb, entity: str = "node", *, incident: str = "i1", attempt: int = 1, valid_s: float = 60.0) -> Decision:
    return Decision(incident, entity, verb, attempt, wall_s() + valid_s)


class RemedyWorld:
    def __init__(self, nats: EmbeddedServer, bus: Bus, root: Path, *, uuid: str = UUID) -> None:
        self.nats, self.bus, self.root = nats, bus, root
        self.process: forked.Service | None = None
        self.log = root / "log"
        (root / "bin").mkdir(parents=True)
        for name in COMMANDS:
            (root / name).mkdir()
            command = root / "bin" / name
            command.write_text(_COMMAND.replace("HOST", str(root)).replace("NAME", name))
            command.chmod(0o755)
        self.boots("b1")
        self.file(f"proc/driver/nvidia/gpus/{PCI}/information", _INFORMATION.replace(UUID, uuid))
        self.file("sys/module/nvidia/version", f"{DRIVER}\n")
        self.answers("nvidia-smi", MODES, "Enabled, Disabled\n")
        self.answers("nvidia-smi", "--gpu-reset", f"GPU 00000000:{PCI[5:]} was successfully reset.\nAll done.\n")
        self.answers("nv-fabricmanager", "--version", f"Fabric Manager version is : {DRIVER}\n")
        self.answers("dcgmi", "-l", DISCOVERY.replace("UUID_0", uuid))

    # --- the node

    def file(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def boots(self, boot_id: str) -> None:
        self.file("proc/sys/kernel/random/boot_id", f"{boot_id}\n")

    def answers(self, command: str, last: str, text: str, *, status: int = 0) -> None:
        self.file(f"{command}/{last}", text)
        self.file(f"{command}/{last}.status", str(status))

    def holds(self, command: str, last: str) -> Path:
        """The command does not end while the file exists."""
        return self.file(f"{command}/{last}.hold", "")

    def runs(self, pid: int, program: str, *, unit: str = "", opened: str = "/dev/nvidia2") -> Path:
        """A process; returns its folder in /proc."""
        folder = self.root / "proc" / str(pid)
        self.file(f"proc/{pid}/comm", f"{program[:15]}\n")
        self.file(f"proc/{pid}/cmdline", f"/usr/bin/{program}\0--flag\0")
        self.file(f"proc/{pid}/cgroup", f"0::/system.slice/{unit}.service\n" if unit else "0::/kubepods.slice/pod1\n")
        (folder / "fd").mkdir()
        (folder / "fd" / "7").symlink_to(opened)
        return folder

    @asynccontextmanager
    async def real_process(self, program: str, *, opened: str = "/dev/null") -> AsyncIterator[asyncio.subprocess.Process]:
        """A process that ends by SIGTERM, and leaves the node's /proc then."""
        process = await asyncio.create_subprocess_exec("/bin/sleep", "600")
        folder = self.runs(process.pid, program, opened=opened)

        async def leave() -> None:
            await process.wait()
            shutil.rmtree(folder)

        leaving = asyncio.create_task(leave())
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await leaving

    @property
    def calls(self) -> list[str]:
        calls = self.root / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    @property
    def changes(self) -> list[str]:
        """Calls that change the node."""
        asks = (MODES, "-lgi", "-lci", "ECAP_ACS+0x6.w", "--version", "discovery -l")
        return [call for call in self.calls if not call.endswith(asks)]

    # --- the program

    @asynccontextmanager
    async def remedy(
        self, verbs: Mapping[str, Any], settings: Mapping[str, str] | None = None, *, kill: bool = False
    ) -> AsyncIterator[forked.Service]:
        env = {
            "HBOX_NATS_URL": self.nats.url, "HBOX_NODE_NAME": NODE, "HBOX_HEALTH_PORT": "0", "HBOX_HOST_ROOT": str(self.root),
            "HBOX_STATE": str(self.root / "state"), "HBOX_VERBS": json.dumps(verbs), "PATH": str(self.root / "bin"),
            "HBOX_LOG_FORMAT": "text",
        } | dict(settings or {})  # fmt: skip
        self.log.touch()
        env |= {name: os.environ[name] for name in ("PYTHONPATH", "HOME") if name in os.environ}
        self.process = forked.service("hbox_remedy", env=env, out=self.log, err=self.log)
        try:
            yield self.process
        finally:
            self.process.kill() if kill else self.process.terminate()
            async with asyncio.timeout(30):
                await self.process.wait()

    async def decides(self, *decisions: Decision, node: str = NODE, boot_id: str = "b1") -> None:
        await self.bus.publish(RemediesDecided(node=NodeName(node), boot_id=boot_id, decisions=decisions), NODE)

    async def observed(self) -> list[RemedyObserved]:
        found = await self.bus.since(RemedyObserved, (NODE,), 0.0)
        return [one.event for one in found if isinstance(one.event, RemedyObserved)]

    async def ended(self, decision: Decision) -> RemedyObserved:
        """The end of a decision, once it is published."""

        async def end() -> RemedyObserved | None:
            ends = [one for one in await self.observed() if one.decision == decision and one.outcome is not Outcome.BEGUN]
            return ends[-1] if ends else None

        try:
            found = await until(end, f"the end of {decision.id}", timeout_s=40)
        except AssertionError as e:
            raise AssertionError(f"{e}; its log: {self.log.read_text()[-3000:]}") from None
        assert isinstance(found, RemedyObserved)
        return found

    async def called(self, call: str) -> None:
        await until(lambda: call in self.calls, f"call {call}; its log: {self.log.read_text()[-3000:]}")
