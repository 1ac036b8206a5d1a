"""Reports of all cards every REPORT_S: the share of a core that health-monitor uses, alone on a broker, and its memory.

Run it as `python -m tests.bench health-reports`. The bench itself plays the agents (as in `health`), topology-collector and the ledger. Each report states all
cards. Processor time is that of the process of health-monitor, so other load of the machine changes it little. Also measured: the same agents with a heartbeat
in place of each report, which is what an agent publishes that has nothing new.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.clock import monotonic_s
from hbox_common.events import ClaimsAsked, ClaimsPage, Event, NodeStateChanged
from hbox_common.model import Card, Generation, NodeName, NodeState

from .health import COUNT, MEMORY_MIB, MODEL, REPORT_S, SHARE, Agents, card_uuid
from .platform import cpu_s, peak_mib
from .scheduler import report

SECONDS = float(os.environ.get("HBOX_HEALTH_REPORTS_S", "60"))
WARM_S = 2 * REPORT_S


def main() -> None:
    asyncio.run(_main())


async def _main() -> None:
    names = [f"n{number}" for number in range(COUNT)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "hardware").mkdir()
        async with (
            EmbeddedServer(root / "nats") as nats,
            Bus.connect(nats.url, name="topology-collector", instance="bench") as bus,
            Bus.connect(nats.url, name="node-agent", instance="bench") as agents_bus,
            asyncio.TaskGroup() as tasks,
        ):
            for name in names:
                await bus.publish(NodeStateChanged(node=_node(name)), name)
            ledger = tasks.create_task(bus.serve(ClaimsAsked, _no_claims))
            agents = Agents(agents_bus, names, root / "hardware")
            reporting = tasks.create_task(agents.run())
            with _monitor(nats, root) as pid:
                for what, beats in (("all their cards", False), ("a heartbeat", True)):
                    agents.heartbeats = beats
                    await asyncio.sleep(WARM_S)
                    used, began, sent = cpu_s(pid), monotonic_s(), agents.sent
                    await asyncio.sleep(SECONDS)
                    spent, passed = cpu_s(pid) - used, monotonic_s() - began
                    rate = (agents.sent - sent) / passed
                    print(
                        f"{rate:.0f} reports a second, {1000 * spent / max(agents.sent - sent, 1):.2f} ms of a processor each"
                    )
                    report(
                        f"health-monitor: {COUNT:,} agents, {what} every {REPORT_S:g} s",
                        100 * spent / passed,
                        "% core",
                        SHARE,
                        least=False,
                    )
                report("health-monitor: memory", peak_mib(pid), "MiB", MEMORY_MIB, least=False)
            reporting.cancel()
            ledger.cancel()


def _node(name: str) -> NodeState:
    cards = tuple(Card(index, card_uuid(name, index), MODEL, 81_920) for index in range(8))
    return NodeState(name=NodeName(name), uid=name, generation=Generation(1), ready=True, cards=cards)


async def _no_claims(_: ClaimsAsked) -> AsyncIterator[Event]:
    yield ClaimsPage(epoch=1, index=0, frozen=False, claims=())


@contextmanager
def _monitor(nats: EmbeddedServer, root: Path) -> Iterator[int]:
    settings = {
        "HBOX_NATS_URL": nats.url, "HBOX_HEALTH_DATABASE_URL": f"sqlite:///{root}/health.db", "HBOX_HEALTH_PORT": "0", "HBOX_LOG_LEVEL": "error",
    }  # fmt: skip
    monitor = subprocess.Popen([sys.executable, "-m", "hbox_health"], env=os.environ | settings)
    try:
        yield monitor.pid
    finally:
        monitor.terminate()
        monitor.wait(30)
