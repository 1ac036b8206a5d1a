"""The chart ships the rules and dashboards that stand beside it."""

from __future__ import annotations

import yaml

from hbox_cli.platform import dashboards

from .rendered import CHART, objects, of, pods, read, template

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


def _token_of_ledger(name: str) -> list[dict[str, object]]:
    """The sources of the ledger's secrets that hold the token of metrics."""
    [pod] = [pod for kind, _, pod in pods(name) if kind == "Deployment/hbox-quota-ledger"]
    sources = [s["secret"] for v in pod["volumes"] if v["name"] == "secrets" for s in v["projected"]["sources"]]
    return [s for s in sources if {"metrics_token"} & {item["path"] for item in s["items"]}]


def test_pages_with_names_are_scraped_with_the_token_that_the_ledger_has() -> None:
    done = template(*WITH)
    made = {found["kind"]: found for found in read(done.stdout) if found["metadata"]["name"] == "hbox-metrics"}
    assert made.keys() == {"ServiceAccount", "Secret"}, "no rights"
    assert made["Secret"]["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "hbox-metrics"}
    assert "data" not in made["Secret"], "Kubernetes generates the token"
    [monitor] = [found for found in read(done.stdout) if found["kind"] == "PodMonitor"]
    plain, queues = monitor["spec"]["podMetricsEndpoints"]
    assert (plain["path"], "authorization" in plain) == ("/metrics", False)
    assert (queues["path"], queues["authorization"]) == (
        "/metrics/queues",
        {"credentials": {"name": "hbox-metrics", "key": "token"}},
    )


def test_the_token_of_metrics_may_be_a_secret_of_the_operator() -> None:
    [source] = _token_of_ledger("all that is off")
    assert (source["name"], source["optional"]) == ("mine", True)
    assert not [found for found in objects("all that is off") if found["metadata"]["name"] == "hbox-metrics"]
    [monitor] = of("all that is off", "PodMonitor")
    endpoints = monitor["spec"]["podMetricsEndpoints"]
    assert {e["path"]: e["authorization"]["credentials"]["name"] for e in endpoints if "authorization" in e} == {
        "/metrics/cards": "mine",
        "/metrics/queues": "mine",
    }


def test_without_a_pod_monitor_the_ledger_has_no_token() -> None:
    assert not _token_of_ledger("default")
    assert not [found for found in objects("default") if found["metadata"]["name"] == "hbox-metrics"]


def test_only_the_peers_of_the_values_reach_the_port_of_metrics() -> None:
    def allowed(name: str) -> list[object]:
        policies = [found["spec"] for found in of(name, "NetworkPolicy")]
        rules = [rule for spec in policies for rule in spec.get("ingress", ())]
        return [rule["from"] for rule in rules if 8080 in [port.get("port") for port in rule["ports"]]]

    assert allowed("default") == []
    assert allowed("all that is off") == [[{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]]


def test_alerts_can_be_left_out_and_pages_are_where_the_values_say() -> None:
    [rule] = of("all that is off", "PrometheusRule")
    rules = [r for group in rule["spec"]["groups"] for r in group["rules"]]
    every = [r for group in PLAIN["groups"] for r in group["rules"]]
    left_out = {"HBoxPendingOld", "HBoxCycleSlow"}
    assert [r.get("alert") or r["record"] for r in rules] == [
        r.get("alert") or r["record"] for r in every if r.get("alert") not in left_out
    ]
    pages = [r["annotations"]["runbook_url"] for r in rules if "alert" in r]
    assert all(page.startswith("https://git.example.com/hbox/docs/runbooks/") for page in pages)
    assert rule["metadata"]["labels"]["release"] == "prometheus"
