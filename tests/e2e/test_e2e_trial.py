"""`hbox trial`, and `hbox definitions`, on the running platform."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from .platform_world import Up, hbox, up

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("trial") / "state", "--nodes", "2x8") as running:
        yield running


def trial(platform: Up, *words: str) -> subprocess.CompletedProcess[str]:
    return hbox("trial", "--kubeconfig", str(platform.state / "kubeconfig"), *words)


def left(platform: Up) -> list[str]:
    cluster = json.loads((platform.state / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
    kinds = ("/api/v1/pods", "/apis/scheduling.volcano.sh/v1beta1/podgroups")
    found = []
    for kind in kinds:
        with urlopen(f"{cluster}{kind}", timeout=10) as answer:
            found += [
                item["metadata"]["name"] for item in json.load(answer)["items"] if "deletionTimestamp" not in item["metadata"]
            ]
    return found


def test_a_gang_that_runs_is_told_and_taken_away(platform: Up) -> None:
    done = trial(platform, "--members", "4", "--cards", "4")
    assert done.returncode == 0, done.stderr
    assert " runs after " in done.stdout
    assert left(platform) == []


def test_a_gang_that_does_not_run_says_what_its_pods_say(platform: Up) -> None:
    done = trial(platform, "--members", "3", "--cards", "8", "--timeout", "15")
    assert done.returncode == 124, done.stdout + done.stderr
    assert "0 of 3 pods run after 15 s" in done.stderr
    assert "2 of 3 pods fit that have to start together" in done.stderr
    assert left(platform) == []


def test_its_pods_pull_with_the_secrets_that_are_named(platform: Up) -> None:
    done = trial(platform, "--members", "1", "--pull-secret", "mine", "--pull-secret", "another", "--keep")
    assert done.returncode == 0, done.stderr
    cluster = json.loads((platform.state / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
    with urlopen(f"{cluster}/api/v1/pods", timeout=10) as answer:
        [pod] = json.load(answer)["items"]
    assert pod["spec"]["imagePullSecrets"] == [{"name": "mine"}, {"name": "another"}]


def test_definitions_are_applied_where_they_are_missing_and_may_be_applied_again(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    words = [sys.executable, "-m", "hbox_sandbox", "--kubeconfig-out", str(kubeconfig), "--nodes", "3x8"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as sandbox:
        try:
            assert sandbox.stdout is not None
            address = sandbox.stdout.readline().removeprefix("ready ").strip()
            with urlopen(f"{address}/api/v1/nodes", timeout=10) as answer:
                assert len(json.load(answer)["items"]) == 3
            for _ in range(2):
                done = hbox("definitions", "apply", "--kubeconfig", str(kubeconfig))
                assert done.returncode == 0, done.stderr
        finally:
            sandbox.terminate()
    assert "applied CRD queues.scheduling.volcano.sh" in done.stderr
    shown = list(yaml.safe_load_all(hbox("definitions", "show").stdout))
    assert [d["spec"]["names"]["kind"] for d in shown] == ["Queue", "PodGroup", "HyperNode"]


def test_an_emulated_cluster_says_where_others_reach_it(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    words = [sys.executable, "-m", "hbox_sandbox", "--kubeconfig-out", str(kubeconfig), "--nodes", "1x8"]
    with subprocess.Popen([*words, "--host", "0.0.0.0", "--server", "http://cluster:8001"], stdout=subprocess.PIPE) as sandbox:
        assert sandbox.stdout is not None
        assert sandbox.stdout.readline().startswith(b"ready ")
        sandbox.terminate()
    assert json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == "http://cluster:8001"
    assert subprocess.run([*words, "--nodes", "many"], capture_output=True, timeout=60, check=False).returncode == 2
