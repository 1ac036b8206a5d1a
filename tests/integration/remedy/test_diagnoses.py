"""`diagnose` of node-remedy: DCGM's diagnostics of a card, at most once for each decision."""

import json

import pytest

from hbox_common.model.remedy import Outcome, Verb

from .remedy_world import CARD, RemedyWorld, decision

ON: dict[str, dict[str, object]] = {"diagnose": {}}
DIAG = "dcgmi diag -r 2 -i 3 -j"


def answer(*statuses: str) -> str:
    results = [
        {"entity_group": "GPU", "entity_id": 3, "status": one, "warnings": [{"warning": "8 bytes differ"}]} for one in statuses
    ]
    return json.dumps(
        {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": results}]}]}}
    )


async def test_a_diagnosis_is_of_the_card_by_dcgms_number_and_is_executed_once(world: RemedyWorld) -> None:
    world.answers("dcgmi", "-j", answer("Pass"))
    asked = decision(Verb.DIAGNOSE, CARD)
    for _ in range(2):
        async with world.remedy(ON):
            await world.decides(asked)
            end = await world.ended(asked)
    assert (end.outcome, end.message, end.failures) == (Outcome.DONE, "1 results are good", ())
    assert world.changes == [DIAG]


@pytest.mark.parametrize("status", [0, 226])
async def test_a_failed_test_is_evidence_whatever_the_exit_status(world: RemedyWorld, status: int) -> None:
    world.answers("dcgmi", "-j", answer("Pass", "Fail"), status=status)
    asked = decision(Verb.DIAGNOSE, CARD)
    async with world.remedy(ON, {"HBOX_DIAGNOSTICS_LEVEL": "1"}):
        await world.decides(asked)
        end = await world.ended(asked)
    assert (end.outcome, end.failures) == (Outcome.FAILED, ("memory (GPU 3): 8 bytes differ",))
    assert world.changes == ["dcgmi diag -r 1 -i 3 -j"]


async def test_a_node_without_dcgm_skips_it(world: RemedyWorld) -> None:
    (world.root / "bin" / "dcgmi").unlink()
    asked = decision(Verb.DIAGNOSE, CARD)
    async with world.remedy(ON):
        await world.decides(asked)
        end = await world.ended(asked)
    assert (end.outcome, end.message) == (Outcome.SKIPPED, "DCGM is not installed on the node")


async def test_a_node_on_which_it_is_off_or_a_dry_run_skips_it(world: RemedyWorld) -> None:
    first, second = decision(Verb.DIAGNOSE, CARD), decision(Verb.DIAGNOSE, CARD, attempt=2)
    async with world.remedy({}):
        await world.decides(first)
        assert (await world.ended(first)).outcome is Outcome.SKIPPED
    async with world.remedy({"diagnose": {"mode": "dry-run"}}):
        await world.decides(second)
        end = await world.ended(second)
    assert (end.outcome, end.message) == (Outcome.SKIPPED, f"dry run: {DIAG}")
    assert world.changes == []


async def test_no_answer_of_dcgm_is_no_result(world: RemedyWorld) -> None:
    world.answers("dcgmi", "-j", "Error: unable to establish a connection to the specified host: localhost\n", status=1)
    asked = decision(Verb.DIAGNOSE, CARD)
    async with world.remedy(ON):
        await world.decides(asked)
        end = await world.ended(asked)
    assert end.outcome is Outcome.REFUSED
    assert "unable to establish a connection" in end.message


async def test_a_card_in_use_or_unknown_to_dcgm_is_not_diagnosed(world: RemedyWorld) -> None:
    world.runs(41, "python3")
    used, unknown = decision(Verb.DIAGNOSE, CARD), decision(Verb.DIAGNOSE, CARD, attempt=2)
    async with world.remedy(ON):
        await world.decides(used)
        end = await world.ended(used)
        assert (end.outcome, end.holders) == (Outcome.REFUSED, ("41 python3",))
        world.answers("dcgmi", "-l", "0 GPUs found.\n")
        await world.decides(unknown)
        assert (await world.ended(unknown)).outcome is Outcome.REFUSED
    assert world.changes == []


async def test_a_diagnosis_that_does_not_end_is_killed_and_has_failed(world: RemedyWorld) -> None:
    world.holds("dcgmi", "-j")
    asked = decision(Verb.DIAGNOSE, CARD)
    async with world.remedy({"diagnose": {"timeout_s": 0.5}}):
        await world.decides(asked)
        end = await world.ended(asked)
    assert (end.outcome, end.failures) == (Outcome.FAILED, ("dcgmi did not end within 0.5 s",))


async def test_a_diagnosis_that_a_kill_interrupts_states_nothing_about_the_card(world: RemedyWorld) -> None:
    hold = world.holds("dcgmi", "-j")
    asked = decision(Verb.DIAGNOSE, CARD)
    async with world.remedy(ON, kill=True):
        await world.decides(asked)
        await world.called(DIAG)
    hold.unlink()
    async with world.remedy(ON):
        await world.decides(asked)
        end = await world.ended(asked)
    assert end.outcome is Outcome.REFUSED
    assert world.changes.count(DIAG) == 1
