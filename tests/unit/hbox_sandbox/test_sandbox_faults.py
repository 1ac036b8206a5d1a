"""Fault plans: which requests a rule takes, how often, and what a real client sees of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from hbox_sandbox.api import ApiServer
from hbox_sandbox.api.errors import ApiError
from hbox_sandbox.api.faults import Faults

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def faults(*rules: dict[str, Any], seed: int = 1) -> Faults:
    made = Faults()
    made.load(msgspec.json.encode({"seed": seed, "rules": list(rules)}))
    return made


def test_a_rule_takes_its_verb_and_resource_alone() -> None:
    plan = faults({"verb": "create", "resource": "pods/binding", "status": 500})
    assert plan.draw("create", "pods") is None
    assert plan.draw("get", "pods/binding") is None
    assert plan.draw("create", "pods/binding") is not None


def test_a_rule_fires_on_each_nth_match_up_to_its_limit() -> None:
    plan = faults({"every": 3, "limit": 2, "status": 500})
    assert [plan.draw("get", "pods") is not None for _ in range(12)] == [False, False, True] * 2 + [False] * 6
    assert plan.fired == [2]


def test_the_same_seed_draws_the_same_faults() -> None:
    drawn = [
        [plan.draw("get", "pods") is not None for _ in range(50)]
        for plan in (faults({"probability": 0.3, "status": 500}) for _ in range(2))
    ]
    assert drawn[0] == drawn[1]
    assert 0 < sum(drawn[0]) < 50


def test_rules_that_fire_together_add_up() -> None:
    drawn = faults({"latency_s": 0.5}, {"status": 429, "retry_after_s": 2}).draw("get", "pods")
    assert drawn is not None
    assert (drawn.latency_s, drawn.status, drawn.retry_after_s) == (0.5, 429, 2)


@pytest.mark.parametrize(
    "text", [b"{", b'{"rules": [{"verbs": "get"}]}', b'{"rules": [{"every": 0}]}', b'{"rules": [{"probability": 2}]}']
)
def test_a_plan_that_makes_no_sense_is_refused(text: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        Faults().load(text)
    assert refused.value.code == 400


class Client:
    def __init__(self, api: ApiServer, session: aiohttp.ClientSession) -> None:
        self.api = api
        self.session = session

    async def plan(self, *rules: dict[str, Any]) -> None:
        async with self.session.put(self.api.url + "/_sandbox/faults", json={"rules": rules}) as response:
            assert response.status == 200

    async def create(self, name: str) -> tuple[int, dict[str, str]]:
        async with self.session.post(self.api.url + CONFIGMAPS, json={"metadata": {"name": name}}) as response:
            return response.status, dict(response.headers)

    async def exists(self, name: str) -> bool:
        async with self.session.get(f"{self.api.url}{CONFIGMAPS}/{name}") as response:
            return response.status == 200


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ApiServer(seed=1) as api, aiohttp.ClientSession() as session:
        yield Client(api, session)


async def test_a_refusal_names_when_to_come_back_and_does_nothing(client: Client) -> None:
    await client.plan({"verb": "create", "status": 429, "retry_after_s": 3, "limit": 1})
    status, headers = await client.create("a")
    assert (status, headers["Retry-After"]) == (429, "3")
    assert not await client.exists("a")
    assert (await client.create("a"))[0] == 201


async def test_an_applied_error_is_an_error_about_something_that_happened(client: Client) -> None:
    await client.plan({"verb": "create", "applied_status": 504})
    assert (await client.create("a"))[0] == 504
    assert await client.exists("a")


@pytest.mark.parametrize(("rule", "applied"), [({"reset": True}, False), ({"applied_reset": True}, True)])
async def test_a_reset_breaks_the_connection_before_or_after_the_write(
    client: Client, rule: dict[str, Any], applied: bool
) -> None:
    await client.plan({"verb": "create", **rule})
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.create("a")
    assert await client.exists("a") is applied


async def test_latency_holds_the_answer_back(client: Client) -> None:
    await client.plan({"verb": "create", "latency_s": 0.2})
    begun = time.monotonic()
    assert (await client.create("a"))[0] == 201
    assert time.monotonic() - begun >= 0.2


@pytest.mark.parametrize("kind", ["http", "stream"])
async def test_a_watch_can_be_gone_in_both_ways(client: Client, kind: str) -> None:
    await client.plan({"verb": "watch", "watch_gone": kind, "limit": 1})
    async with client.session.get(client.api.url + CONFIGMAPS, params={"watch": "1", "resourceVersion": "5"}) as response:
        assert response.status == (410 if kind == "http" else 200)
        body = msgspec.json.decode(await response.read())
    status = body if kind == "http" else body["object"]
    assert (status["code"], status["reason"]) == (410, "Expired")


async def test_a_watch_can_be_ended_early(client: Client) -> None:
    await client.plan({"verb": "watch", "watch_end_s": 0.1})
    async with client.session.get(
        client.api.url + CONFIGMAPS, params={"watch": "1", "allowWatchBookmarks": "true"}
    ) as response:
        assert await response.read() == b""


async def test_the_server_stops_while_watches_are_open() -> None:
    async with aiohttp.ClientSession() as session:
        async with ApiServer() as api:
            response = await session.get(api.url + CONFIGMAPS, params={"watch": "1"})
            assert response.status == 200
        response.close()


def test_a_rule_for_one_client_spares_the_others() -> None:
    plan = faults({"client": "hbox-", "status": 500})
    assert plan.draw("get", "pods", "observer") is None
    assert plan.draw("get", "pods", "hbox-binder") is not None


async def test_severed_watches_break_and_those_of_other_clients_go_on() -> None:
    async with ApiServer() as api, aiohttp.ClientSession(api.url) as http:

        async def watch(agent: str) -> aiohttp.ClientResponse:
            return await http.get(CONFIGMAPS, params={"watch": "1"}, headers={"User-Agent": agent})

        ours, theirs = await watch("observer"), await watch("hbox-binder")
        async with http.post("/_sandbox/sever", params={"client": "hbox-"}) as severed:
            assert severed.status == 204
        with pytest.raises(aiohttp.ClientError):
            await theirs.content.readany()
        seen = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen"}}
        async with http.post(CONFIGMAPS, json=seen) as made:
            assert made.status == 201
        assert b"seen" in await ours.content.readline()
        ours.close()
        theirs.close()
