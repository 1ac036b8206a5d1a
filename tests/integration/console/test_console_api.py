"""The console's HTTP API with real HTTP, a real broker and the emulated API's reviews."""

import asyncio
import json

import pytest

from hbox_common.clock import monotonic_s
from hbox_common.events import JobsPending, JobsWaiting, JobVerdict
from hbox_common.model.shards import ONE_SHARD
from hbox_console.api import JobDocument, JobList, NodeDocument, NodeList, Problem, QueueDocument, QueueList, WhoAmI

from ...console_objects import a_claim, a_job, a_node, a_pod
from ...waiting import until
from .conftest import NODES, PODGROUPS, PODS, World, queues


@pytest.fixture
async def two_tenants(world: World) -> World:
    """Anna sees namespace ns-a and queue mine; ns-b and theirs are of others."""
    mine, theirs = a_job("ns-a", "alpha", queue="mine"), a_job("ns-b", "sekrit", queue="theirs")
    world.jobs = [mine, theirs]
    world.pods = [a_pod(theirs)]
    world.claims = [a_claim(theirs, node="n1")]
    world.reasons = {"alpha": "all cards are held by ns-b/sekrit of queue theirs"}
    await world.node(a_node("n1"))
    await world.queue("dept")
    await world.queue("mine", parent="dept", used=0)
    await world.queue("theirs", parent="dept", used=2)
    await world.allow("anna", "ns-a", rule=PODS)
    await world.allow("anna", rule=queues("mine", verb="use"))
    return world


async def test_jobs_are_those_of_visible_namespaces(two_tenants: World) -> None:
    async with two_tenants.running() as world:
        status, found, _ = await world.ask("/api/v1/jobs")
        assert (status, [item["name"] for item in found["items"]]) == (200, ["ns-a/alpha"])
        assert found["items"][0]["reason"] == "all cards are held by (another job) of queue (another queue)"
        JobList.model_validate(found)
        JobDocument.model_validate((await world.ask("/api/v1/jobs/ns-a/alpha"))[1])
        _, found, _ = await world.ask("/api/v1/jobs", user="root:system:masters")
        assert [item["name"] for item in found["items"]] == ["ns-a/alpha", "ns-b/sekrit"]
        assert found["items"][0]["reason"] == "all cards are held by ns-b/sekrit of queue theirs"


async def test_a_right_to_podgroups_shows_jobs_too(two_tenants: World) -> None:
    await two_tenants.allow("bert", "ns-b", rule=PODGROUPS)
    async with two_tenants.running() as world:
        _, found, _ = await world.ask("/api/v1/jobs?namespace=ns-b", user="bert")
        assert [item["name"] for item in found["items"]] == ["ns-b/sekrit"]


@pytest.mark.parametrize(
    ("there", "absent"),
    [("/jobs/ns-b/sekrit", "/jobs/ns-none/x"), ("/queues/theirs", "/queues/none"), ("/nodes/n1", "/nodes/none")],
)
async def test_a_refusal_is_the_same_whether_or_not_the_object_exists(two_tenants: World, there: str, absent: str) -> None:
    async with two_tenants.running() as world:
        answers = [await world.ask(f"/api/v1{path}") for path in (there, absent)]
        for (status, body, headers), path in zip(answers, (there, absent), strict=True):
            Problem.model_validate(body)
            assert (status, body["code"]) == (403, "not-allowed"), path
            assert headers["Content-Type"] == "application/problem+json"
        texts = [
            json.dumps(body).replace(path.split("/")[2], "X")
            for (_, body, _), path in zip(answers, (there, absent), strict=True)
        ]
        assert texts[0] == texts[1]


async def test_queues_are_those_of_visible_names_and_one_sum(two_tenants: World) -> None:
    async with two_tenants.running() as world:
        _, found, _ = await world.ask("/api/v1/queues")
        QueueList.model_validate(found)
        assert [(item["name"], item["parent"]) for item in found["items"]] == [("mine", "others")]
        assert found["metadata"]["others"] == {"queues": 3, "used": {"nvidia.com/gpu": 2}, "pendingJobs": 1, "pendingCards": 2}
        QueueDocument.model_validate((await world.ask("/api/v1/queues/mine"))[1])
        assert "theirs" not in json.dumps(found)


async def test_nodes_need_the_right_to_list_them(two_tenants: World) -> None:
    await two_tenants.allow("ops", rule=NODES)
    async with two_tenants.running() as world:
        assert (await world.ask("/api/v1/nodes"))[0] == 403
        _, found, _ = await world.ask("/api/v1/nodes", user="ops")
        NodeList.model_validate(found)
        assert [(item["name"], item["cardsByQueue"]) for item in found["items"]] == [("n1", {"others": 2})]
        NodeDocument.model_validate((await world.ask("/api/v1/nodes/n1", user="ops"))[1])


async def test_whoami_names_the_client(two_tenants: World) -> None:
    async with two_tenants.running() as world:
        _, found, _ = await world.ask("/api/v1/whoami", user="anna:dev,ops")
        WhoAmI.model_validate(found)
        assert (found["user"], found["groups"]) == ("anna", ["dev", "ops", "system:authenticated"])
        assert found["rights"] == {"jobs": False, "queues": False, "nodes": False}


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer wrong", "Bearer sandbox:", "Basic YTpi", "Bearer ä", f"Bearer {'x' * 17_000}"]
)
async def test_an_unknown_client_sees_nothing(two_tenants: World, header: str) -> None:
    async with two_tenants.running() as world:
        status, body, headers = await world.ask("/api/v1/jobs", user="", headers={"Authorization": header} if header else {})
        assert (status, body["code"]) == (401, "unauthenticated")
        assert headers["WWW-Authenticate"] == 'Bearer realm="hbox"'
        assert (await world.ask("/healthz", user=""))[:2] == (200, "ok\n")
        assert (await world.ask("/readyz", user=""))[0] == 200
        assert (await world.ask("/openapi.json", user=""))[1]["openapi"] == "3.1.0"


async def test_a_revoked_right_ends(two_tenants: World) -> None:
    name = await two_tenants.allow("carl", "ns-b", rule=PODS)
    async with two_tenants.running(review_cache_s=1.0) as world:
        assert (await world.ask("/api/v1/jobs/ns-b/sekrit", user="carl"))[0] == 200
        await world.forbid(name, "ns-b")

        until_s = monotonic_s() + 5
        while (await world.ask("/api/v1/jobs/ns-b/sekrit", user="carl"))[0] != 403:
            assert monotonic_s() < until_s
            await asyncio.sleep(0.1)


async def test_nothing_is_shown_while_the_api_server_is_away(two_tenants: World) -> None:
    async with two_tenants.running(review_cache_s=1.0) as world:
        assert (await world.ask("/api/v1/jobs"))[0] == 200
        rule = {"verb": "create", "resource": "subjectaccessreviews", "status": 503}
        async with world.session.put(f"{world.api.url}/_sandbox/faults", json={"rules": [rule]}) as done:
            assert done.status == 200
        status, body, headers = await world.ask("/api/v1/jobs", user="dora")
        assert (status, body["code"], headers["Retry-After"]) == (503, "unavailable", "1")
        assert "items" not in body


async def test_pages_continue_and_tags_save_what_did_not_change(world: World) -> None:
    world.jobs = [a_job("ns-a", f"job-{i}", at=100.0 + i) for i in range(5)]
    await world.allow("anna", "ns-a", rule=PODS)
    async with world.running():
        seen: list[str] = []
        cursor = ""
        while True:
            _, page, headers = await world.ask(f"/api/v1/jobs?limit=2&continue={cursor}")
            seen += [item["name"] for item in page["items"]]
            if not (cursor := page["metadata"]["continue"]):
                break
        assert seen == [f"ns-a/job-{i}" for i in range(5)]
        status, body, _ = await world.ask(f"/api/v1/jobs?limit=2&continue={cursor}", headers={"If-None-Match": 'W/"x"'})
        assert status == 200
        _, _, headers = await world.ask("/api/v1/jobs")
        status, body, _ = await world.ask("/api/v1/jobs", headers={"If-None-Match": headers["ETag"]})
        assert (status, body) == (304, "")
        await world.bus.publish(JobsWaiting(verdicts=(JobVerdict(job=world.jobs[0].id, message="no cards"),)), "0")
        assert world.console is not None
        model = world.console.model
        await until(lambda: model.job_item(world.jobs[0].id, now=0.0)["reason"] == "no cards")
        assert (await world.ask("/api/v1/jobs", headers={"If-None-Match": headers["ETag"]}))[0] == 200


async def test_a_list_of_jobs_is_not_used_while_some_are_missing(two_tenants: World) -> None:
    async with two_tenants.running() as world:
        listed, world.jobs, world.computed = world.jobs, [], False
        before = world.lists
        await world.bus.publish(JobsPending(jobs=(), anew=True), ONE_SHARD)
        await until(lambda: world.lists >= before + 2)
        assert len((await world.ask("/api/v1/jobs"))[1]["items"]) == 1
        world.jobs, world.computed = [*listed, a_job("ns-a", "beta")], True

        async def names() -> bool:
            return [item["name"] for item in (await world.ask("/api/v1/jobs"))[1]["items"]] == ["ns-a/alpha", "ns-a/beta"]

        await until(names)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "state=ASLEEP", "color=red", "namespace=a&namespace=b", "continue=x", "limit=501"]
)
async def test_a_wrong_parameter_is_refused(two_tenants: World, query: str) -> None:
    async with two_tenants.running() as world:
        status, body, _ = await world.ask(f"/api/v1/jobs?{query}", user="root:system:masters")
        assert (status, body["code"]) == (400, "invalid-request")


async def test_requests_with_bodies_and_unknown_paths_are_refused(two_tenants: World) -> None:
    async with two_tenants.running() as world:
        async with world.session.get(f"{world.url}/api/v1/jobs", data=b"x" * 100) as answer:
            assert answer.status == 413
        assert (await world.ask("/api/v1/none"))[0] == 404
        async with world.session.delete(f"{world.url}/api/v1/jobs") as answer:
            assert answer.status == 405
