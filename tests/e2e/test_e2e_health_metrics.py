"""Faults injected into emulated nodes of a running platform appear in health-monitor's metrics: detected, isolated, counted as card-hours, and returned."""

import json
import re
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from .platform_world import Up, until, up
from .test_e2e_sick_hardware import FAST, inject

pytestmark = pytest.mark.e2e

CARD, LOST = "node-0001", "node-0002"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("health") / "state", "--nodes", "4x8:NVIDIA-H100-80GB-HBM3", env=FAST) as running:
        yield running


def series(platform: Up) -> dict[str, float]:
    """Samples of health-monitor by name and labels, as on the page."""
    url = json.loads((platform.state / "platform.json").read_text())["health"]["health-monitor"]
    text = urlopen(f"{url}/metrics", timeout=10).read().decode()
    return {name: float(value) for name, value in re.findall(r"^(hbox_health_\S+) (\S+)$", text, re.M)}


def counted(platform: Up, step: str, kind: str) -> float:
    return series(platform).get(f'hbox_health_{step}_seconds_count{{kind="{kind}"}}', 0.0)


def mean(platform: Up, step: str, kind: str) -> float:
    found, name = series(platform), f"hbox_health_{step}_seconds"
    return found[f'{name}_sum{{kind="{kind}"}}'] / found[f'{name}_count{{kind="{kind}"}}']


def test_a_contained_error_is_detected_isolated_and_loses_one_card(platform: Up) -> None:
    until(lambda: platform.json("nodes")["items"], timeout_s=60, what="nodes")
    inject(platform, "contained", CARD, "--card", "0")
    until(lambda: counted(platform, "isolate", "card"), timeout_s=60, what="the isolated card")
    assert counted(platform, "detect", "card") == 1
    assert 0 <= mean(platform, "detect", "card") < 30
    assert mean(platform, "isolate", "card") < 5
    lost = 'hbox_health_card_hours_lost_total{blame="hardware",kind="card"}'
    hours = until(lambda: series(platform).get(lost), timeout_s=30, what="card-hours")
    assert hours < 60 / 3600, "one card for less than a minute"
    assert series(platform)['hbox_health_incidents{kind="card",state="confirmed"}'] == 1


def test_a_lost_card_closes_its_node_and_the_cordon_is_measured(platform: Up) -> None:
    inject(platform, "xid-79", LOST, "--card", "3")
    until(lambda: counted(platform, "isolate", "node-fault"), timeout_s=60, what="the observed cordon")
    assert mean(platform, "isolate", "node-fault") < 30
    name = 'hbox_health_card_hours_lost_total{blame="hardware",kind="node-fault"}'
    first = until(lambda: series(platform).get(name), timeout_s=30, what="card-hours of the node")
    assert until(lambda: series(platform)[name] > first, timeout_s=30, what="more card-hours")


def test_what_is_repaired_returns(platform: Up) -> None:
    inject(platform, "repaired", CARD, LOST)
    until(lambda: counted(platform, "return", "card"), timeout_s=120, what="the card's return")
    until(lambda: counted(platform, "return", "node-fault"), timeout_s=120, what="the node's return")
    assert counted(platform, "detect", "card") == 1, "nothing counts twice"
    kinds = {label for name in series(platform) for label in re.findall(r'kind="([^"]+)"', name)}
    assert {"card", "node-fault"} <= kinds
