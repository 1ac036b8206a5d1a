"""`hbox policy` as its users meet it: HBox's own policy as a file that can be changed and used."""

import json
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.__main__ import cli
from hbox_common.errors import InvalidRequest
from hbox_common.model.consolidation import Mode
from hbox_scheduler.adapters.policyfile import policy_file
from hbox_scheduler.core.policy import PolicyName
from hbox_scheduler.core.policy.default import default_conf

from .test_simulate_cycle_command import CLUSTER, gang


def run(*words: str | Path) -> None:
    cli.main([*map(str, words)], prog_name="hbox", standalone_mode=False)


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """What `hbox policy show` prints, in a file."""
    run("policy", "show")
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(capsys.readouterr().out)
    return path


def decided(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    run("simulate", "cycle", "-o", "json", "--now", "2026-01-01T00:00:00Z", *words)
    row: dict[str, Any] = json.loads(capsys.readouterr().out)["items"][0]
    return row


def test_what_is_shown_decides_as_no_file_does(shown: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = tmp_path / "cluster.yaml"
    other = CLUSTER.split("---")[0].replace("n1", "n2").replace("nvidia.com/gpu: 2", "nvidia.com/gpu: 8")
    cluster.write_text(
        CLUSTER
        + other
        + "---\n"
        + "".join(gang(f"g{i}", pods, cards) for i, (pods, cards) in enumerate([(1, 1), (2, 2), (3, 1), (1, 4)]))
    )
    found = decided(capsys, cluster)
    assert found["bindings"]
    assert decided(capsys, "--policy", shown, cluster) == found
    own = shown.read_text()
    scores = own[own.index("least-waste\n") : own.index("  - name: node-preferences")]
    shown.write_text(own.replace(scores, "nodeorder\n"))
    assert decided(capsys, "--policy", shown, cluster)["bindings"] != found["bindings"], "a change counts"


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", PolicyName)
def test_what_is_shown_is_what_the_service_follows(
    name: PolicyName, mode: Mode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("policy", "show", name, "--defragmentation", mode)
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(capsys.readouterr().out)
    assert policy_file(path).value == default_conf(name, mode)
    assert ("consolidate" in default_conf(name, mode).actions) is (mode is not Mode.OFF)


def test_nothing_in_hboxs_own_policy_is_in_the_way_of_batches(shown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("policy", "check", shown)
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{shown} is right: actions allocate,")
    assert told[1:] == []
    run("policy", "check", "-o", "json", shown)
    assert json.loads(capsys.readouterr().out)["inTheWayOfBatches"] == []


def test_a_wrong_file_is_refused_with_file_and_line(shown: Path) -> None:
    shown.write_text(shown.read_text().replace("binpack.idle-cards", "binpack.idel-cards"))
    with pytest.raises(InvalidRequest) as caught:
        run("policy", "check", shown)
    line = 1 + next(n for n, text in enumerate(shown.read_text().splitlines()) if "- name: binpack" in text)
    assert caught.value.message.startswith(f"{shown}: line {line}: plugin binpack has no argument 'binpack.idel-cards.weight'")
    assert caught.value.hint == "did you mean binpack.idle-cards.weight?"


def test_every_reason_against_batches_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text("""\
tiers:
- plugins:
  - name: gang
  - {name: drf, enableJobOrder: false}
  - name: sla
  - name: predicates
  - name: proportion
  - name: nodegroup
  - name: nodeorder
  - {name: card-models, enablePredicate: false, arguments: {reserve.percent: 10}}
  - name: usage
""")
    run("policy", "check", "-o", "json", path)
    masks, scores = "masks nodes by more of a pod than what it asks for", "scores nodes by more of a pod than what it asks for"
    assert json.loads(capsys.readouterr().out)["inTheWayOfBatches"] == [
        f"nodegroup {masks}",
        f"nodegroup {scores}",
        f"card-models {scores}",
        "usage judges nodes by what is measured",
    ]


def test_what_a_policy_names_without_effect_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(
        "tiers:\n- plugins: [{name: priority}, {name: gang}, {name: rescheduling, arguments: {strategies: [{name: offlineOnly}]}}]\n"
    )
    run("policy", "check", path)
    assert (
        "warning: plugin rescheduling, strategy offlineOnly has no effect: as in Volcano, there is lowNodeUtilization alone"
        in capsys.readouterr().out.splitlines()
    )
    run("policy", "check", path, "-o", "json")
    assert json.loads(capsys.readouterr().out)["warnings"] == [
        "plugin rescheduling, strategy offlineOnly has no effect: as in Volcano, there is lowNodeUtilization alone"
    ]
