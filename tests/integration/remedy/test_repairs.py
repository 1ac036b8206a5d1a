"""health-monitor decides, node-remedy executes: both as they run, on one broker, with kills between them."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.clock import wall_s
from hbox_common.model import Incident, IncidentState
from hbox_common.model.remedy import Decision, Outcome, Verb
from hbox_health.settings import HealthSettings

from ...waiting import until
from ..health.conftest import HealthWorld
from ..health.test_judging import OTHER, SICK, Agent, Published, card, listening
from .remedy_world import CARD, RemedyWorld

RESET = "nvidia-smi -i GPU-0 --gpu-reset"
KILLS = 15


@pytest.fixture
async def monitored(tmp_path: Path) -> AsyncIterator[HealthWorld]:
    async with (
        EmbeddedServer(tmp_path / "nats") as nats,
        Bus.connect(nats.url, name="test", instance="test") as bus,
        HealthWorld(nats, bus, tmp_path).listening() as world,
    ):
        yield world


@pytest.fixture
def node(monitored: HealthWorld, tmp_path: Path) -> RemedyWorld:
    return RemedyWorld(monitored.nats, monitored.bus, tmp_path / "node", uuid="GPU-0")


def states(seen: Published) -> list[IncidentState]:
    return [one[-1].state for one in seen.incidents.values()]


async def test_a_card_is_reset_when_its_pod_has_left_and_is_used_again(monitored: HealthWorld, node: RemedyWorld) -> None:
    agent = Agent(monitored.nats)
    await monitored.show(cards=(card(0), card(1)))
    await monitored.run_pod("p0", SICK)
    async with (
        listening(monitored.bus) as seen,
        monitored.monitor(remedies="reset", validated_s=0.5),
        node.remedy({"reset": {}}),
    ):
        await agent.report((SICK, 1), (OTHER, 0))
        await until(lambda: bool(seen.standing))
        assert node.calls == [], "a pod is on the card"
        await monitored.run_pod("p0", ends=True)
        await node.called(RESET)
        await agent.report((SICK, 0))
        await until(lambda: states(seen) == [IncidentState.CLOSED])
        assert node.changes == ["nvidia-smi -i GPU-0 -pm 0", RESET, "nvidia-smi -i GPU-0 -pm 1"]
        [incident] = [one[-1] for one in seen.incidents.values()]
        assert incident.action_done == "reset"


async def test_a_process_that_holds_the_card_is_named_and_the_reset_follows_its_end(
    monitored: HealthWorld, node: RemedyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = HealthSettings.policies
    monkeypatch.setattr(HealthSettings, "policies", lambda self: replace(policies(self), retry_s=0.5))
    agent = Agent(monitored.nats)
    await monitored.show(cards=(card(0),))

    def last(seen: Published) -> Incident | None:
        return next((one[-1] for one in seen.incidents.values()), None)

    async with (
        node.real_process("nv-hostengine", opened="/dev/nvidia2") as process,
        listening(monitored.bus) as seen,
        monitored.monitor(remedies="reset", validated_s=0.5),
        node.remedy({"reset": {}}),
    ):
        await agent.report((SICK, 1))
        held = (f"{process.pid} nv-hostengine",)
        await until(lambda: (found := last(seen)) is not None and found.held_by == held)
        assert node.changes == []
        process.kill()
        await node.called(RESET)
        await agent.report((SICK, 0))
        await until(lambda: states(seen) == [IncidentState.CLOSED])


async def test_a_reset_that_a_kill_interrupts_is_decided_again(monitored: HealthWorld, node: RemedyWorld) -> None:
    agent = Agent(monitored.nats)
    await monitored.show(cards=(card(0),))
    hold = node.holds("nvidia-smi", "--gpu-reset")
    async with listening(monitored.bus) as seen:
        async with monitored.monitor(remedies="reset", validated_s=0.5), node.remedy({"reset": {}}, kill=True):
            await agent.report((SICK, 1))
            await node.called(RESET)
        hold.unlink()
        async with monitored.monitor(remedies="reset", validated_s=0.5), node.remedy({"reset": {}}):
            await until(lambda: node.calls.count(RESET) == 2)
            await agent.report((SICK, 0))
            await until(lambda: states(seen) == [IncidentState.CLOSED])
    ends = [(one.decision.attempt, one.outcome) for one in await node.observed() if one.outcome is not Outcome.BEGUN]
    assert ends == [(1, Outcome.FAILED), (2, Outcome.DONE)]
    assert node.changes[-1] == "nvidia-smi -i GPU-0 -pm 1"


async def test_no_kill_has_a_decision_executed_twice_or_left_without_an_end(node: RemedyWorld) -> None:
    """The hook records each execution under its decision. A kill hits the program at its start, in a plan, in a write or in the hook."""
    (node.root / "bin" / "power-cycle").write_text(
        f'#!/bin/sh\necho "$HBOX_INCIDENT.$HBOX_VERB.$HBOX_ATTEMPT" >> {node.root}/executed\n/bin/sleep 0.2\n'
    )
    executed = node.file("executed", "")
    rng = random.Random(37)
    verbs = {"reset": {"hook": ["power-cycle"], "most": 1000}}
    decisions: list[Decision] = []
    for number in range(KILLS):
        decisions.append(Decision(f"i{number}", CARD, Verb.RESET, 1, wall_s() + 600))
        async with node.remedy(verbs, kill=True):
            await node.decides(*decisions)
            if number % 2:
                await until(lambda: decisions[-1].id in executed.read_text())
                await asyncio.sleep(rng.uniform(0.0, 0.15))
            else:
                await asyncio.sleep(rng.uniform(0.0, 1.2))
    async with node.remedy(verbs):
        for decision in decisions:
            await node.ended(decision)
    counts = {one.id: executed.read_text().splitlines().count(one.id) for one in decisions}
    assert max(counts.values()) == 1
    observed = [one for one in await node.observed() if one.outcome is not Outcome.BEGUN]
    ends = {one.id: {end.outcome for end in observed if end.decision.id == one.id} for one in decisions}
    assert all(len(found) == 1 for found in ends.values()), ends
    assert all(counts[id] == 1 for id, found in ends.items() if found == {Outcome.DONE})
    assert {Outcome.DONE, Outcome.FAILED} == {outcome for found in ends.values() for outcome in found}, "kills hit executions"
