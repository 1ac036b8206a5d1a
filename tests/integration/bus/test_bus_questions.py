"""Questions and their answers in pages."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import ClaimsAsked, ClaimsPage, Event, JobsAsked, JobsPage
from hbox_common.model import JobId, NodeName, PodFact, PodPhase, PodUid, QueueName

from ...waiting import until
from .bus_world import running


async def answered(bus: Bus) -> None:
    """Return when somebody listens."""

    async def listens() -> bool:
        try:
            await bus.ask(JobsAsked(asker="probe"), JobsPage, timeout_s=1.0)
        except Unavailable as e:
            return "no process is subscribed" not in e.message
        except InvalidRequest:
            pass
        return True

    await until(listens, "somebody listens", timeout_s=5)


async def test_all_pages_come_in_order(bus: Bus) -> None:
    async def answer(asked: JobsAsked) -> AsyncIterator[Event]:
        for i in range(20):
            yield JobsPage(complete=i == 19, pods=() if asked.pods else (fact(i),))

    async with running(bus.serve(JobsAsked, answer)):
        await answered(bus)
        pages = await bus.ask(JobsAsked(asker="me"), JobsPage)
    assert [page.pods[0].name for page in pages] == [f"pod{i}" for i in range(20)]
    assert pages[-1].complete


async def test_items_of_pages_are_dropped_once_the_asker_has_processed_them(bus: Bus) -> None:
    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        for i in range(3):
            yield JobsPage(complete=True, why=str(i), pods=(fact(i),))

    received: list[str] = []

    async def take(number: int, page: JobsPage) -> None:
        received.append(f"{number} {page.pods[0].name}")

    async with running(bus.serve(JobsAsked, answer)):
        await answered(bus)
        pages = await bus.ask(JobsAsked(asker="me"), JobsPage, on_page=take, keep_items=False)
    assert received == ["0 pod0", "1 pod1", "2 pod2"]
    assert [(page.why, page.pods) for page in pages] == [("0", ()), ("1", ()), ("2", ())]


async def test_answer_ends_when_its_asker_has_left(bus: Bus) -> None:
    pages, ended = 0, asyncio.Event()

    async def answer(asked: JobsAsked) -> AsyncIterator[Event]:
        nonlocal pages
        try:
            for _page in range(1000 if asked.asker == "hasty" else 1):
                yield JobsPage(complete=True)
                pages += 1
                await asyncio.sleep(0.02)
        finally:
            ended.set()

    async with running(bus.serve(JobsAsked, answer)):
        await answered(bus)
        ended.clear()
        with pytest.raises(Unavailable):
            await bus.ask(JobsAsked(asker="hasty"), JobsPage, timeout_s=0.5)
        async with asyncio.timeout(5.0):
            await ended.wait()
        assert 2 <= pages < 500
        assert await bus.ask(JobsAsked(asker="me"), JobsPage), "the next one is answered"


async def test_an_answer_of_many_mebibytes_arrives_whole(bus: Bus) -> None:
    facts = tuple(fact(i) for i in range(8000))

    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        for _page in range(20):
            yield JobsPage(complete=True, pods=facts)

    async with running(bus.serve(JobsAsked, answer)):
        await answered(bus)
        pages = await bus.ask(JobsAsked(asker="me", pods=True), JobsPage, timeout_s=60)
    assert sum(len(page.pods) for page in pages) == 160_000


async def test_an_empty_answer_is_no_pages(bus: Bus) -> None:
    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        for _page in range(0):
            yield JobsPage(complete=True)

    async with running(bus.serve(JobsAsked, answer)):
        await answered(bus)
        assert await bus.ask(JobsAsked(asker="me"), JobsPage) == []


async def test_when_nobody_answers_that_is_known_at_once_and_who_should(bus: Bus) -> None:
    began = monotonic()
    with pytest.raises(Unavailable, match="quota-ledger does not answer") as raised:
        await bus.ask(ClaimsAsked(asker="me"), ClaimsPage, timeout_s=10.0)
    assert monotonic() - began < 5.0, "it waited for an answer"
    assert "is quota-ledger running" in raised.value.hint


async def test_an_answer_that_takes_too_long_is_unavailable_in_time(bus: Bus) -> None:
    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        yield JobsPage(complete=True)
        await asyncio.Event().wait()

    async with running(bus.serve(JobsAsked, answer)):
        await answered(bus)
        with pytest.raises(Unavailable, match="job-controller has not answered"):
            await bus.ask(JobsAsked(asker="me"), JobsPage, timeout_s=0.2)


async def test_a_leader_that_hangs_does_not_swallow_its_successors_questions(bus: Bus) -> None:
    async def hangs(_: JobsAsked) -> AsyncIterator[Event]:
        await asyncio.Event().wait()
        yield JobsPage(complete=False)

    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        yield JobsPage(complete=True)

    async with running(bus.serve(JobsAsked, hangs)), running(bus.serve(JobsAsked, answer)):
        await answered(bus)
        for _ in range(5):
            assert [page.complete for page in await bus.ask(JobsAsked(asker="me"), JobsPage, timeout_s=2.0)] == [True]


async def test_the_answerers_errors_are_the_askers(bus: Bus) -> None:
    error: Exception = InvalidRequest("no such job", hint="look again")

    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        yield JobsPage(complete=True)
        raise error

    async with running(bus.serve(JobsAsked, answer)):
        await answered(bus)
        with pytest.raises(InvalidRequest, match=r"no such job \(look again\)"):
            await bus.ask(JobsAsked(asker="me"), JobsPage)
        error = Unavailable("still reading")
        with pytest.raises(Unavailable, match="still reading"):
            await bus.ask(JobsAsked(asker="me"), JobsPage)
        error = ZeroDivisionError("division by zero")
        with pytest.raises(Unavailable, match="failed to answer: ZeroDivisionError"):
            await bus.ask(JobsAsked(asker="me"), JobsPage)


async def test_rubbish_asked_does_not_end_the_answerer(bus: Bus) -> None:
    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        yield JobsPage(complete=True)

    async with running(bus.serve(JobsAsked, answer)):
        await answered(bus)
        reply = await bus._connection.request(JobsAsked.subject(), b"\xc1rubbish")
        assert reply.headers is not None
        assert reply.headers["hbox-error"] == "invalid"
        assert await bus.ask(JobsAsked(asker="me"), JobsPage)


async def test_answering_goes_on_after_the_broker_was_killed(bus: Bus, server: EmbeddedServer) -> None:
    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        yield JobsPage(complete=True)

    async with running(bus.serve(JobsAsked, answer)):
        await answered(bus)
        await server.kill()
        await until(lambda: not bus.connected)
        await server.start()
        assert await bus.ask(JobsAsked(asker="me"), JobsPage, timeout_s=5.0)


async def test_request_is_repeated_within_its_timeout_after_an_outage_cuts_the_answer(bus: Bus, server: EmbeddedServer) -> None:
    begun, whole = asyncio.Event(), asyncio.Event()

    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        yield JobsPage(complete=True)
        begun.set()
        await whole.wait()

    async with running(bus.serve(JobsAsked, answer)):
        await answered_by_subscription(bus)
        asking = asyncio.ensure_future(bus.ask(JobsAsked(asker="me"), JobsPage, timeout_s=30.0))
        hasty = asyncio.ensure_future(bus.ask(JobsAsked(asker="hasty"), JobsPage, timeout_s=1.0))
        await begun.wait()
        await server.kill()
        with pytest.raises(Unavailable, match="lost before the answer was complete; no attempt within 1"):
            await hasty
        whole.set()
        await server.start()
        assert await asking == [JobsPage(complete=True)]


async def answered_by_subscription(bus: Bus) -> None:
    """As `answered`, for answerers that never come to an end."""
    await bus._connection.flush()
    await asyncio.sleep(0.05)


async def test_excess_requests_are_refused_and_repeated_until_their_timeout(bus: Bus) -> None:
    gate = asyncio.Event()

    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        await gate.wait()
        yield JobsPage(complete=True)

    async with running(bus.serve(JobsAsked, answer)):
        await answered_by_subscription(bus)
        asking = [asyncio.ensure_future(bus.ask(JobsAsked(asker=str(i)), JobsPage, timeout_s=30.0)) for i in range(100)]
        said = ""
        while "too many requests at once" not in said:  # until the maximum of waiting requests has arrived
            with pytest.raises(Unavailable) as refused:
                await bus.ask(JobsAsked(asker="hasty"), JobsPage, timeout_s=0.5)
            said = refused.value.message
        assert "no attempt within" in said
        assert not any(one.done() for one in asking)
        gate.set()
        assert await asyncio.gather(*asking) == [[JobsPage(complete=True)]] * 100


def fact(i: int) -> PodFact:
    return PodFact(
        uid=PodUid(f"uid{i}"),
        namespace="default",
        name=f"pod{i}",
        phase=PodPhase.RUNNING,
        node=NodeName("n1"),
        job=JobId(f"job{i}"),
        queue=QueueName("default"),
        priority=0,
        requests={"cpu": 1000},
    )


async def test_a_question_that_dies_with_its_answerer_is_asked_anew_long_before_the_time_is_up(bus: Bus) -> None:
    """The first says nothing at all, as one that was killed; whoever takes its place hears the question again."""
    heard: list[str] = []

    async def silent(_: JobsAsked) -> AsyncIterator[Event]:
        heard.append("silent")
        await asyncio.Event().wait()
        yield JobsPage(complete=True)

    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        heard.append("successor")
        yield JobsPage(complete=True)

    async with asyncio.timeout(20), running(bus.serve(JobsAsked, silent)):
        asking = asyncio.create_task(bus.ask(JobsAsked(asker="me"), JobsPage, timeout_s=60))
        await until(lambda: heard)
        async with running(bus.serve(JobsAsked, answer)):
            assert len(await asking) == 1
    assert heard[0] == "silent"
    assert "successor" in heard
