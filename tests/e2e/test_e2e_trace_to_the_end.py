"""Traces of jobs from submission to end, over kills of the services: of a job that waited, ran and ended, of one that was evicted, and of its evictor."""

import asyncio
import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODGROUPS, PODS, KubeClient
from hbox_common.model.annotations import RUN_SECONDS

from .collector import Collector, Seen, collector
from .platform_world import Up, until, up
from .traced_jobs import node, pod, traces

pytestmark = pytest.mark.e2e

KILLED = ("job-controller", "scheduler-core", "quota-ledger", "binder")


def job(name: str, level: str, *, seconds: int = 0, group: str = "") -> dict[str, Any]:
    """A pod that requests all cards of the only node."""
    body = pod(name, group)
    body["spec"]["priorityClassName"] = level
    body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "8"
    if seconds:
        body["metadata"]["annotations"][RUN_SECONDS] = str(seconds)
    return body


async def create(running: Up, *bodies: dict[str, Any]) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
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


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Seen]]]:
    """Spans by the name of the job; `id of NAME`: the id that `hbox why` prints."""
    state: Path = tmp_path_factory.mktemp("traces") / "state"
    env = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
    with collector() as got, up(state, "--levels", env=env | {"OTEL_EXPORTER_OTLP_ENDPOINT": got.url}) as running:
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "victim"}}
        group["spec"] = {"minMember": 1, "priorityClassName": "low"}
        asyncio.run(create(running, node("n0"), group, job("victim-0", "low", group="victim")))
        until(lambda: seen(got, "victim", "start"), timeout_s=30, what="the victim runs")
        asyncio.run(create(running, job("waiter", "low", seconds=2)))
        until(lambda: seen(got, "waiter", "submit", "wait.NotTriedYet"), timeout_s=30, what="a reason of the waiter")
        shown = running.hbox("why", "waiter")
        assert traces(got)["waiter"][0].trace in shown.stdout, shown.stdout + shown.stderr
        kill_and_wait(running)
        asyncio.run(create(running, job("evictor", "high", seconds=2)))
        until(lambda: seen(got, "evictor", "job"), timeout_s=60, what="the evictor's end")
        until(lambda: seen(got, "waiter", "job"), timeout_s=60, what="the waiter's end")
        until(lambda: seen(got, "victim", "run"), timeout_s=30, what="the end of the victim's run")
        yield traces(got)


def one(spans: list[Seen], name: str) -> Seen:
    [found] = [span for span in spans if span.name == name]
    return found


def test_a_job_that_waited_ran_and_ended_has_one_whole_trace(told: dict[str, list[Seen]]) -> None:
    spans = told["waiter"]
    ids = {span.id for span in spans}
    assert [span.name for span in spans if span.parent not in ids] == ["submit"]
    once = ["submit", "wait.NotTriedYet", "wait.CardsInUse", "observe", "start", "run", "job"]
    assert [sum(span.name == name for span in spans) for name in once] == [1] * len(once)
    assert {"announce", "place", "commit", "bind"} <= {span.name for span in spans}
    whole, run = one(spans, "job"), one(spans, "run")
    assert (whole.attributes["result"], run.attributes["result"]) == ("succeeded", "succeeded")
    assert whole.end == run.end
    assert run.end - run.start >= 1.5  # seconds that it ran, less the time that the news takes


def test_the_waits_of_a_job_cover_all_of_its_waiting_also_over_the_kill(told: dict[str, list[Seen]]) -> None:
    spans = told["waiter"]
    waits = sorted((span for span in spans if span.name.startswith("wait.")), key=lambda span: span.start)
    assert [before.end == after.start for before, after in pairwise(waits)] == [True] * (len(waits) - 1)
    assert abs(waits[-1].end - one(spans, "start").start) < 1.0


def test_evictor_and_victim_link_to_each_other(told: dict[str, list[Seen]]) -> None:
    evicted, making = one(told["victim"], "evicted"), one(told["evictor"], "make-room")
    assert evicted.links == ((making.trace, making.id),)
    assert making.links == ((evicted.trace, evicted.id),)
    assert evicted.trace != making.trace
    assert evicted.attributes["for_job"] == one(told["evictor"], "submit").attributes["job"]


def test_the_run_of_an_evicted_job_ends_with_its_eviction(told: dict[str, list[Seen]]) -> None:
    spans = told["victim"]
    assert one(spans, "run").attributes["result"] == "evicted"
    assert [span.service for span in spans if span.name == "evict"] == ["binder"]
    assert not [span for span in spans if span.name == "job"], "the PodGroup is there and may get new pods"
