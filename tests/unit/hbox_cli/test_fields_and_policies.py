"""`hbox explain`, `hbox policy diff`, `hbox top`, and the functions of `hbox compat`."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hbox_cli.commands.top import cluster_line, job_rows

from ... import forked


def hbox(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run(*arguments, timeout_s=60, env=os.environ)


def test_a_field_of_jobs_is_explained_with_its_place() -> None:
    found = hbox("explain", "job.topology")
    assert "PodGroup spec.networkTopology" in found.stdout
    assert hbox("explain", "job.colour").returncode == 3


def test_a_field_of_a_definition_is_explained_with_those_below() -> None:
    found = json.loads(hbox("explain", "podgroup.spec.networkTopology", "-o", "json").stdout)
    assert {"mode", "highestTierAllowed", "highestTierName"} <= {one["name"] for one in found["items"]}
    wrong = hbox("explain", "queue.spec.colour")
    assert wrong.returncode == 3
    assert "capability" in wrong.stderr


def test_a_policy_differs_from_another_but_not_from_itself(tmp_path: Path) -> None:
    same = tmp_path / "same.conf"
    same.write_text(hbox("policy", "show", "binpack").stdout)
    equal = hbox("policy", "diff", "binpack", str(same))
    assert (equal.returncode, equal.stdout) == (0, "no difference\n"), equal.stderr
    other = hbox("policy", "diff", "least-waste", "binpack", "-o", "json")
    assert other.returncode == 1
    found = {one["name"]: one for one in json.loads(other.stdout)["items"]}
    assert "least-waste" in found["plugins"]["before"]
    assert "least-waste" not in found["plugins"]["after"]
    assert hbox("policy", "diff", "binpack", str(tmp_path / "none.conf")).returncode == 3


def test_waiting_jobs_are_on_top() -> None:
    job = {"queue": "q", "pods": {"bound": 0, "members": 1}, "cards": 1, "reason": ""}
    jobs = [
        {**job, "name": "runs", "state": "RUNNING", "ageSeconds": 99.0},
        {**job, "name": "new", "state": "WAITING", "ageSeconds": 1.0},
        {**job, "name": "old", "state": "WAITING", "ageSeconds": 9.0},
    ]
    assert [row[0] for row in job_rows(jobs)] == ["old", "new", "runs"]
    nodes = [
        {"state": "READY", "healthy": True, "cards": {"total": 8, "free": 6}},
        {"state": "CORDONED", "healthy": True, "cards": {"total": 8, "free": 8}},
    ]
    assert cluster_line(nodes, jobs).endswith("nodes 2, 1 out of use  cards 2/16 in use  jobs 2 WAITING, 1 RUNNING")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_functions_for_people_from_slurm_and_volcano_run_hbox(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        f'{hbox("compat").stdout}\nhbox() {{ echo "hbox $*"; }}\n'
        "squeue -q ml; scancel a b; scontrol show job a; scontrol show node n; scontrol hold a; vjobs; vcancel a; scontrol ping\n"
    )
    found = subprocess.run(["bash", script], capture_output=True, text=True, check=False, timeout=60)
    assert found.stdout.splitlines() == [
        "hbox jobs -q ml",
        "hbox cancel --yes a b",
        "hbox show a",
        "hbox node show n",
        "hbox hold a",
        "hbox jobs",
        "hbox cancel --yes a",
    ]
    assert found.returncode == 2
    assert "scontrol: hbox has" in found.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_hbox(shell: str) -> None:
    found = hbox("completion", shell)
    assert found.returncode == 0, found.stderr
    assert "_HBOX_COMPLETE" in found.stdout


def test_help_of_a_command_is_that_of_its_option() -> None:
    assert hbox("help", "queue", "set").stdout == hbox("queue", "set", "--help").stdout
    assert hbox("help", "queue", "sett").returncode == 3
    assert hbox("help", "-o", "json").returncode == 5
