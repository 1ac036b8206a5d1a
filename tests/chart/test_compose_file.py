"""compose.yaml as it stands; `make test-deploy` starts it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from hbox_cli.services import SERVICES

from .rendered import CHART

FILE = yaml.safe_load((CHART.parents[1] / "compose.yaml").read_text())
CONTAINERS: dict[str, dict[str, Any]] = FILE["services"]
OURS = sorted(CONTAINERS.keys() - {"postgres"})


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


@pytest.mark.parametrize("name", OURS)
def test_containers_may_do_little_and_are_of_one_version(name: str) -> None:
    container = CONTAINERS[name]
    assert (container["read_only"], container["init"], container["cap_drop"]) == (True, True, ["ALL"])
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert container["image"] == f"hbox:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}"
    assert "healthcheck" in container or container["restart"] == "no"


def test_what_is_published_is_on_loopback_and_images_are_versions() -> None:
    ports = [port for container in CONTAINERS.values() for port in container.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert not [c["image"] for c in CONTAINERS.values() if c["image"].endswith(":latest") or ":" not in c["image"]]
