"""The chart ships the rules and dashboards that stand beside it."""

from __future__ import annotations

import yaml

from hbox_cli.platform import dashboards

from .rendered import CHART, of, read, template

PLAIN = yaml.safe_load((CHART / "files" / "monitoring" / "rules.yaml").read_text())
WITH = ("podMonitor.enabled=true",)


def _rendered(*values: str) -> list[dict[str, object]]:
    done = template(*values)
    assert done.returncode == 0, done.stderr
    return [found for found in read(done.stdout) if found["kind"] == "PrometheusRule"]


def test_the_rules_are_there_where_the_services_are_scraped() -> None:
    [rule] = _rendered(*WITH)
    assert rule["spec"] == PLAIN
    assert _rendered() == []
    assert _rendered(*WITH, "prometheusRule.enabled=false") == []


def test_each_dashboard_is_a_config_map_that_the_sidecar_finds() -> None:
    maps = [c for c in of("all that is off", "ConfigMap") if c["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert {name: text for c in maps for name, text in c["data"].items()} == dashboards.texts()
    assert all(c["metadata"]["annotations"] == {"grafana_folder": "HBox"} for c in maps)
    assert not [c for c in of("default", "ConfigMap") if "grafana_dashboard" in c["metadata"]["labels"]]


def test_the_files_are_what_the_tables_say() -> None:
    folder = CHART / "files" / "monitoring" / "dashboards"
    assert {path.name: path.read_text() for path in folder.iterdir()} == dashboards.texts()


def test_alerts_can_be_left_out_and_pages_are_where_the_values_say() -> None:
    [rule] = of("all that is off", "PrometheusRule")
    rules = [r for group in rule["spec"]["groups"] for r in group["rules"]]
    every = [r for group in PLAIN["groups"] for r in group["rules"]]
    left_out = {"HBoxPendingOld", "HBoxCycleSlow"}
    assert [r.get("alert") or r["record"] for r in rules] == [
        r.get("alert") or r["record"] for r in every if r.get("alert") not in left_out
    ]
    pages = [r["annotations"]["runbook_url"] for r in rules if "alert" in r]
    assert all(page.startswith("https://git.example.com/hbox/docs/runbooks/HBox") for page in pages)
    assert rule["metadata"]["labels"]["release"] == "prometheus"
