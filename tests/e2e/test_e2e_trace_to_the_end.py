"""Traces of jobs from submission to end, over kills of the services: of a job that waited, ran and ended, of one that was evicted, and of its evictor."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from hbox_cli.services import SERVICES
from hbox_common.kube import EVENTS, NODES, PODGROUPS, PODS, KubeClient
from hbox_common.model.annotations import RUN_SECONDS, TRACE_ID, TRACEPARENT

from ..openmetrics import exemplars
from .charged_waits import until_published
from .collector import Collector, Seen, collector
from .platform_world import Up, hbox, until, up
from .traced_jobs import node, pod, traces

pytestmark = pytest.mark.e2e

#: First of the fixed ports of this module's platform: below those that `hbox_common.ports` gives to other platforms.
PORTS_FROM = 9_400
KILLED = ("job-controller", "scheduler-core", "quota-ledger", "binder")


def job(name: str, level: str, *, seconds: int = 0, group: str = "") -> dict[str, Any]:
    """A pod that requests all cards of the only node."""
    body = pod(name, group)
    body["spec"]["priorityClassName"] = level
    body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "8"
    if seconds:
        body["metadata"]["annotations"][RUN_SECONDS] = str(seconds)
    return body


async def create(client: KubeClient, *bodies: dict[str, Any]) -> None:
    for body in bodies:
        resource = {"Node": NODES, "PodGroup": PODGROUPS, "Pod": PODS}[body["kind"]]
        path = resource.path() if resource is NODES else resource.path("default")
        await client.json("POST", path, body=body)


def seen(got: Collector, name: str, *steps: str) -> bool:
    return set(steps) <= {span.name for span in traces(got).get(name, ())}


def kill_and_wait(running: Up) -> None:
    before = running.pids()
    for name in KILLED:
        os.kill(before[name], signal.SIGKILL)
    until(lambda: all(running.pids()[name] != before[name] for name in KILLED), timeout_s=30, what="new processes")
    until(lambda: running.hbox("check").returncode == 0, timeout_s=60, what="the new processes are ready")


@dataclass
class Recorded:
    """Output of the platform. `spans`: by the name of the job."""

    spans: dict[str, list[Seen]]
    why: str  #: of the waiter, as `hbox why` prints it
    events: list[dict[str, Any]]  #: Kubernetes' own
    addresses: dict[str, Any]  #: of platform.json
    metrics: dict[str, str]  #: of binder and quota-ledger, in OpenMetrics
    second: str  #: what a second `hbox up` on the same ports prints


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    state: Path = tmp_path_factory.mktemp("traces") / "state"
    with collector() as got:
        env = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_EXPORTER_OTLP_ENDPOINT": got.url}
        with up(state, "--levels", "--ports-from", str(PORTS_FROM), env=env) as running:
            yield asyncio.run(play(running, got))


async def play(running: Up, got: Collector) -> Recorded:
    group: dict[str, Any] = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "victim"}}
    group["spec"] = {"minMember": 1, "priorityClassName": "low"}
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        await create(client, node("n0"), group, job("victim-0", "low", group="victim"))
        until(lambda: seen(got, "victim", "start"), timeout_s=30, what="the victim runs")
        await create(client, job("waiter", "low", seconds=2))
        until(lambda: seen(got, "waiter", "submit", "wait.NotTriedYet"), timeout_s=30, what="a reason of the waiter")
        why = running.hbox("why", "waiter").stdout
        second = hbox("up", "--state", str(running.state.with_name("second")), "--ports-from", str(PORTS_FROM)).stderr
        item = running.json("why", "--history", "waiter")["items"][0]
        await until_published(running, item["id"], ended="NotTriedYet")
        kill_and_wait(running)
        evictor = job("evictor", "high", seconds=2)
        root = traces(got)["waiter"][0]
        evictor["metadata"]["annotations"][TRACEPARENT] = f"00-{root.trace}-{root.id}-01"
        await create(client, evictor)
        until(lambda: seen(got, "evictor", "job"), timeout_s=60, what="the evictor's end")
        until(lambda: seen(got, "waiter", "job"), timeout_s=60, what="the waiter's end")
        until(lambda: seen(got, "victim", "run"), timeout_s=30, what="the end of the victim's run")
        events = (await client.json("GET", EVENTS.path("default")))["items"]
    addresses = json.loads((running.state / "platform.json").read_text())
    pages = {"binder": "metrics", "quota-ledger": "metrics/queues"}
    metrics = {name: openmetrics(f"{addresses['health'][name]}/{page}") for name, page in pages.items()}
    return Recorded(traces(got), why, events, addresses, metrics, second)


def openmetrics(url: str) -> str:
    """Asked twice: a series begins with 0 in its first text, and the text is kept for some seconds."""
    request = Request(url, headers={"Accept": "application/openmetrics-text"})

    def read() -> str:
        with urlopen(request, timeout=10) as answer:
            text: str = answer.read().decode()
        return text if "trace_id" in text else ""

    return str(until(read, timeout_s=20, what="exemplars"))


@pytest.fixture(scope="module")
def spans_by_job(recorded: Recorded) -> dict[str, list[Seen]]:
    return recorded.spans


def one(spans: list[Seen], name: str) -> Seen:
    [found] = [span for span in spans if span.name == name]
    return found


def test_a_job_that_waited_ran_and_ended_has_one_whole_trace(spans_by_job: dict[str, list[Seen]]) -> None:
    spans = spans_by_job["waiter"]
    ids = {span.id for span in spans}
    assert [span.name for span in spans if span.parent not in ids] == ["submit"]
    once = ["submit", "wait.NotTriedYet", "wait.CardsInUse", "observe", "start", "run", "job"]
    assert [sum(span.name == name for span in spans) for name in once] == [1] * len(once)
    assert {"announce", "place", "commit", "bind"} <= {span.name for span in spans}
    whole, run = one(spans, "job"), one(spans, "run")
    assert (whole.attributes["result"], run.attributes["result"]) == ("succeeded", "succeeded")
    assert whole.end == run.end
    assert run.end - run.start >= 1.5  # seconds that it ran, less the time that the news takes


def test_the_waits_of_a_job_cover_all_of_its_waiting_also_over_the_kill(spans_by_job: dict[str, list[Seen]]) -> None:
    spans = spans_by_job["waiter"]
    waits = sorted((span for span in spans if span.name.startswith("wait.")), key=lambda span: span.start)
    assert [before.end == after.start for before, after in pairwise(waits)] == [True] * (len(waits) - 1)
    assert abs(waits[-1].end - one(spans, "start").start) < 1.0


def test_evictor_and_victim_link_to_each_other(spans_by_job: dict[str, list[Seen]]) -> None:
    evicted, making = one(spans_by_job["victim"], "evicted"), one(spans_by_job["evictor"], "make-room")
    assert evicted.links == ((making.trace, making.id),)
    assert making.links == ((evicted.trace, evicted.id),)
    assert evicted.trace != making.trace
    assert evicted.attributes["for_job"] == one(spans_by_job["evictor"], "submit").attributes["job"]


def test_a_tenant_that_names_another_jobs_trace_gets_a_link_and_a_trace_of_its_own(spans_by_job: dict[str, list[Seen]]) -> None:
    root, others = one(spans_by_job["evictor"], "submit"), one(spans_by_job["waiter"], "submit")
    assert root.links == ((others.trace, others.id),)
    assert root.trace != others.trace
    jobs = {span.attributes["job"] for span in spans_by_job["waiter"] if "job" in span.attributes}
    assert len(jobs) == 1


def test_the_run_of_an_evicted_job_ends_with_its_eviction(spans_by_job: dict[str, list[Seen]]) -> None:
    spans = spans_by_job["victim"]
    assert one(spans, "run").attributes["result"] == "evicted"
    assert [span.service for span in spans if span.name == "evict"] == ["binder"]
    assert not [span for span in spans if span.name == "job"], "the PodGroup is there and may get new pods"


def test_why_and_events_name_the_trace(recorded: Recorded) -> None:
    assert f"  TRACE     {recorded.spans['waiter'][0].trace}\n" in recorded.why
    named = {(one["involvedObject"]["name"], one["metadata"].get("annotations", {}).get(TRACE_ID)) for one in recorded.events}
    of = {name: spans[0].trace for name, spans in recorded.spans.items()}
    assert named == {("waiter", of["waiter"]), ("evictor", of["evictor"]), ("victim", of["victim"]), ("victim-0", of["victim"])}


def test_histograms_have_traces_of_jobs_as_exemplars(recorded: Recorded) -> None:
    traced = {spans[0].trace for spans in recorded.spans.values()}
    for name, family in (("binder", "hbox_binder_bind_seconds"), ("quota-ledger", "hbox_queue_submit_to_bound_seconds")):
        found = set(exemplars(recorded.metrics[name], family).values())
        assert found, name
        assert found <= traced, name


def test_fixed_ports_are_in_the_documented_order(recorded: Recorded) -> None:
    found = recorded.addresses
    assert f"http://127.0.0.1:{PORTS_FROM}" in Path(found["kubeconfig"]).read_text()
    assert (found["nats_url"], found["console"]) == (
        f"nats://127.0.0.1:{PORTS_FROM + 1}",
        f"http://127.0.0.1:{PORTS_FROM + 2}",
    )
    assert found["health"] == {name: f"http://127.0.0.1:{PORTS_FROM + 5 + number}" for number, name in enumerate(SERVICES)}


def test_a_second_platform_names_the_taken_port_and_its_use(recorded: Recorded) -> None:
    assert f"port {PORTS_FROM} of 127.0.0.1, for the API server, cannot be used: Address already in use" in recorded.second
