"""What a web service says of nodes, asked over HTTP. 3 nodes of 8 cards."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web

from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_scheduler.adapters.extenders import Extenders, ask_now
from hbox_scheduler.core.framework.webhooks import Question
from hbox_scheduler.core.simulate.cycles import Report

from ...waiting import until
from .small_world import SmallWorld, bound


class Service:
    """Answers each verb as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.request: web.BaseRequest  #: the last one
        self.answers: dict[str, Callable[[], Awaitable[web.StreamResponse]]] = {}

    def say(self, verb: str, answer: Mapping[str, Any]) -> None:
        async def respond() -> web.StreamResponse:
            return web.json_response(answer)

        self.answers[verb] = respond

    async def handle(self, request: web.Request) -> web.StreamResponse:
        verb = request.match_info["verb"]
        self.request = request
        self.asked.append((verb, await request.json()))
        return await self.answers[verb]()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made, app = Service(), web.Application()
    app.router.add_post("/hbox/{verb}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hbox"
    yield made
    await runner.cleanup()


def policy(url: str, arguments: str = "extender.predicateVerb: filter") -> str:
    return f"""
actions: "allocate"
tiers:
- plugins:
  - name: gang
  - name: extender
    arguments: {{extender.urlPrefix: "{url}", {arguments}}}
"""


async def decide(world: SmallWorld, conf: str, **more: Any) -> Report:
    return await asyncio.to_thread(lambda: world.decide(conf, ask=ask_now, **more))


def world(pods: int = 1) -> SmallWorld:
    made = SmallWorld(3)
    made.gang("job", pods=pods)
    return made


async def test_nodes_that_it_refuses_are_not_used_and_its_words_are_the_reason(service: Service) -> None:
    service.say("filter", {"failedNodes": {"n0": "disk full", "n1": "", "n2": "disk full", "n9": "unknown"}})
    report = await decide(world(), policy(service.url))
    assert not report.bindings
    assert report.pending["d/job-0"].reasons == {"ExtenderRefused: disk full": 2, "ExtenderRefused": 1}
    service.say("filter", {"failedNodes": {"n0": "disk full", "n2": "disk full"}})
    assert bound(await decide(world(), policy(service.url))) == {"job-0": "n1"}


async def test_the_node_that_it_scores_highest_is_taken(service: Service) -> None:
    service.say("score", {"nodeScore": {"n1": 3, "n2": 12.5}})
    report = await decide(world(), policy(service.url, "extender.prioritizeVerb: score"), explain=True)
    assert bound(report) == {"job-0": "n2"}
    assert report.scores["d/job-0"]["extender"] == {"n0": 0.0, "n1": 3.0, "n2": 12.5}


async def test_pods_that_ask_for_the_same_share_one_question_about_all_nodes(service: Service) -> None:
    service.say("filter", {"failedNodes": {}})
    crowd = SmallWorld(3)
    for name in ("a", "b"):
        crowd.gang(name, pods=8)
    crowd.gang("large", cards=8)
    report = await decide(crowd, policy(service.url))
    assert len(report.bindings) == 17
    task = {"namespace": "d", "queue": "q", "role": "", "priority": 0, "nodeSelector": {}, "labels": {}, "annotations": {}}
    assert [question for _, question in service.asked] == [
        {
            "task": {
                **task,
                "requests": {"cpu": 1000, "nvidia.com/gpu": cards},
                "cards": {"count": cards, "cores": 100, "memoryMib": 0, "memoryPercent": 100, "models": []},
            },
            "nodes": ["n0", "n1", "n2"],
        }
        for cards in (1, 8)
    ]


def _text(body: str, status: int = 200) -> Callable[[], Awaitable[web.StreamResponse]]:
    async def respond() -> web.StreamResponse:
        return web.Response(text=body, status=status)

    return respond


async def _late() -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_text("no", 500), "answered 500 Internal Server Error"),
        (_text("no", 302), "answered 302 Found"),
        (_text("{"), "the answer is not JSON"),
        (_text("[]"), "the answer is not a JSON object"),
        (_text("{}"), "the answer has no failedNodes"),
        (_text('{"errorMessage": "the database is away"}'), "the database is away"),
        (_text("[" * 200_000), "the answer is not JSON"),
        (_late, "no answer within 0.05 s"),
    ],
)
async def test_without_an_answer_the_job_waits_and_is_told_why_unless_that_is_to_be_ignored(
    service: Service, answer: Callable[[], Awaitable[web.StreamResponse]], said: str
) -> None:
    service.answers["filter"] = answer
    arguments = "extender.predicateVerb: filter, extender.httpTimeout: 50ms"
    report = await decide(world(3), policy(service.url, arguments))
    assert not report.bindings
    assert report.pending["d/job-0"].message == f"extender {service.url}/filter: {said}"
    assert report.pending["d/job-0"].reasons == {"ExtenderWithoutAnswer": 3}
    assert len(service.asked) == 1
    report = await decide(world(3), policy(service.url, f"{arguments}, extender.ignorable: true"), cycles=2)
    assert len(report.bindings) == 3
    assert report.warnings == [f"plugin extender is passed over: {service.url}/filter: {said}"]


async def test_an_answer_without_end_is_left_at_16_mib(service: Service) -> None:
    """Threat T10: what a service of the user's sends is bounded."""
    sent = 0

    async def endless() -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(service.request)
        with suppress(ConnectionError):
            while sent < 256 << 20:
                await response.write(b" " * (1 << 20))
                sent += 1 << 20
        return response

    service.answers["filter"] = endless
    report = await decide(world(), policy(service.url, "extender.predicateVerb: filter, extender.httpTimeout: 30s"))
    assert report.pending["d/job-0"].message == f"extender {service.url}/filter: the answer is larger than 16 MiB"
    assert sent < 64 << 20, "the rest was not read"


async def test_nobody_is_followed_to_where_a_service_points(service: Service) -> None:
    """Threat T13: a redirect would let the service choose whom scheduler-core talks to, such as the cloud's metadata."""

    async def elsewhere() -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(f"{service.url}/secret")

    service.answers["filter"] = elsewhere
    service.say("secret", {"failedNodes": {}})
    report = await decide(world(), policy(service.url))
    assert report.pending["d/job-0"].message == f"extender {service.url}/filter: answered 307 Temporary Redirect"
    assert [verb for verb, _ in service.asked] == ["filter"]


async def test_a_service_that_is_not_there_is_named(service: Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    report = await decide(world(), policy(url))
    assert report.pending["d/job-0"].message == f"extender {url}/filter: Connection refused"


@pytest.mark.parametrize("score", ['"7"', "true", "NaN", "1e999"])
async def test_a_score_that_is_no_number_is_no_answer(service: Service, score: str) -> None:
    service.answers["score"] = _text(f'{{"nodeScore": {{"n1": {score}}}}}')
    report = await decide(world(), policy(service.url, "extender.prioritizeVerb: score"))
    assert "/score: the score of n1 is " in report.pending["d/job-0"].message


@pytest.mark.parametrize(
    ("url", "arguments", "said"),
    [
        ("localhost:80", "extender.predicateVerb: f", "extender.urlPrefix: 'localhost:80' is no address .*http://"),
        ("http://a", "extender.ignorable: true", "asks nothing .*extender.predicateVerb, extender.prioritizeVerb"),
        (
            "http://a",
            "extender.jobReadyVerb: r",
            "extender.jobReadyVerb: HBox only sends requests about nodes, and none during a cycle",
        ),
        (
            "http://a",
            "extender.allocateFuncVerb: r",
            "extender.allocateFuncVerb: HBox only sends requests about nodes, and none during a cycle",
        ),
        ("http://a", "extender.predicateVerb: f, extender.httpTimeout: 1", "extender.httpTimeout: '1' is not a duration"),
        ("http://a", "extender.predicateverb: f", "no argument .*did you mean extender.predicateVerb"),
    ],
)
def test_a_wrong_argument_is_named(url: str, arguments: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=f"line 6: plugin extender.*{said}"):
        world().decide(policy(url, arguments))


async def test_the_running_service_never_waits_for_an_answer_but_is_told_when_there_is_another(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_scheduler.adapters.extenders.BELIEVED_S", 0.2)
    changes: list[float] = []
    extenders = Extenders(lambda: changes.append(monotonic_s()))
    running = asyncio.ensure_future(extenders.run())
    question = Question(f"{service.url}/filter", "{}", 1.0)
    service.say("filter", {"failedNodes": {}})
    assert extenders.ask(question) is None
    assert extenders.ask(question) is None
    await until(lambda: changes)
    assert extenders.ask(question) == {"failedNodes": {}}
    assert len(service.asked) == 1
    service.answers["filter"] = _text("no", 503)
    await until(lambda: len(changes) > 1)
    assert extenders.ask(question) == {"failedNodes": {}}, "the old answer holds until there is a new one"
    await until(lambda: len(changes) > 2)
    with pytest.raises(Unavailable, match="/filter: answered 503 Service Unavailable"):
        extenders.ask(question)
    running.cancel()


async def test_answers_that_nobody_needs_any_more_are_forgotten(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbox_scheduler.adapters.extenders.BELIEVED_S", 0.01)
    changes: list[None] = []
    extenders = Extenders(lambda: changes.append(None))
    running = asyncio.ensure_future(extenders.run())
    service.say("filter", {"failedNodes": {}})
    question = Question(f"{service.url}/filter", "{}", 1.0)
    assert extenders.ask(question) is None
    await until(lambda: changes)
    await until(lambda: not extenders.known)
    running.cancel()


@pytest.mark.parametrize(("managed", "asked"), [("nvidia.com/gpu", 1), ("example.com/fpga", 0)])
async def test_only_pods_that_ask_for_a_managed_resource_are_asked_about(service: Service, managed: str, asked: int) -> None:
    service.say("filter", {"failedNodes": {"n0": "", "n1": "", "n2": ""}})
    arguments = f"extender.predicateVerb: filter, extender.managedResources: [example.com/nic, {managed}]"
    report = await decide(world(), policy(service.url, arguments))
    assert len(service.asked) == asked
    assert bool(bound(report)) == (not asked)
