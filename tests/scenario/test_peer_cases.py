"""The scheduling cases of other schedulers (../shared/cases), folder by folder, through the code of `hbox simulate cycle`.

Which of them pass is not the same as which have to: the floors rise as the engine grows, and never fall. Cases that rest on a rule that only
their source has are left out, as the cases' own runner does.
"""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.running import Wish, outcome_of
from hbox_common.clock import wall_s

CASES = Path(__file__).parents[3] / "shared" / "cases"

#: Folder -> cases that pass at least.
FLOORS = {"volcano": 151, "kai": 65, "kueue-tas": 43, "hami": 26}

pytestmark = pytest.mark.skipif(not (CASES / "run.py").exists(), reason="no folder ../shared/cases beside the project")


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    """The cases' own runner: its documents and its comparison."""
    spec = importlib.util.spec_from_file_location("peer_cases_run", CASES / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def differences(runner: ModuleType, case: dict[str, Any], wish: Wish) -> list[str]:
    try:
        row = outcome_of("case", objects_of(runner.case_documents(case)), wish)
    except Exception as e:  # as a user meets it: one file's fault does not stop the others
        return [f"{type(e).__name__}: {e}"]
    found: list[str] = runner.check(case, row)
    return found


@pytest.mark.parametrize("folder", FLOORS)
def test_no_fewer_cases_pass_than_before(runner: ModuleType, folder: str) -> None:
    wish = Wish(explain=True, now=wall_s())
    passed, failed = 0, []
    for path in runner.select([folder]):
        case = runner.yaml.load(path.read_text(), Loader=runner.LOADER)
        if case.get("xfail_semantics"):
            continue
        wrong = differences(runner, case, wish)
        if wrong:
            failed.append(f"{path.stem}: {wrong[0][:160]}")
        else:
            passed += 1
    assert passed >= FLOORS[folder], f"{passed} of {passed + len(failed)} pass\n" + "\n".join(failed)
