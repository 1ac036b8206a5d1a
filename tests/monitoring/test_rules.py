"""The rules that the chart ships: over metrics that exist, each with its page, and each tried by promtool."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from hbox_cli.__main__ import cli
from hbox_health.core.judge.kinds import FAMILIES

from .cases import ALERTS, RECORDS, Series
from .exported import DCGM, KUBERNETES, MONITORING, ROOT, RULES, exported, metrics_of, recorded
from .promtool import promtool

ALL = [rule for group in RULES["groups"] for rule in group["rules"]]
RUNBOOKS = ROOT / "docs" / "runbooks"


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('sum by (le) (rate(a_bucket{x=~"b(c)"}[5m])) > 0.5', {"a_bucket"}),
        ("a and on (component) hbox:b or vector(0)", {"a", "hbox:b"}),
        ("max_over_time(max(a)[1h:1m]) * on (i) group_left (c) d offset 5m", {"a", "d"}),
    ],
)
def test_the_metrics_of_an_expression_are_found(expression: str, names: set[str]) -> None:
    assert metrics_of(expression) - {"m"} == names


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: str(rule.get("alert") or rule["record"]))
def test_every_metric_of_a_rule_is_one_that_somebody_exports(rule: dict[str, Any]) -> None:
    assert metrics_of(rule["expr"])
    assert metrics_of(rule["expr"]) <= exported() | recorded() | KUBERNETES | DCGM


def test_a_rule_over_a_metric_that_nobody_exports_is_noticed() -> None:
    assert not metrics_of("rate(hbox_binder_decided_second_count[5m]) > 1") <= exported() | recorded()
    assert not metrics_of("max(hbox_ledger_froze)") <= exported() | recorded()


def test_every_rule_has_a_case_and_every_case_a_rule() -> None:
    assert {rule["alert"] for rule in ALL if "alert" in rule} == ALERTS.keys()
    assert recorded() == RECORDS.keys()


@pytest.mark.parametrize("rule", [rule for rule in ALL if "alert" in rule], ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_how_bad_it_is_and_where_its_page_is(rule: dict[str, Any]) -> None:
    assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"}, {"severity": "info"})
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "description", "runbook_url"}
    by_kind = rule["alert"].startswith("HBoxIncident")
    assert annotations["runbook_url"] == f"docs/runbooks/{'incidents/{{ $labels.kind }}' if by_kind else rule['alert']}.md"
    page = (RUNBOOKS / f"{rule['alert']}.md").read_text()
    assert page.startswith(f"# {rule['alert']}\n")
    assert all(part in page for part in ("**What it means.**", "**See.**", "**Do.**", "**It resolves**"))


def test_every_page_has_its_alert_and_names_what_there_is() -> None:
    pages = {path.stem: path for path in RUNBOOKS.glob("*.md") if path.stem != "README"}
    assert pages.keys() == ALERTS.keys()
    for path in (*pages.values(), RUNBOOKS / "README.md", *(RUNBOOKS / "incidents").glob("*.md")):
        text = path.read_text()
        for link, anchor in re.findall(r"\]\(([^)#:]+)(#[^)]*)?\)", text):
            assert (path.parent / link).exists(), f"{path.name}: {link}{anchor}"
        for name in re.findall(r"`(hbox_[a-z_]+)", text):
            assert name in exported() or f"{name}_bucket" in exported(), f"{path.name}: {name}"
        for words in re.findall(r"`hbox ([^`]+)`", text):
            _resolved(words.split(), path)


def test_each_family_of_incidents_has_a_page_and_each_page_its_family() -> None:
    pages = {path.stem: path for path in (RUNBOOKS / "incidents").glob("*.md") if path.stem != "README"}
    assert pages.keys() == FAMILIES.keys()
    for name, path in pages.items():
        text = path.read_text()
        assert text.startswith(f"# {name}: {FAMILIES[name]}\n")
        assert all(part in text for part in ("**What it means.**", "**What HBox does.**", "**What you do.**", "**It closes**"))


def test_incident_alerts_name_only_families_that_exist() -> None:
    for rule in ALL:
        for names in (
            re.findall(r'kind!?=~"([^"]+)"', rule["expr"]) if str(rule.get("alert")).startswith("HBoxIncident") else ()
        ):
            assert set(names.split("|")) <= FAMILIES.keys()


def test_rules_of_counters_that_the_exporter_does_not_show_by_default_have_their_fields_in_the_chart() -> None:
    """An operator gives this file to dcgm-exporter."""
    lines = (MONITORING / "dcgm-counters.csv").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split(",", 2)] for line in lines if line and not line.startswith("#")]
    assert all(len(row) == 3 and row[1] in {"gauge", "counter"} for row in rows)
    names = [row[0] for row in rows]
    assert len(names) == len(set(names))
    assert set(names) == DCGM


def _resolved(words: list[str], path: Path) -> None:
    """Whether the command and its options exist."""
    command: click.Command | None = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words:
        command = command.get_command(context, words.pop(0))
    assert command is not None, f"{path.name}: no such command"
    known = {opt for parameter in command.params for opt in parameter.opts}
    assert {w.partition("=")[0] for w in words if w.startswith("-")} <= known, f"{path.name}: {words}"


def test_promtool_reads_the_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", MONITORING / "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def _series(series: Series) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def test_each_rule_fires_when_it_should_and_not_else(tmp_path: Path) -> None:
    tests: list[dict[str, Any]] = []
    for name, case in ALERTS.items():
        expr = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
        for word, series, samples in (
            ("fires", case.fires, [{"labels": "{}", "value": 1}]),
            ("is quiet", case.quiet, []),
            ("is quiet then too", case.quiet_too, []),
        ):
            if not series:
                continue
            wanted = {"expr": expr, "eval_time": f"{case.at}m", "exp_samples": samples}
            tests.append(
                {"name": f"{name} {word}", "interval": "1m", "input_series": _series(series), "promql_expr_test": [wanted]}
            )
    for name, one in RECORDS.items():
        sample = {"labels": name + one.labels, "value": one.value}
        wanted = {"expr": name, "eval_time": f"{one.at}m", "exp_samples": [sample]}
        tests.append({"name": name, "interval": "1m", "input_series": _series(one.series), "promql_expr_test": [wanted]})
    path = tmp_path / "tests.yaml"
    content = {
        "rule_files": [str(MONITORING / "rules.yaml")],
        "evaluation_interval": "30s",
        "fuzzy_compare": True,
        "tests": tests,
    }
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    done = promtool("test", "rules", path)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
