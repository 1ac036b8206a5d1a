"""Grafana's dashboards: over metrics that exist, each panel with a word of what it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from .exported import MONITORING, exported, metrics_of, recorded
from .promtool import promtool

FILES = sorted((MONITORING / "dashboards").glob("*.json"))
PANELS: list[tuple[str, dict[str, Any]]] = [
    (path.stem, panel) for path in FILES for panel in json.loads(path.read_text())["panels"]
]
EACH = pytest.mark.parametrize(("name", "panel"), PANELS, ids=[f"{name}: {panel['title']}" for name, panel in PANELS])


def test_there_are_the_six() -> None:
    names = ["hbox-bus", "hbox-health", "hbox-overview", "hbox-queues", "hbox-scheduler", "hbox-services"]
    assert [path.stem for path in FILES] == names


def test_health_shows_each_step_of_an_incident_and_what_it_costs() -> None:
    shown = {
        name
        for dashboard, panel in PANELS
        if dashboard == "hbox-health"
        for t in panel["targets"]
        for name in metrics_of(t["expr"])
    }
    steps = {f"hbox_health_{step}_seconds_bucket" for step in ("detect", "isolate", "return")}
    assert {*steps, "hbox_health_incidents", "hbox_health_card_hours_lost_total", "hbox_health_incidents_waiting"} <= shown


@EACH
def test_every_metric_of_a_panel_is_one_that_somebody_exports(name: str, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        metrics = metrics_of(target["expr"].replace("$__rate_interval", "5m"))
        assert metrics, f"{name}: {panel['title']} shows nothing"
        assert metrics <= exported() | recorded() | {"ALERTS"}, f"{name}: {panel['title']}"


def test_panels_do_not_lie_upon_each_other() -> None:
    for path in FILES:
        seen: set[tuple[int, int]] = set()
        for panel in json.loads(path.read_text())["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & seen
            assert at["x"] + at["w"] <= 24
            seen |= cells


def test_promql_is_well_formed(tmp_path: Path) -> None:
    every = [target["expr"].replace("$__rate_interval", "5m") for _, panel in PANELS for target in panel["targets"]]
    rules = [{"record": f"panel_{number}", "expr": expr} for number, expr in enumerate(every)]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", "--lint=none", path)
    assert done.returncode == 0, done.stdout + done.stderr
