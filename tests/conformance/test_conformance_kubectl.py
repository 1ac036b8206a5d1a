"""kubectl's commands have the same exit statuses and print the same columns on the emulator and on a real control plane."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..real.control_plane import control_plane
from .kube_world import start_sandbox, stop
from .kubectl_commands import NEWEST, Answer, ask, commands, older, recorded

_COLUMNS = re.compile(r"[A-Z][A-Z ()/-]+")


@pytest.fixture(params=["emulator", pytest.param("assets", marks=pytest.mark.real)])
def kubeconfig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A cluster with kubelets and the controllers of workloads, and without nodes."""
    if request.param == "assets":
        with control_plane(tmp_path) as plane:
            yield plane.kubeconfig
        return
    process, api = start_sandbox(tmp_path)
    yield api.kubeconfig
    assert stop(process) == 0


def shown(answer: Answer, *, whole: bool) -> tuple[str, int, str]:
    """What has to be the same: the line, or only the columns of one that has some, since texts differ among kubectl's versions."""
    return answer.command, answer.status, answer.line if whole or _COLUMNS.fullmatch(answer.line) else ""


def test_kubectl_of_the_same_version_gives_the_recorded_answers(kubeconfig: Path) -> None:
    program = older()
    if program is None:
        pytest.skip(
            "no kubectl of the control plane's version: `make kube-assets` builds it, or KUBEBUILDER_ASSETS names a folder with one"
        )
    found = [shown(each, whole=True) for each in ask(program, kubeconfig, commands())]
    assert found == [shown(each, whole=True) for each in recorded()]


def test_the_newest_kubectl_gives_the_recorded_statuses_and_columns(kubeconfig: Path) -> None:
    if not NEWEST.exists():
        pytest.skip("no kubectl beside this Python: `make install` installs one")
    found = [shown(each, whole=False) for each in ask(NEWEST, kubeconfig, commands())]
    assert found == [shown(each, whole=False) for each in recorded()]


def test_the_table_covers_what_people_use() -> None:
    verbs = {each.command.removeprefix("& ").split()[0] for each in recorded()}
    assert len(recorded()) >= 60
    assert {"get", "describe", "explain", "apply", "logs", "rollout", "wait", "auth", "diff", "drain", "events"} <= verbs
