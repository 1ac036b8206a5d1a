"""Which tests go to which worker, and in which order, where `make test` and `make test-real` run several side by side (pytest-xdist).

A unit of work is a module: its tests share a platform, or are quick. Where each test has its own broker, API server and database, or searches, it is
a unit by itself. What takes longest begins first, so that no worker is left alone with it at the end. Between two units that wait for a platform come some
that compute: so at any time some workers wait and some compute, and the processors are neither idle nor fought for.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from xdist.scheduler import LoadScopeScheduling

#: Beginnings of paths below `tests/`, in the order in which they begin; the rest follows.
FIRST = (
    "e2e/test_chaos.py",
    "e2e/test_e2e_commands.py",
    "e2e/test_e2e_replay.py",
    "e2e/test_e2e_blind.py",
    "e2e/",
    "real/test_blind_from_outside.py",
    "real/test_real_controllers.py",
    "real/test_real_nasty_objects.py",
    "real/test_beside_kube_scheduler.py",
    "real/",
    "property/",
    "integration/ledger/",
    "integration/",
    "conformance/",
    "scenario/",
)

#: Modules each of whose tests is a unit of work.
APART = (
    "integration/",
    "property/",
    "e2e/test_e2e_admission.py",
    "e2e/test_e2e_bad_input.py",
    "e2e/test_e2e_blind.py",
    "e2e/test_e2e_budgets.py",
    "e2e/test_e2e_defragmentation.py",
    "e2e/test_e2e_leaving.py",
    "e2e/test_e2e_levels_classless.py",
    "e2e/test_e2e_nasty_objects.py",
    "e2e/test_e2e_nominations.py",
    "e2e/test_e2e_policy_actions.py",
    "e2e/test_standby.py",
    "real/test_blind_from_outside.py",
    "real/test_real_drained_gang.py",
    "unit/hbox_cli/test_simulate",
)


#: Tests below this path mostly wait. After each unit of theirs come so many units of others, and those that are left come at the end: no worker waits there
#: alone.
WAITING = "e2e/"
COMPUTE_MEANWHILE = 14


def turns(nodeids: Iterable[str]) -> dict[str, int]:
    """Each test's turn, to sort by."""
    waiting: dict[str, None] = {}
    computing: dict[str, None] = {}
    units: dict[str, str] = {}
    for nodeid in sorted(nodeids, key=_rank):
        units[nodeid] = unit = unit_of(nodeid)
        (waiting if nodeid.startswith(f"tests/{WAITING}") else computing).setdefault(unit)
    turn = {unit: number for number, unit in enumerate(_merged(waiting, iter(computing)))}
    return {nodeid: turn[unit] for nodeid, unit in units.items()}


def _merged(waiting: Iterable[str], computing: Iterator[str]) -> Iterator[str]:
    for unit in waiting:
        yield unit
        yield from islice(computing, COMPUTE_MEANWHILE)
    yield from computing


def _rank(nodeid: str) -> int:
    return next((i for i, path in enumerate(FIRST) if nodeid.startswith(f"tests/{path}")), len(FIRST))


def unit_of(nodeid: str) -> str:
    """The unit of work to which a test belongs."""
    if "[assets" in nodeid:
        return "tests/conformance"  # two starts of a real control plane come before the first of these
    return nodeid if nodeid.startswith(tuple(f"tests/{path}" for path in APART)) else nodeid.split("::", 1)[0]


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it comes without types
    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
