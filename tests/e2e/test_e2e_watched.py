"""compose.yaml's profile `otel` over a running platform: Prometheus and a collector with exactly the configuration that stands there, but for addresses.

Metrics of every service, spans of jobs, every rule and every panel. `make otel` builds both programs.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from hbox_common.ports import reserved

from .platform_world import Up, until, up
from .traced_jobs import BARE, submit

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "helm" / "hbox" / "files" / "monitoring"
CONFIGS = {name: ROOT / one["file"] for name, one in yaml.safe_load((ROOT / "compose.yaml").read_text())["configs"].items()}
SERVICES = (
    "topology-collector", "job-controller", "scheduler-core", "quota-ledger", "binder", "health-monitor", "node-agent", "console",
)  # fmt: skip
#: Two scrapes and an evaluation, at 15 s each.
SEEN_S = 60.0

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def program(name: str) -> str:
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hbox" / "otel" / name
    found = str(kept) if kept.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}: `make otel` builds it from Go modules")
    return found


@dataclass(frozen=True, slots=True)
class Watched:
    platform: Up
    prometheus: str
    collector_log: Path

    def ask(self, path: str, **words: str) -> Any:
        with urlopen(f"{self.prometheus}/api/v1/{path}?{urlencode(words)}", timeout=20) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found


def _moved(text: str, addresses: Mapping[str, str]) -> str:
    for there, here in addresses.items():
        assert there in text, f"compose/ names no {there} any more"
        text = text.replace(there, here)
    return text


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    otelcol, prometheus = program("otelcol"), program("prometheus")
    folder = tmp_path_factory.mktemp("watched")
    with ExitStack() as stack:
        otlp, spans, web = stack.enter_context(reserved(3))

        def start(name: str, *words: str | Path) -> Path:
            log = folder / f"{name}.log"
            with log.open("wb") as out:
                process = subprocess.Popen([str(word) for word in words], stdout=out, stderr=out, cwd=folder)
            stack.callback(_end, process)
            return log

        config = folder / "collector.yaml"
        config.write_text(
            _moved(
                CONFIGS["collector"].read_text(),
                {"0.0.0.0:4318": f"127.0.0.1:{otlp}", "0.0.0.0:8889": f"127.0.0.1:{spans}"},
            )
        )
        log = start("collector", otelcol, f"--config={config}")
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{otlp}", "OTEL_BSP_SCHEDULE_DELAY": "100"}
        platform = stack.enter_context(up(folder / "state", env=env))
        health = json.loads((platform.state / "platform.json").read_text())["health"]
        addresses = {f"{name}:8080": health[name].removeprefix("http://") for name in SERVICES}
        config = folder / "prometheus.yaml"
        moved = {**addresses, "otel-collector:8889": f"127.0.0.1:{spans}", "/etc/prometheus": str(MONITORING)}
        config.write_text(_moved(CONFIGS["prometheus"].read_text(), moved))
        words = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", "--storage.tsdb.retention.time=7d")
        start("prometheus", prometheus, *words, f"--web.listen-address=127.0.0.1:{web}")
        asyncio.run(submit(platform.state / "kubeconfig"))
        found = Watched(platform, f"http://127.0.0.1:{web}", log)
        until(lambda: _up(found), timeout_s=SEEN_S, what="Prometheus answers")
        yield found


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _up(watched: Watched) -> dict[str, str]:
    try:
        targets = watched.ask("targets")["activeTargets"]
    except OSError:  # it has just been started
        return {}
    return {one["scrapeUrl"]: one["health"] for one in targets}


def test_prometheus_reads_every_service_and_the_collector(watched: Watched) -> None:
    until(lambda: list(_up(watched).values()) == ["up"] * (len(SERVICES) + 1), timeout_s=SEEN_S, what="all targets are up")
    seen = {one["metric"]["component"] for one in watched.query("hbox_build_info")}
    assert seen == set(SERVICES)


def test_spans_arrive_and_how_long_they_took_is_a_metric(watched: Watched) -> None:
    steps = {"submit", "announce", "wait.NotTriedYet", "place", "commit", "bind", "observe", "start"}

    def counted() -> dict[str, float]:
        found = watched.query("sum by (span_name) (traces_span_metrics_calls_total)")
        return {one["metric"]["span_name"]: float(one["value"][1]) for one in found}

    until(
        lambda: all(counted().get(step, 0) >= BARE for step in steps), timeout_s=SEEN_S, what="spans of every step of each job"
    )
    took = watched.query("histogram_quantile(0.99, sum by (le) (rate(traces_span_metrics_duration_milliseconds_bucket[5m])))")
    assert took, "durations have buckets"
    assert "Traces" in watched.collector_log.read_text(), "its log tells of them"


def test_every_rule_is_evaluated_and_nothing_fires_on_a_platform_that_is_well(watched: Watched) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in watched.ask("rules")["groups"] for rule in group["rules"]]

    until(lambda: all(rule["health"] != "unknown" for rule in rules()), timeout_s=SEEN_S, what="every rule was evaluated")
    groups = yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"]
    wanted = {rule.get("alert") or rule["record"] for group in groups for rule in group["rules"]}
    assert {rule["name"] for rule in rules()} == wanted
    assert [(rule["name"], rule["lastError"]) for rule in rules() if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules() if rule.get("state") == "firing"] == []
    until(lambda: watched.query("hbox:processes"), timeout_s=SEEN_S, what="recording rules record")


def test_every_panel_of_the_dashboards_is_answered(watched: Watched) -> None:
    for path in sorted((MONITORING / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                watched.ask("query", query=target["expr"].replace("$__rate_interval", "5m"))


def test_a_service_that_dies_for_good_is_an_alert(watched: Watched) -> None:
    """It is pending at first: whoever is told after two minutes is told by then. Its keeper would start it again, so it is stopped: it answers nothing."""
    pid = watched.platform.pids()["health-monitor"]
    os.kill(pid, signal.SIGSTOP)
    try:

        def pending() -> set[str]:
            return {
                one["labels"].get("component", "")
                for one in watched.ask("alerts")["alerts"]
                if one["labels"]["alertname"] == "HBoxServiceMissing"
            }

        until(lambda: pending() == {"health-monitor"}, timeout_s=2 * SEEN_S, what="an alert that names it")
    finally:
        os.kill(pid, signal.SIGCONT)
