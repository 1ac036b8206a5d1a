"""Reports on a node's health: from a file of kernel records, files of /sys and NVIDIA's library without cards, on a real broker."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hbox_agent.health import RESTATED_S
from hbox_common.bus.streams import LIMITS
from hbox_common.events import HealthReport, Stream
from hbox_common.health.report import Fact
from hbox_common.model import NodeName

from .agent_world import AgentWorld
from .fake_nvml import FakeNvml, build, with_compiler

CARD = "GPU-00000000-0000-4000-8000-000000000000"
XID_48 = "NVRM: Xid (PCI:0000:01:00): 48, pid=1234, name=python3, DBE (Double Bit Error) ECC Error"


class Host:
    """The files of a node that the readers read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "dev" / "kmsg"
        self._seq = 0
        self.write("dev/kmsg", "")
        self.write("proc/sys/kernel/random/boot_id", "boot-1\n")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def record(self, text: str, *, facility: int = 0) -> int:
        """One more record of the kernel's log."""
        self._seq += 1
        with self.log.open("a") as file:
            file.write(f"{facility << 3 | 3},{self._seq},{self._seq * 1000},-;{text}\n SUBSYSTEM=pci\n")
        return self._seq

    def port(self, name: str, state: str) -> None:
        for path, text in {
            "state": state,
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "link_layer": "InfiniBand",
        }.items():
            self.write(f"sys/class/infiniband/{name}/ports/1/{path}", f"{text}\n")

    def device(self, path: str, class_: str, *, adapter: str = "") -> None:
        """A PCI device at a path such as pci0000:15/0000:15:01.0/0000:17:00.0."""
        address = path.rpartition("/")[2]
        folder = self.root / "sys/devices" / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {"class": class_, "vendor": "0x10de", "numa_node": "0"}.items():
            (folder / name).write_text(f"{text}\n")
        link = self.root / "sys/bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path("../../../devices") / path)
        if adapter:
            (self.root / "sys/class/infiniband" / adapter).mkdir(parents=True, exist_ok=True)
            (self.root / "sys/class/infiniband" / adapter / "device").symlink_to(Path("../../../devices") / path)


class Seen:
    """All reports of the node, in the stream's order."""

    def __init__(self, world: AgentWorld) -> None:
        self._world = world

    async def reports(self) -> list[HealthReport]:
        found = await self._world.bus.since(HealthReport, ("n1",), 0.0)
        return [one.event for one in found if isinstance(one.event, HealthReport)]

    async def facts(self, check: str) -> list[Fact]:
        return [fact for report in await self.reports() for fact in report.facts if fact.check == check]

    async def until_reports(self, right: Callable[[list[HealthReport]], bool]) -> None:
        async with asyncio.timeout(20):
            while True:
                if right(await self.reports()):
                    return
                await asyncio.sleep(0.1)

    async def until(self, check: str, right: Callable[[list[Fact]], bool]) -> list[Fact]:
        facts: list[Fact] = []
        try:
            async with asyncio.timeout(20):
                while True:
                    facts = await self.facts(check)
                    if right(facts):
                        return facts
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"published: {facts}") from None


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


@pytest.fixture
def seen(world: AgentWorld) -> Seen:
    return Seen(world)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(library: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    library.says()
    for name, value in {"FAKE_GPUS": "2", "FAKE_NVML": str(library.script)}.items():
        monkeypatch.setenv(name, value)
    return library


async def test_records_from_before_the_agents_start_are_published_once_through_restarts(
    world: AgentWorld, host: Host, seen: Seen
) -> None:
    host.record("Linux version 6.8")
    first = host.record(XID_48)
    async with world.agent(host_root=host.root, kernel_log=True):
        (fact,) = await seen.until("kernel-log", lambda facts: len(facts) == 1)
        assert (fact.entity, fact.code, fact.value["seq"], fact.text) == ("gpu:0000:01:00", "48", first, XID_48)
    host.record(XID_48.replace("48", "63"))  # while no agent runs
    async with world.agent(host_root=host.root, kernel_log=True):
        facts = await seen.until("kernel-log", lambda facts: len(facts) >= 2)
        host.record(XID_48.replace("48", "64"))
        facts = await seen.until("kernel-log", lambda facts: len(facts) >= 3)
        assert [fact.code for fact in facts] == ["48", "63", "64"]
    reports = await seen.reports()
    numbers = [fact.seq for report in reports for fact in report.facts]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len({report.agent for report in reports}) == 2


async def test_another_boot_starts_new_numbers_and_reads_its_log_from_the_beginning(
    world: AgentWorld, host: Host, seen: Seen
) -> None:
    host.record(XID_48)
    async with world.agent(host_root=host.root, kernel_log=True):
        await seen.until("kernel-log", lambda facts: len(facts) == 1)
    host.write("proc/sys/kernel/random/boot_id", "boot-2\n")
    host.write("dev/kmsg", "")
    host._seq = 0
    host.record(XID_48.replace("48", "79"))
    async with world.agent(host_root=host.root, kernel_log=True):
        await seen.until("kernel-log", lambda facts: [fact.code for fact in facts] == ["48", "79"])
    assert {report.boot_id for report in await seen.reports()} == {"boot-1", "boot-2"}


async def test_numbers_rise_also_if_the_broker_has_no_report_of_this_boot_any_more(
    world: AgentWorld, host: Host, seen: Seen
) -> None:
    host.record(XID_48)
    numbers: list[list[int]] = []
    for _ in range(2):
        async with world.agent(host_root=host.root, kernel_log=True):
            await seen.until("kernel-log", bool)
        numbers.append([fact.seq for report in await seen.reports() for fact in report.facts])
        await world.bus._connection.api(f"STREAM.PURGE.{Stream.REPORTS}")
    before, after = numbers
    assert after[0] > before[-1]


async def test_a_driver_that_is_unloaded_changes_the_state_of_modules(world: AgentWorld, host: Host, seen: Seen) -> None:
    host.write("proc/modules", "nvidia 1 0 - Live 0x0\n")
    async with world.agent(host_root=host.root, readers={"units": {"every_s": 0.1}}):
        await seen.until("units", bool)
        host.write("proc/modules", "")
        facts = await seen.until("units", lambda facts: len(facts) == 2)
        assert [fact.value["modules"]["nvidia"] for fact in facts] == [True, False]  # type: ignore[index,call-overload]


async def test_all_states_are_published_again_before_the_stream_drops_them(
    world: AgentWorld, host: Host, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LIMITS[Stream.REPORTS].max_age_s > 2 * RESTATED_S
    monkeypatch.setattr("hbox_agent.health.RESTATED_S", 1.0)
    host.write("proc/modules", "nvidia 1 0 - Live 0x0\n")
    async with world.agent(host_root=host.root, readers={"units": {"every_s": 0.2}}):
        facts = await seen.until("units", lambda facts: len(facts) >= 3)
        assert len({repr(fact.value) for fact in facts}) == 1


async def test_an_idle_agent_publishes_heartbeats_and_a_restarted_one_continues_after_them(
    world: AgentWorld, host: Host, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_agent.health.HEARTBEAT_S", 0.5)
    host.record(XID_48)
    async with world.agent(host_root=host.root, kernel_log=True):
        await seen.until("kernel-log", lambda facts: len(facts) == 1)
        await seen.until_reports(lambda reports: sum(not report.facts for report in reports) >= 3)
    host.record(XID_48.replace("48", "63"))
    async with world.agent(host_root=host.root, kernel_log=True):
        facts = await seen.until("kernel-log", lambda facts: len(facts) >= 2)
    assert [fact.code for fact in facts] == ["48", "63"]
    numbers = [fact.seq for report in await seen.reports() for fact in report.facts]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_the_broker_keeps_a_heartbeat_for_a_minute_and_a_report_for_a_day(
    world: AgentWorld, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_common.events.health.HEARTBEAT_LASTS_S", 1)
    report = HealthReport(node=NodeName("n1"), boot_id="boot-1", agent="a", facts=(Fact(1, 0.0, "units", "node", "units", {}),))
    await world.bus.publish(report, "n1")
    await world.bus.publish(report.model_copy(update={"facts": (), "seq": 1}), "n1")
    assert len(await seen.reports()) == 2
    await seen.until_reports(lambda reports: reports == [report])


async def test_an_exporter_that_reloads_and_goes_away_is_published_as_that(world: AgentWorld, host: Host, seen: Seen) -> None:
    text = 'DCGM_FI_DEV_ROW_REMAP_PENDING{UUID="GPU-0",pci_bus_id="00000000:18:00.0"} 1\n'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.0 200 OK\r\n\r\n{text}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
    async with world.agent(host_root=host.root, dcgm_url=url, readers={"dcgm": {"every_s": 0.2}}):
        facts = await seen.until("dcgm", lambda facts: len(facts) == 2)
        assert {(fact.entity, fact.code) for fact in facts} == {("node", "exporter"), ("gpu:GPU-0", "card")}
        text = ""
        facts = await seen.until("dcgm", lambda facts: len(facts) == 3)
        assert facts[-1].value == {"rows": (), "inventory": ("GPU-0",), "nvml_count": None}
        server.close()
        await server.wait_closed()
        facts = await seen.until("agent", lambda facts: any(fact.code == "unread:dcgm" for fact in facts))
        assert "does not answer" in facts[-1].text


async def test_only_records_of_the_kernel_count(world: AgentWorld, host: Host, seen: Seen) -> None:
    host.record(XID_48, facility=1)
    host.record("audit: cmd='NVRM: Xid (PCI:0000:01:00): 79'")
    host.record(XID_48.replace("48", "63"))
    async with world.agent(host_root=host.root, kernel_log=True):
        facts = await seen.until("kernel-log", bool)
        assert [fact.code for fact in facts] == ["63"]


@with_compiler
async def test_lost_records_are_a_fact_and_nvml_is_read_at_once(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml
) -> None:
    host.record(XID_48)
    async with world.agent(host_root=host.root, kernel_log=True, nvml=True, nvml_library=nvml.folder, nvml_poll_s=3600.0):
        cards = await seen.until("nvml", lambda facts: len(facts) >= 3)
        assert {fact.value.get("recovery_action") for fact in cards if fact.code == "card"} == {0}
        await seen.until("kernel-log", lambda facts: len(facts) == 1)
        nvml.says("field 0 230 =1")
        os.truncate(host.log, 0)
        host._seq = 99
        host.record("a record")
        lost = (await seen.until("kernel-log", lambda facts: len(facts) == 2))[-1]
        assert (lost.entity, lost.code, lost.value["from"], lost.value["to"]) == ("node", "gap", 2, 99)
        cards = await seen.until("nvml", lambda facts: any(fact.value.get("recovery_action") == 1 for fact in facts))
        assert cards[-1].entity == f"gpu:{CARD}"


@with_compiler
async def test_states_of_cards_are_published_when_they_change_and_after_each_start(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml
) -> None:
    settings = {"host_root": host.root, "nvml": True, "nvml_library": nvml.folder, "nvml_poll_s": 0.2, "kernel_log": True}
    async with world.agent(**settings):
        facts = await seen.until("nvml", lambda facts: len(facts) == 3)
        assert [(fact.entity, fact.code) for fact in facts][:2] == [("node", "cards"), (f"gpu:{CARD}", "card")]
        nvml.says("nvmlDeviceGetUUID 0 * 15", "nvmlDeviceGetRemappedRows 1 * =1")
        facts = await seen.until("nvml", lambda facts: len(facts) == 6)
        lost, other = (fact for fact in facts[3:] if fact.code == "card")
        assert (lost.entity, lost.value["every_call"]) == (f"gpu:{CARD}", 15)
        assert other.value["remapped_rows"] == {"correctable": 0, "uncorrectable": 0, "pending": True, "failure": False}
        node = next(fact for fact in facts[3:] if fact.code == "cards")
        assert isinstance(node.value["inventory"], tuple)
        assert set(node.value["inventory"]) - set(node.value["listed"] or ()) == {CARD}  # type: ignore[arg-type]
        host.record(XID_48)
        (xid,) = await seen.until("kernel-log", lambda facts: len(facts) == 1)
        assert xid.entity == f"gpu:{CARD}", "the card of an address is known by its uuid"
    nvml.says()
    async with world.agent(**settings):
        await seen.until("nvml", lambda facts: len(facts) == 9)


def _times(number: int, facts: list[Fact]) -> bool:
    return [fact.code for fact in facts].count("cards") == number


@with_compiler
@pytest.mark.parametrize("fault", ["nvmlDeviceGetUUID 0 * 15", "nvmlDeviceGetCount_v2 * * =1"])
async def test_a_restarted_agent_reports_a_card_that_is_lost(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml, fault: str
) -> None:
    settings = {"host_root": host.root, "nvml": True, "nvml_library": nvml.folder, "nvml_poll_s": 0.2}
    async with world.agent(**settings):
        await seen.until("nvml", lambda facts: len(facts) == 3)
    nvml.says(fault)
    for agents in (2, 3):
        async with world.agent(**settings):
            facts = await seen.until("nvml", partial(_times, agents))
        last = {(fact.entity, fact.code): fact for fact in facts}
        node = last["node", "cards"].value
        inventory, listed = node["inventory"], node["listed"]
        assert isinstance(inventory, tuple)
        assert isinstance(listed, tuple)
        assert (len(inventory), len(listed)) == (2, 1)
        if "UUID" in fault:
            assert last[f"gpu:{CARD}", "card"].value["every_call"] == 15


@with_compiler
async def test_records_from_before_the_agents_start_wait_for_the_uuids_of_cards(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml
) -> None:
    host.record(XID_48)
    async with world.agent(host_root=host.root, nvml=True, nvml_library=nvml.folder, kernel_log=True):
        (fact,) = await seen.until("kernel-log", bool)
        assert fact.entity == f"gpu:{CARD}"


@with_compiler
async def test_a_call_into_the_driver_that_hangs_is_a_fact_until_it_returns(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml
) -> None:
    nvml.says("nvmlDeviceGetRemappedRows 1 * hang")
    async with world.agent(
        host_root=host.root, nvml=True, nvml_library=nvml.folder, nvml_poll_s=0.2, nvml_timeout_s=4.0,
        readers={"nvml": {"deadline_s": 1.5, "mode": "report-only"}},
    ):  # fmt: skip
        (hangs,) = [
            f
            for f in await seen.until("agent", lambda facts: any(f.code == "hangs:nvml" for f in facts))
            if f.code == "hangs:nvml"
        ]
        assert (hangs.entity, hangs.value["reader"], hangs.value["since"] != 0.0) == ("node", "nvml", True)
        nvml.says()
        await seen.until("agent", lambda facts: any(f.code == "hangs:nvml" and f.value["since"] == 0.0 for f in facts))
        problem = next(fact for fact in await seen.facts("nvml") if fact.code == "cards")
        assert (problem.text, problem.value["asking"], "listed" in problem.value) == ("no answer within 4 s", 1, False)
    assert {report.report_only for report in await seen.reports()} == {("nvml",)}


async def test_ports_of_adapters_below_the_cards_switches_are_published(world: AgentWorld, host: Host, seen: Seen) -> None:
    host.device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0", "0x030200")
    for name, path in {
        "mlx5_0": "pci0000:15/0000:15:01.0/0000:16:01.0/0000:18:00.0",
        "mlx5_1": "pci0000:70/0000:70:01.0/0000:71:00.0",  # the storage network's: no card is below its root
    }.items():
        host.device(path, "0x020700", adapter=name)
        host.port(name, "4: ACTIVE")
    async with world.agent(host_root=host.root, readers={"ports": {"every_s": 0.1}}):
        (up,) = await seen.until("ports", bool)
        assert (up.entity, up.value["state"], up.value["gbps"], up.value["pci"]) == (
            "rail:mlx5_0",
            "4: ACTIVE",
            400.0,
            "0000:18:00.0",
        )
        host.port("mlx5_0", "1: DOWN")
        host.port("mlx5_1", "1: DOWN")
        facts = await seen.until("ports", lambda facts: len(facts) == 2)
        assert (facts[-1].entity, facts[-1].value["state"]) == ("rail:mlx5_0", "1: DOWN")


async def test_nothing_is_lost_while_the_broker_is_away(world: AgentWorld, host: Host, seen: Seen) -> None:
    async with world.agent(host_root=host.root, kernel_log=True):
        host.record(XID_48)
        await seen.until("kernel-log", lambda facts: len(facts) == 1)
        await world.nats.stop()
        for code in ("63", "64", "79"):
            host.record(XID_48.replace("48", code))
        await asyncio.sleep(0.5)
        await world.nats.start()
        facts = await seen.until("kernel-log", lambda facts: len(facts) >= 4)
        assert [fact.code for fact in facts] == ["48", "63", "64", "79"]


async def test_a_missing_right_is_a_fact_with_its_remedy(world: AgentWorld, host: Host, seen: Seen) -> None:
    host.log.unlink()
    async with world.agent(host_root=host.root, kernel_log=True):
        facts = await seen.until("agent", lambda facts: any(fact.code == "unread:kernel-log" for fact in facts))
        why = next(fact.text for fact in facts if fact.code == "unread:kernel-log")
        assert "services.node-agent.kernelLog" in why
        host.record(XID_48)
        await seen.until("kernel-log", lambda facts: len(facts) == 1)
        await seen.until("agent", lambda facts: any(f.code == "unread:kernel-log" and not f.value["why"] for f in facts))
