"""compose.yaml, as a newcomer starts it: everything healthy, a gang that runs, a broker that is closed, what survives a kill."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from .cluster import RELEASED, ROOT, SERVICES, until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1500)]

PROJECT = "hbox-test"
UP_S = 400
WATCHERS = ("otel-collector", "prometheus", "grafana")


@dataclass(frozen=True, slots=True)
class Compose:
    words: tuple[str, ...]
    env: dict[str, str]

    def run(self, *words: str, timeout_s: float = 120, good: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.words, "--project-name", PROJECT, *words],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0 or not good, f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done

    def containers(self) -> dict[str, dict[str, Any]]:
        lines = self.run("ps", "--all", "--format", "json").stdout.splitlines()
        return {found["Service"]: found for found in map(json.loads, lines)}

    def healthy(self) -> bool:
        found = self.containers()
        return all(found[name]["Health"] == "healthy" for name in (*SERVICES, "nats", "postgres", "cluster"))

    def trial(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`hbox trial` beside the services."""
        told = ("trial", "--kubeconfig", "/data/kubeconfig", *words)
        return self.run("--profile", "demo", "run", "--rm", "--no-deps", "-T", "demo", *told, timeout_s=200, good=False)


@pytest.fixture(scope="module")
def compose(docker: str, image: str, postgres: str) -> Iterator[Compose]:
    plugin = subprocess.run([docker, "compose", "version"], capture_output=True, timeout=30, check=False).returncode == 0
    words = (docker, "compose") if plugin else ("docker-compose",)
    if not plugin and shutil.which("docker-compose") is None:
        pytest.skip("neither `docker compose` nor docker-compose is there")
    assert f"image: {RELEASED}\n" in (ROOT / "compose.yaml").read_text()
    watchers = {
        f"HBOX_{name}_IMAGE": RELEASED for name in ("COLLECTOR", "PROMETHEUS", "GRAFANA")
    }  # theirs no registry has here
    env = watchers | dict(os.environ) | {"HBOX_API_PORT": "18001", "HBOX_POSTGRES_IMAGE": postgres}
    found = Compose(words, env)
    found.run("down", "--volumes", "--remove-orphans", timeout_s=120)
    try:
        found.run("up", "--detach", "--no-build", "--wait", "--wait-timeout", str(UP_S), timeout_s=UP_S + 60)
        yield found
    finally:
        found.run("--profile", "demo", "down", "--volumes", "--remove-orphans", timeout_s=120, good=False)


def test_everything_is_healthy_and_what_was_to_end_has_ended(compose: Compose) -> None:
    assert compose.healthy()
    definitions = compose.containers()["definitions"]
    assert (definitions["State"], definitions["ExitCode"]) == ("exited", 0)


def test_a_gang_runs(compose: Compose) -> None:
    done = compose.trial("--members", "8", "--cards", "8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runs after" in done.stdout


def test_the_broker_lets_nobody_in_without_a_key(compose: Compose) -> None:
    done = compose.run(
        "exec", "-T", "-e", "HBOX_NATS_SEED=", "-e", "HBOX_HEALTH_PORT=8099", "binder", "hbox-service", "binder", good=False
    )
    assert done.returncode == 2
    assert "refuses us" in done.stderr + done.stdout


def test_who_watches_finds_its_configuration(compose: Compose) -> None:
    told = yaml.safe_load((ROOT / "compose.yaml").read_text())
    for name in WATCHERS:
        for one in told["services"][name]["configs"]:
            words = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "cat", name, one["target"])
            done = compose.run("--profile", "otel", *words)
            assert done.stdout == (ROOT / told["configs"][one["source"]]["file"]).read_text()


def test_what_is_killed_comes_back_and_gangs_run_again(compose: Compose) -> None:
    compose.run("kill", "nats", "postgres", "scheduler-core", "quota-ledger")
    # The engine starts again what dies by itself, and leaves alone what somebody has killed.
    compose.run("up", "--detach", "--no-build", "--wait", "--wait-timeout", str(UP_S), timeout_s=UP_S + 60)
    until(compose.healthy, timeout_s=120, what=lambda: json.dumps(compose.containers()))
    done = compose.trial("--members", "4", "--cards", "4")
    assert done.returncode == 0, done.stdout + done.stderr


def test_down_leaves_nothing(compose: Compose, docker: str) -> None:
    compose.run("--profile", "demo", "down", "--volumes", timeout_s=120)
    for kind in ("container", "volume", "network"):
        words = [docker, kind, "ls", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}"]
        assert subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout == ""
