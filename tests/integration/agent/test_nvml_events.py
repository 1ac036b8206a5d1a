"""Events of NVML: node-agent with the real process and NVIDIA's library without cards, on a real broker."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hbox_common.health.report import Fact
from hbox_common.model.remedy import NVML_EVENTS, Outcome, Verb

from ..remedy.remedy_world import CARD as REMEDIED
from ..remedy.remedy_world import RemedyWorld, decision
from .agent_world import AgentWorld
from .fake_nvml import FakeNvml, build, with_compiler
from .test_health_reports import CARD, Host, Seen

pytestmark = with_compiler

XID_79 = "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def answers(fake: FakeNvml, *lines: str) -> None:
    fake.script.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(library: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    answers(library)
    for name, value in {"FAKE_GPUS": "2", "FAKE_NVML": str(library.script)}.items():
        monkeypatch.setenv(name, value)
    return library


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


@pytest.fixture
def seen(world: AgentWorld) -> Seen:
    return Seen(world)


def settings(host: Host, fake: FakeNvml, /, **more: Any) -> dict[str, Any]:
    return {"host_root": host.root, "nvml_library": fake.folder, "nvml_events": True} | more


def processes() -> list[int]:
    """Ours that wait for events."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes().partition(b"\0")[0].decode()
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if Path(command).name == NVML_EVENTS and parent == os.getpid():
                found.append(int(folder.name))
    return found


def has(code: str, /, **value: Any) -> Callable[[list[Fact]], bool]:
    """Whether the last fact of the code has these values."""

    def right(facts: list[Fact]) -> bool:
        last = next((fact for fact in reversed(facts) if fact.code == code), None)
        return last is not None and value.items() <= dict(last.value).items()

    return right


async def waiting(seen: Seen) -> None:
    await seen.until("nvml-events", has("events", state="waiting", cards=2, refused=0))


async def test_an_xid_that_the_kernel_log_does_not_have_is_published(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml
) -> None:
    async with world.agent(**settings(host, nvml)):
        await waiting(seen)
        answers(nvml, "event 0 8 =79")
        facts = await seen.until("nvml-events", has("79", code=79, kind="xid", pci="0000:01:00"))
        assert facts[-1].entity == f"gpu:{CARD}"
    assert processes() == []


async def test_an_xid_that_the_kernel_log_has_too_is_published_once(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml
) -> None:
    async with world.agent(**settings(host, nvml, kernel_log=True)):
        await waiting(seen)
        answers(nvml, "event 0 8 =79", "event 1 8 =79")  # the other card's has no line
        host.record(XID_79)
        await seen.until("kernel-log", bool)
        facts = await seen.until("nvml-events", has("79"))
        await asyncio.sleep(2)
        facts = await seen.facts("nvml-events")
        assert [fact.value["pci"] for fact in facts if fact.code == "79"] == ["0000:02:00"]


async def test_an_event_lets_nvml_be_read_at_once(world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml) -> None:
    async with world.agent(**settings(host, nvml, nvml=True, nvml_poll_s=3600.0)):
        await waiting(seen)
        await seen.until("nvml", lambda facts: len(facts) >= 3)
        answers(nvml, "field 1 230 =1", "event 1 32768 =1")
        facts = await seen.until("nvml", lambda facts: facts[-1].value.get("recovery_action") == 1)
        assert facts[-1].entity.startswith("gpu:GPU-00000001")


async def test_a_hanging_call_is_a_fact_and_the_process_is_killed_and_started_again(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_agent.adapters.eventprocess.HANGS_S", 1.0)
    async with world.agent(**settings(host, nvml)):
        await waiting(seen)
        (first,) = processes()
        answers(nvml, "nvmlEventSetWait_v2 * * hang")
        facts = await seen.until("agent", lambda facts: any(f.code == "hangs:nvml-events" and f.value["since"] for f in facts))
        assert "did not return within 1 s" in facts[-1].text
        assert first not in processes()
        answers(nvml)
        await seen.until("agent", has("hangs:nvml-events", since=0.0))
        await seen.until("agent", has("unread:nvml-events", why=""))
        (second,) = processes()
        assert second != first


async def test_a_killed_process_is_started_again(world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml) -> None:
    async with world.agent(**settings(host, nvml)):
        await waiting(seen)
        os.kill(processes()[0], signal.SIGKILL)
        await seen.until("agent", has("unread:nvml-events", why="its process ended, signal 9"))
        await seen.until("agent", has("unread:nvml-events", why=""))
        answers(nvml, "event 1 8 =48")
        await seen.until("nvml-events", has("48"))


async def test_a_lost_card_ends_the_wait_which_begins_again_with_the_other_cards(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml
) -> None:
    async with world.agent(**settings(host, nvml)):
        await waiting(seen)
        answers(nvml, "nvmlEventSetWait_v2 * * 15")
        await seen.until("agent", lambda facts: "code 15" in str(facts[-1].value.get("why")))
        answers(nvml, "nvmlDeviceGetUUID 0 * 15")
        await seen.until("nvml-events", has("events", state="waiting", cards=1, refused=1))


async def test_a_process_that_node_remedy_ends_releases_all_cards_for_a_while(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hbox_agent.adapters.eventprocess.RELEASED_S", 4.0)
    devices = tmp_path / "devices"
    devices.mkdir()
    monkeypatch.setenv("FAKE_DEVICES", str(devices))
    async with world.agent(**settings(host, nvml, nvml=True, nvml_poll_s=0.2)):
        await waiting(seen)
        await seen.until("nvml", lambda facts: len(facts) >= 3)
        (process,) = processes()
        assert {file.split("/")[2] for file in holders(devices)} >= {str(process)}
        os.kill(process, signal.SIGTERM)
        await seen.until("nvml-events", has("events", state="released"))
        await asyncio.sleep(1)  # a reading that had begun ends
        assert (processes(), holders(devices)) == ([], [])
        answers(nvml, "field 0 230 =1")
        await asyncio.sleep(1)
        assert not has("card", recovery_action=1)(await seen.facts("nvml")), "NVML is not read meanwhile"
        await waiting(seen)
        await seen.until("nvml", lambda facts: any(fact.value.get("recovery_action") == 1 for fact in facts))


async def test_node_remedy_resets_a_card_that_the_process_has_open(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    devices = tmp_path / "dev"
    devices.mkdir()
    monkeypatch.setenv("FAKE_DEVICES", str(devices))
    monkeypatch.setenv("FAKE_GPUS", "3")
    remedy = RemedyWorld(world.nats, world.bus, tmp_path / "node")
    async with world.agent(**settings(host, nvml)), remedy.remedy({"reset": {}}):
        await seen.until("nvml-events", has("events", state="waiting", cards=3))
        (process,) = processes()
        (remedy.root / "proc" / str(process)).symlink_to(f"/proc/{process}")
        asked = decision(Verb.RESET, REMEDIED)
        await remedy.decides(asked)
        ended = await remedy.ended(asked)
        assert (ended.outcome, ended.holders) == (Outcome.DONE, ())
        assert [call for call in remedy.changes if "--gpu-reset" in call]
        await seen.until("nvml-events", has("events", state="released"))


def holders(devices: Path) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if file.readlink().parent == devices:
                found.append(str(file))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "lines",
    [
        ["nvmlDeviceGetSupportedEventTypes * * 3"],
        ["nvmlDeviceGetSupportedEventTypes * * =0"],
        ["nvmlDeviceRegisterEvents * * 3"],
    ],
)
async def test_cards_without_events_are_an_answer(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml, lines: list[str]
) -> None:
    answers(nvml, *lines)
    async with world.agent(**settings(host, nvml)):
        await seen.until("nvml-events", has("events", state="unsupported", cards=0, refused=2))
        await asyncio.sleep(1.5)
        assert processes() == []
        assert not any(fact.code == "unread:nvml-events" for fact in await seen.facts("agent"))


READY, XID = (
    '{"ready": {"cards": 1, "refused": 0}}',
    '{"event": {"type": 8, "data": 31, "uuid": "GPU-1", "pci": "00000000:18:00.0"}}',
)


@pytest.mark.parametrize(
    "body",
    [
        f"echo '{READY}'; while :; do echo NVRM; done",
        f"echo '{READY}'; while :; do printf x; done",
        f"echo '{READY}'; cat /dev/urandom",
        f"echo '{READY}'; while :; do echo '{XID}'; done",
        "cat /dev/zero",
    ],
    ids=["garbage", "an-endless-line", "random-bytes", "endless-events", "zeros"],
)
async def test_a_process_that_prints_garbage_or_without_end_is_killed_and_the_agent_reports_on(
    world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setattr("hbox_agent.adapters.eventprocess.INTERPRETER", program)
    async with world.agent(**settings(host, nvml, kernel_log=True)):
        await seen.until("agent", has("unread:nvml-events", why="it prints too much, or lines that are none of its own"))
        host.record(XID_79)
        await seen.until("kernel-log", bool)
        assert len(await seen.facts("nvml-events")) < 50


async def test_a_missing_library_is_named(world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml, tmp_path: Path) -> None:
    async with world.agent(**settings(host, nvml, nvml_library=tmp_path)):
        facts = await seen.until("agent", lambda facts: any(fact.code == "unread:nvml-events" for fact in facts))
        assert "NVML's events are not available" in next(fact.text for fact in facts if fact.code == "unread:nvml-events")


async def test_the_reader_can_be_switched_off(world: AgentWorld, host: Host, seen: Seen, nvml: FakeNvml) -> None:
    async with world.agent(**settings(host, nvml, readers={"nvml-events": {"mode": "off"}})):
        await seen.until("agent", bool)
        await asyncio.sleep(1)
        assert processes() == []
