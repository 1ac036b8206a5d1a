"""A list of pods ahead of the messages is not drift; a correction that no message reports is drift."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hbox_common.events import BindOutcome, PodRead, PodStanding
from hbox_common.model import NodeName, PodPhase, PodUid
from hbox_common.pace import LEAST
from hbox_ledger import metrics
from hbox_ledger.core.drift import REPORTED_WITHIN_S

from .conftest import Kit, Running

Correction = Callable[[Kit, Running], Awaitable[None]]


async def list_shows_its_end(kit: Kit, running: Running) -> None:
    await running.ledger.reconcile([kit.fact("pod", "n0", PodPhase.GONE)], as_of=running.ledger.index)
    assert running.states() == {}


async def list_shows_it_bound_by_another_scheduler(kit: Kit, running: Running) -> None:
    await running.see("end", kit.fact("pod", "n0", PodPhase.GONE))
    await running.ledger.reconcile([kit.fact("stranger", "n1")], as_of=running.ledger.index)
    assert running.states() == {"stranger": "posted"}


async def read_shows_its_end(kit: Kit, running: Running) -> None:
    await running.ledger.reconcile([], as_of=running.ledger.index)
    await running.ledger.read([PodRead(uid=PodUid("pod"), standing=PodStanding.GONE, node=NodeName(""))])
    assert running.states() == {}


CORRECTIONS: dict[Correction, tuple[str, str, PodPhase]] = {
    list_shows_its_end: ("pod", "n0", PodPhase.GONE),
    list_shows_it_bound_by_another_scheduler: ("stranger", "n1", PodPhase.RUNNING),
    read_shows_its_end: ("pod", "n0", PodPhase.GONE),
}


def drift() -> float:
    counted: float = metrics.DRIFT._value.get()
    return counted


async def opened_with_a_pod(kit: Kit, running: Running) -> None:
    await running.open()
    await running.propose(kit.plan("p", ("pod", "n0", ())))
    await running.outcome("o", "pod", BindOutcome.BOUND)
    await running.see("bound", kit.fact("pod", "n0"))


@pytest.mark.parametrize("correct", CORRECTIONS)
async def test_correction_that_a_later_message_reports_is_no_drift(correct: Correction, kit: Kit, tmp_path: Path) -> None:
    async with kit.started(f"sqlite:///{tmp_path}/ledger.db") as running:
        await opened_with_a_pod(kit, running)
        before = drift()
        await correct(kit, running)
        running.clock[0] += REPORTED_WITHIN_S - 1
        await running.ledger.tick()
        await running.see("late", kit.fact(*CORRECTIONS[correct]))
        running.clock[0] += REPORTED_WITHIN_S
        await running.ledger.tick()
        assert drift() == before


@pytest.mark.parametrize("correct", CORRECTIONS)
async def test_correction_that_no_message_reports_is_drift_once(
    correct: Correction, kit: Kit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kit.started(f"sqlite:///{tmp_path}/ledger.db") as running:
        await opened_with_a_pod(kit, running)
        before = drift()
        await correct(kit, running)
        for _ in range(3):
            running.clock[0] += REPORTED_WITHIN_S
            await running.ledger.tick()
        assert drift() == before + 1
        assert f"differed from the cluster on 1 pods that no message reported: ml/{CORRECTIONS[correct][0]}" in caplog.text


async def test_message_between_two_slices_of_a_comparison_reports_what_the_first_slice_showed(kit: Kit, tmp_path: Path) -> None:
    others = [kit.fact(f"pod{n}", "n0") for n in range(3 * LEAST)]
    async with kit.started(f"sqlite:///{tmp_path}/ledger.db") as running:
        await running.open(*others)
        await running.propose(kit.plan("p", ("pod", "n1", ())))
        await running.outcome("o", "pod", BindOutcome.BOUND)
        before, settle = drift(), running.store.settle

        async def report_and_settle() -> None:  # between the slices, while the lock is free
            if running.states().get("pod") is None:
                await running.see("end", kit.fact("pod", "n1", PodPhase.GONE))
            await settle()

        running.store.settle = report_and_settle  # type: ignore[method-assign]
        ended = kit.fact("pod", "n1", PodPhase.GONE)
        await running.ledger.reconcile([ended, *others], as_of=running.ledger.index)
        running.clock[0] += REPORTED_WITHIN_S
        await running.ledger.tick()
        assert drift() == before


async def test_clock_set_back_causes_no_drift_for_pending_messages(kit: Kit, tmp_path: Path) -> None:
    async with kit.started(f"sqlite:///{tmp_path}/ledger.db") as running:
        await opened_with_a_pod(kit, running)
        before = drift()
        await list_shows_its_end(kit, running)
        running.clock[0] -= 3600.0
        await running.ledger.tick()
        assert drift() == before
        running.clock[0] += REPORTED_WITHIN_S
        await running.ledger.tick()
        assert drift() == before + 1
