"""The ledger on SQLite under any order of plans, news, deaths and failures (`ledger/machine.py`), and whether the machine would notice.

HBOX_LEDGER_EXAMPLES=2000 (`make fuzz N=2000`) searches longer, other sequences each time; without it the same are tried at every run.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from hbox_common.errors import HBoxError
from hbox_ledger.core.accounts import demand
from hbox_ledger.core.ledgerstate import LedgerState

from .ledger.bugs import BUGS, WEIGHT_BUGS, Bug
from .ledger.cluster import SCARCE
from .ledger.machine import LedgerMachine, PoolsMachine, WeightsMachine
from .ledger.paths import PATHS, POOL_PATHS, Path, two_halves_of_four_for_a_queue_that_has_only_its_weight

FOUND = (AssertionError, HBoxError, KeyError)
EXAMPLES = int(os.environ.get("HBOX_LEDGER_EXAMPLES", "0"))

pytestmark = [pytest.mark.timeout(120 + EXAMPLES), pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")]

search = settings(
    max_examples=EXAMPLES or 8,
    stateful_step_count=50,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    phases=[Phase.generate, *([Phase.shrink] if EXAMPLES else [])],
    suppress_health_check=list(HealthCheck),
)


def name(what: Bug | Path) -> str:
    return what.__name__


@pytest.mark.hypothesis
def test_the_ledger_keeps_its_invariants() -> None:
    run_state_machine_as_test(LedgerMachine, settings=search)


@pytest.mark.hypothesis
def test_it_keeps_them_where_queues_have_shares_by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    by_weight(monkeypatch)
    run_state_machine_as_test(WeightsMachine, settings=search)


@pytest.mark.hypothesis
def test_it_keeps_them_where_there_are_pools() -> None:
    run_state_machine_as_test(PoolsMachine, settings=search)


def by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "GRACE_S", 0.0)  # the model does not remember what was taken
    monkeypatch.setattr(LedgerState, "total", lambda _: dict(SCARCE))


@pytest.mark.parametrize("bug", WEIGHT_BUGS, ids=name)
def test_the_machine_finds_a_bug_of_weights_on_its_path(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    by_weight(monkeypatch)
    walk(two_halves_of_four_for_a_queue_that_has_only_its_weight, WeightsMachine())
    bug(monkeypatch)
    with pytest.raises(FOUND):
        walk(two_halves_of_four_for_a_queue_that_has_only_its_weight, WeightsMachine())


SEARCHED = [bug for bug in BUGS if bug not in PATHS]


@pytest.mark.parametrize("bug", SEARCHED, ids=name)
def test_a_short_search_finds_a_bug_that_was_planted(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(FOUND):
        run_state_machine_as_test(LedgerMachine, settings=settings(search, max_examples=200, phases=[Phase.generate]))


@pytest.mark.parametrize(("bug", "path"), PATHS.items(), ids=name)
def test_the_machine_finds_a_bug_that_was_planted_on_its_path(bug: Bug, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk(path)
    bug(monkeypatch)
    with pytest.raises(FOUND):
        walk(path)


@pytest.mark.parametrize(("bug", "path"), POOL_PATHS.items(), ids=name)
def test_the_machine_finds_a_bug_of_pools_on_its_path(bug: Bug, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk(path, PoolsMachine())
    bug(monkeypatch)
    with pytest.raises(FOUND):
        walk(path, PoolsMachine())


def walk(path: Path, machine: LedgerMachine | None = None) -> None:
    machine = machine or LedgerMachine()
    try:
        path(machine)
    finally:
        machine.teardown()
