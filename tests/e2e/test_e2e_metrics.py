"""What a running platform says on /metrics: well-formed, and all that rules and dashboards ask for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Mapping
from functools import partial
from urllib.request import Request, urlopen

import pytest

from hbox_cli.services import PAIRED, SERVICES
from hbox_common.kube import PODS, KubeClient
from hbox_common.model.annotations import QUEUE_NAME

from ..monitoring.exported import DCGM, KUBERNETES, RULES, exported, metrics_of, of_alone, of_exposition, recorded
from ..monitoring.promtool import promtool
from ..openmetrics import families
from .platform_world import Up, queue, until, up


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    env = {"HBOX_PODS_IN_CARD_METRICS": "true"}
    with up(tmp_path_factory.mktemp("platform") / "state", "--nodes", "2x8", env=env) as running:
        yield running


@pytest.fixture(scope="module")
def metrics(platform: Up) -> Mapping[str, str]:
    """By service, some seconds after the platform is ready: sizes of streams are looked at then."""
    health = json.loads((platform.state / "platform.json").read_text())["health"]

    def read() -> dict[str, str]:
        found = {name: urlopen(f"{url}/metrics", timeout=10).read().decode() for name, url in health.items()}
        for name, page in (("quota-ledger", "queues"), ("quota-ledger", "cards"), ("job-controller", "queues")):
            found[name] += urlopen(f"{health[name]}/metrics/{page}", timeout=10).read().decode()
        return found if 'hbox_bus_stream_bytes{stream="HBOX_STATE"}' in found["scheduler-core"] else {}

    found: dict[str, str] = until(read, timeout_s=20, what="sizes of streams")
    return found


def test_rules_read_what_the_processes_export(metrics: Mapping[str, str]) -> None:
    there = frozenset[str]().union(*(of_exposition(text) for text in metrics.values()))
    wanted = frozenset[str]().union(*(metrics_of(rule["expr"]) for group in RULES["groups"] for rule in group["rules"]))
    assert wanted - recorded() - KUBERNETES - DCGM - of_alone() <= there
    assert {name for name in there if name.startswith("hbox_")} <= exported(), "the modules say less than the processes"


def test_pages_are_well_formed_in_the_format_that_prometheus_prefers(platform: Up) -> None:
    health = json.loads((platform.state / "platform.json").read_text())["health"]
    pages = [f"{url}/metrics" for url in health.values()]
    for url in (*pages, f"{health['quota-ledger']}/metrics/queues", f"{health['job-controller']}/metrics/queues"):
        with urlopen(Request(url, headers={"Accept": "application/openmetrics-text; version=1.0.0"}), timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text"), url
            assert families(answer.read().decode()), url


def test_each_process_says_who_it_is_and_whether_it_acts(metrics: Mapping[str, str]) -> None:
    assert metrics.keys() == SERVICES.keys()
    for name, text in metrics.items():
        assert f'hbox_build_info{{component="{name}",version=' in text
        assert (f'hbox_leading{{component="{name}"}} 1.0' in text) == (name in PAIRED)
        assert 'hbox_condition{condition="bus"} 1.0' in text
        assert "process_resident_memory_bytes" in text


async def test_the_age_of_a_binding_that_nobody_answers_is_told(platform: Up, client: KubeClient) -> None:
    binder = platform.pids()["binder"]
    os.kill(binder, signal.SIGSTOP)
    try:
        container = {"name": "main", "image": "busybox:1.36", "resources": {"limits": {"cpu": "1"}}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "unanswered"}}
        await client.json(
            "POST", PODS.path("default"), body={**pod, "spec": {"schedulerName": "hbox", "containers": [container]}}
        )
        until(
            lambda: value(platform, "quota-ledger", 'hbox_ledger_oldest_open_decision_seconds{decision="bind"}') > 1,
            timeout_s=20,
            what="it",
        )
    finally:
        os.kill(binder, signal.SIGCONT)
    until(lambda: value(platform, "quota-ledger", "hbox_ledger_open_decisions") == 0, timeout_s=20, what="an answer")
    assert value(platform, "quota-ledger", 'hbox_ledger_oldest_open_decision_seconds{decision="bind"}') == 0


def value(platform: Up, service: str, series: str) -> float:
    url = json.loads((platform.state / "platform.json").read_text())["health"][service]
    said = urlopen(f"{url}/metrics", timeout=10).read().decode()
    return float(said.partition(f"\n{series} ")[2].split()[0])


async def test_the_age_of_a_job_that_finds_no_place_is_told(platform: Up, client: KubeClient) -> None:
    limits = {"nvidia.com/gpu": "5000"}
    container = {"name": "main", "image": "busybox:1.36", "resources": {"limits": limits}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "too-large"}}
    await client.json("POST", PODS.path("default"), body={**pod, "spec": {"schedulerName": "hbox", "containers": [container]}})
    age = partial(value, platform, "scheduler-core", 'hbox_scheduler_oldest_job_seconds{state="unschedulable"}')
    assert 1 <= until(lambda: (found := age()) >= 1 and found, timeout_s=20, what="its age") < 120


async def test_each_card_is_told_on_a_page_of_its_own(platform: Up, client: KubeClient) -> None:
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "2048", "nvidia.com/gpucores": "30"}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "slice"},
        "spec": {"schedulerName": "hbox", "containers": [container]},
    }
    await client.json("POST", PODS.path("default"), body=pod)
    url = json.loads((platform.state / "platform.json").read_text())["health"]["quota-ledger"]

    def cards() -> dict[str, float]:
        said = urlopen(f"{url}/metrics/cards", timeout=10).read().decode()
        return {
            series: float(amount)
            for series, _, amount in (line.rpartition(" ") for line in said.splitlines() if line[0] != "#")
        }

    def used(name: str) -> float:
        return sum(amount for series, amount in cards().items() if series.startswith(f"{name}{{"))

    until(lambda: used("hbox_card_shares_allocated") == 1, timeout_s=20, what="the slice")
    assert (used("hbox_card_memory_allocated_bytes"), used("hbox_card_compute_allocated_ratio")) == (2048 * 2**20, 0.3)
    assert (used("hami_gpu_memory_allocated_bytes"), used("hami_gpu_core_allocated_ratio")) == (2048 * 2**20, 30)
    [claim] = [series for series in cards() if series.startswith("hami_vgpu_memory_allocated_bytes")]
    assert 'namespace="default",node="' in claim
    assert 'pod="slice"' in claim
    assert sum(series.startswith("hbox_card_shares{") for series in cards()) == 16, "two nodes of eight"
    complaints = await asyncio.to_thread(checked, f"{url}/metrics/cards")
    assert [line for line in complaints if not line.startswith("hami_")] == [], "HAMi's names are HAMi's"


async def test_queues_and_pools_have_metrics(platform: Up, client: KubeClient) -> None:
    queue(platform, "create", "vision", "--deserved", "nvidia.com/gpu=4")
    queue(platform, "create", "vision-a", "--parent", "vision", "--deserved", "nvidia.com/gpu=1")
    for name, cards in (("placed", 2), ("pending", 5000)):
        container = {"name": "main", "image": "busybox:1.36", "resources": {"limits": {"nvidia.com/gpu": str(cards)}}}
        metadata = {"name": f"vision-{name}", "annotations": {QUEUE_NAME: "vision-a"}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        await client.json(
            "POST", PODS.path("default"), body={**pod, "spec": {"schedulerName": "hbox", "containers": [container]}}
        )

    url = json.loads((platform.state / "platform.json").read_text())["health"]["quota-ledger"]

    def read() -> dict[str, float]:
        lines = urlopen(f"{url}/metrics/queues", timeout=10).read().decode().splitlines()
        return {series: float(amount) for series, _, amount in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def known() -> dict[str, float]:
        """The series, once both jobs are in them."""
        found = read()
        placed, oldest = (
            'hbox_queue_jobs{queue="vision-a",state="placed"}',
            'hbox_queue_oldest_pending_seconds{queue="vision-a"}',
        )
        return found if found.get(placed) == 1 and found.get(oldest, 0) >= 1 else {}

    found = until(known, timeout_s=30, what="both jobs")
    assert found['hbox_queue_jobs{queue="vision-a",state="pending"}'] == 1
    assert found['hbox_queue_cards{queue="vision-a",state="borrowed"}'] == 1
    used = {state: found[f'hbox_queue_cards{{queue="vision",state="{state}"}}'] for state in ("used", "borrowed", "deserved")}
    assert used == {"used": 2, "borrowed": 0, "deserved": 4}
    assert sum(cards for series, cards in found.items() if series.startswith("hbox_cards{")) == 16, "each card counts once"
    assert found['hbox_queue_submit_to_bound_seconds_bucket{queue="vision-a",le="+Inf"}'] <= 1
    plain = await asyncio.to_thread(lambda: urlopen(f"{url}/metrics", timeout=10).read().decode())
    assert "vision" not in plain, "names are on pages that need a token"
    assert await asyncio.to_thread(checked, f"{url}/metrics/queues") == []


def checked(url: str) -> list[str]:
    done = promtool("check", "metrics", given=urlopen(url, timeout=10).read())
    return (done.stdout + done.stderr).decode().splitlines()


@pytest.mark.parametrize("name", SERVICES)
def test_promtool_finds_nothing_wrong_with_them(name: str, metrics: Mapping[str, str]) -> None:
    done = promtool("check", "metrics", given=metrics[name].encode())
    complaints = (done.stdout + done.stderr).decode().splitlines()
    assert [line for line in complaints if not line.startswith("hami_")] == [], "HAMi's names are HAMi's"
