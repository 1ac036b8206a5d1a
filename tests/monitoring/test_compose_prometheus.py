"""The Prometheus of compose.yaml's profile `otel`: promtool takes its configuration, with the rules that it names."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from .promtool import promtool

ROOT = Path(__file__).parents[2]
RULES = "/etc/prometheus/rules.yaml"


def test_promtool_takes_the_configuration_and_its_rules(tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    text = (ROOT / compose["configs"]["prometheus"]["file"]).read_text()
    assert RULES in text
    shutil.copy(ROOT / compose["configs"]["rules"]["file"], tmp_path / "rules.yaml")
    config = tmp_path / "prometheus.yaml"
    config.write_text(text.replace(RULES, str(tmp_path / "rules.yaml")))
    done = promtool("check", "config", "--lint=none", config)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    assert b"SUCCESS" in done.stdout
    services = set(compose["services"])
    targets = {t for job in yaml.safe_load(text)["scrape_configs"] for s in job["static_configs"] for t in s["targets"]}
    assert {target.partition(":")[0] for target in targets} <= services, "who is scraped is there"
