"""compose.yaml as it stands; `make test-deploy` starts it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from hbox_cli.services import SERVICES

from .rendered import CHART, of

ROOT = CHART.parents[1]
FILE = yaml.safe_load((ROOT / "compose.yaml").read_text())
CONTAINERS: dict[str, dict[str, Any]] = FILE["services"]
WATCHERS = ("otel-collector", "prometheus", "grafana")
CONFIGS = {name: ROOT / one["file"] for name, one in FILE["configs"].items()}
OURS = sorted(CONTAINERS.keys() - {"postgres", *WATCHERS})


def test_every_service_is_there_with_its_own_key() -> None:
    assert set(SERVICES) <= CONTAINERS.keys()
    for name in SERVICES:
        assert CONTAINERS[name]["command"] == [name]
        assert CONTAINERS[name]["environment"]["HBOX_NATS_SEED"] == f"/keys/{name}.nk"
        assert CONTAINERS[name]["depends_on"]["nats"] == {"condition": "service_healthy"}
        assert "keys:/keys:ro" in CONTAINERS[name]["volumes"]


def test_only_the_broker_writes_keys_and_only_the_ledger_knows_the_database() -> None:
    assert [name for name in OURS if "keys:/keys" in CONTAINERS[name].get("volumes", ())] == ["nats"]
    assert [name for name in OURS if "HBOX_DATABASE_URL" in CONTAINERS[name].get("environment", {})] == ["quota-ledger"]


@pytest.mark.parametrize("name", sorted(CONTAINERS))
def test_containers_may_do_little_have_time_to_end_and_are_asked_how_they_are(name: str) -> None:
    container = CONTAINERS[name]
    assert (container["read_only"], container["init"], container["cap_drop"]) == (True, True, ["ALL"])
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert "/tmp" in container["tmpfs"]
    assert int(container["stop_grace_period"].removesuffix("s")) >= 20
    asked = "healthcheck" in container or container["restart"] == "no"
    assert asked is not (name == "otel-collector"), "its image has nothing that could ask"


def test_what_waits_for_others_waits_until_they_are_well() -> None:
    wanted = {"service_healthy", "service_completed_successfully"}
    assert {how["condition"] for one in CONTAINERS.values() for how in one.get("depends_on", {}).values()} == wanted


def test_queue_default_gets_the_list_of_classes_that_the_chart_gives_it() -> None:
    [job] = [one for one in of("default", "Job") if one["metadata"]["name"] == "hbox-definitions"]
    words = job["spec"]["template"]["spec"]["containers"][0]["command"][1:]
    assert CONTAINERS["definitions"]["command"][: len(words)] == words


def test_all_that_is_ours_is_of_one_version() -> None:
    assert {CONTAINERS[name]["image"] for name in OURS} == {
        f"hbox:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}"
    }


def test_what_is_published_is_on_loopback_and_images_are_versions() -> None:
    ports = [port for container in CONTAINERS.values() for port in container.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert not [c["image"] for c in CONTAINERS.values() if c["image"].endswith(":latest") or ":" not in c["image"]]


def test_who_watches_is_of_a_profile_of_its_own() -> None:
    for name in WATCHERS:
        container = CONTAINERS[name]
        assert container["profiles"] == ["otel"]
        for one in container.get("configs", ()):
            assert CONFIGS[one["source"]].is_file(), (
                "what is written in compose.yaml itself does not come into a container that is read-only"
            )
    assert all(CONTAINERS[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "${HBOX_OTLP:-}" for name in SERVICES)


def test_prometheus_scrapes_every_service_and_reads_the_rules_that_the_chart_ships() -> None:
    config = yaml.safe_load(CONFIGS["prometheus"].read_text())
    [targets] = [one["static_configs"][0]["targets"] for one in config["scrape_configs"] if one["job_name"] == "hbox"]
    port = CONTAINERS["binder"]["environment"]["HBOX_HEALTH_PORT"]
    assert sorted(targets) == sorted(f"{name}:{port}" for name in SERVICES)
    [queues] = [one for one in config["scrape_configs"] if one["job_name"] == "hbox-queues"]
    assert queues["authorization"]["credentials"] == CONTAINERS["quota-ledger"]["environment"]["HBOX_METRICS_TOKEN"]
    assert CONFIGS["rules"].samefile(CHART / "files" / "monitoring" / "rules.yaml")
    mounted = {one["target"] for one in CONTAINERS["prometheus"]["configs"]}
    assert set(config["rule_files"]) <= mounted


def test_grafana_finds_its_source_and_the_dashboards() -> None:
    [source] = yaml.safe_load(CONFIGS["datasource"].read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = yaml.safe_load(CONFIGS["dashboards"].read_text())["providers"]
    [mount] = [v for v in CONTAINERS["grafana"]["volumes"] if v.startswith("./")]
    assert mount == f"./helm/hbox/files/monitoring/dashboards:{provider['options']['path']}:ro"


def test_the_collector_hands_spans_on() -> None:
    config = yaml.safe_load(CONFIGS["collector"].read_text())
    known = {name for kind in ("receivers", "connectors", "exporters") for name in config[kind]}
    for pipeline in config["service"]["pipelines"].values():
        assert {*pipeline["receivers"], *pipeline["exporters"]} <= known
    assert config["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318"), "the services' OTLP is HTTP"
