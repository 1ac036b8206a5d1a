"""Elections against a lease kept as the API server keeps it: every write under its resourceVersion."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from hbox_common.clock import monotonic_s
from hbox_common.errors import Conflict, InvalidRequest
from hbox_common.kube import LEASES, KubeClient, Lease, release_for

from ...waiting import until

ONE = LEASES.path("hbox", "ledger")


class LeaseBook:
    """One lease with compare-and-swap. `deaf`: writes are done but answered with 504; `down`: nothing is done; `slow_s`: answers come so late; `strange`: so
    many times a proxy on the way answers; `hangs`: so many writes are never answered."""

    def __init__(self, api: Any) -> None:
        self.record: dict[str, Any] | None = None
        self.version = 0
        self.deaf = False
        self.down = False
        self.strange = self.hangs = 0
        self.closing: asyncio.Event = api.closing
        self.lacking: tuple[str, ...] = ()  #: the methods that its user has no right to
        self.slow_s = 0.0
        self.asked_at = 0.0  #: monotonic, of the last write
        self.grants: list[tuple[int, str]] = []
        for method, path in (("GET", ONE), ("PUT", ONE), ("POST", LEASES.path("hbox"))):
            api.script[method, path].append(self.answer)

    async def answer(self, request: web.Request) -> web.Response:
        if self.down:
            return self.status(503, "ServiceUnavailable")
        if self.strange:
            self.strange -= 1
            return web.Response(status=404, text="404 page not found\n")
        if request.method in self.lacking:
            said = 'leases "ledger" is forbidden: User "ledger" cannot do that'
            return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden", "message": said}, status=403)
        if request.method == "GET":
            return web.json_response(self.record) if self.record else self.status(404, "NotFound")
        if self.hangs:
            self.hangs -= 1
            await self.closing.wait()
        body = json.loads(await request.read())
        self.asked_at = monotonic_s()
        await asyncio.sleep(self.slow_s)
        if request.method == "POST":
            if self.record is not None:
                return self.status(409, "AlreadyExists")
        elif self.record is None:
            return self.status(404, "NotFound")
        elif body["metadata"]["resourceVersion"] != self.record["metadata"]["resourceVersion"]:
            return self.status(409, "Conflict")
        self.write(body)
        return self.status(504, "Timeout") if self.deaf else web.json_response(self.record, status=200)

    def write(self, body: dict[str, Any]) -> None:
        self.version += 1
        body["metadata"] |= {"uid": "lu", "resourceVersion": str(self.version)}
        spec = body.get("spec", {})
        grant = (spec.get("leaseTransitions", 0), spec.get("holderIdentity", ""))
        if not self.grants or self.grants[-1] != grant:
            self.grants.append(grant)
        self.record = body

    @staticmethod
    def status(code: int, reason: str) -> web.Response:
        return web.json_response({"kind": "Status", "code": code, "reason": reason, "message": reason}, status=code)


@pytest.fixture
def book(api: Any) -> LeaseBook:
    return LeaseBook(api)


def lease(client: KubeClient, identity: str) -> Lease:
    return Lease(client, "hbox", "ledger", identity, duration_s=1)


async def test_it_is_created_renewed_and_released(client: KubeClient, book: LeaseBook) -> None:
    async with lease(client, "a").hold() as term:
        assert term.held
        assert term.token == 1
        assert book.record is not None
        assert book.record["spec"]["renewTime"].endswith("Z")
        await until(lambda: book.version >= 3)
        assert term.held
    assert book.record["spec"]["holderIdentity"] == ""
    assert book.record["spec"]["leaseTransitions"] == 1


async def test_a_successor_takes_a_released_lease_at_once_under_a_higher_token(client: KubeClient, book: LeaseBook) -> None:
    async with lease(client, "a").hold() as first:
        pass
    async with asyncio.timeout(0.5), lease(client, "b").hold() as second:
        assert second.token == first.token + 1


async def test_who_stands_by_notices_a_release_soon_however_long_the_lease_lasts(client: KubeClient, book: LeaseBook) -> None:
    """An upgrade hands over once or twice for each service, one behind the other, and nobody acts meanwhile."""

    async def stand_by() -> float:
        async with Lease(client, "hbox", "ledger", "b", duration_s=60).hold():
            return monotonic_s()

    async with Lease(client, "hbox", "ledger", "a", duration_s=60).hold():
        waiting = asyncio.create_task(stand_by())
        await asyncio.sleep(0.2)
    released = monotonic_s()
    async with asyncio.timeout(2.0):
        assert await waiting - released < 2.0


async def test_a_lease_whose_holder_died_is_taken_after_its_duration_and_not_before(
    client: KubeClient, book: LeaseBook
) -> None:
    book.write(
        {"metadata": {"name": "ledger"}, "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 1, "leaseTransitions": 6}}
    )
    began = asyncio.get_running_loop().time()
    async with lease(client, "b").hold() as term:
        assert asyncio.get_running_loop().time() - began >= 1.0
        assert term.token == 7


async def test_a_proxy_that_knows_no_way_takes_no_lease_away(client: KubeClient, book: LeaseBook) -> None:
    """As one written in Go says it while it is given other ways: of every service at once."""
    async with Lease(client, "hbox", "ledger", "a", duration_s=5).hold() as term:
        book.strange = 2
        await until(lambda: book.strange == 0)
        written = book.version
        await until(lambda: book.version > written or term.lost.is_set())
        assert term.held


async def test_whoever_saw_the_holder_die_releases_for_it_and_for_nobody_else(client: KubeClient, book: LeaseBook) -> None:
    book.write({"metadata": {"name": "ledger"}})  # as the chart makes them
    assert not await release_for(client, "hbox", "ledger", "dead")
    book.write(
        {"metadata": {"name": "ledger"}, "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 60, "leaseTransitions": 6}}
    )
    assert not await release_for(client, "hbox", "ledger", "another")
    assert await release_for(client, "hbox", "ledger", "dead")
    async with asyncio.timeout(5), lease(client, "b").hold() as term:
        assert term.token == 7


async def test_a_renewal_under_way_at_the_holders_death_keeps_no_lease(
    client: KubeClient, book: LeaseBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {"metadata": {"name": "ledger"}, "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 60}}
    book.write(held)
    ask, asked = client.json, list[str]()

    async def renewed_in_between(method: str, path: str, **more: Any) -> Any:
        asked.append(method)
        if asked == ["GET", "PUT"]:
            book.write(held)
        return await ask(method, path, **more)

    monkeypatch.setattr(client, "json", renewed_in_between)
    assert await release_for(client, "hbox", "ledger", "dead")
    assert asked == ["GET", "PUT", "GET", "PUT"]


async def test_of_many_candidates_one_holds_it_at_a_time(client: KubeClient, book: LeaseBook) -> None:
    holding, tokens = 0, []

    async def candidate(identity: str) -> None:
        nonlocal holding
        async with lease(client, identity).hold() as term:
            assert holding == 0
            holding += 1
            tokens.append(term.token)
            await asyncio.sleep(0)
            holding -= 1

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        for n in range(6):
            tasks.create_task(candidate(f"c{n}"))
    assert tokens == [1, 2, 3, 4, 5, 6]


async def test_a_holder_that_cannot_renew_stops_before_another_may_begin(client: KubeClient, book: LeaseBook) -> None:
    async with lease(client, "a").hold() as term:
        began = asyncio.get_running_loop().time()
        book.down = True
        await asyncio.wait_for(term.lost.wait(), 5)
        assert asyncio.get_running_loop().time() - began < 1.0
        assert not term.held
        book.down = False
        async with lease(client, "b").hold() as successor:
            assert successor.token == 2
    assert book.record is not None
    assert book.grants == [(1, "a"), (2, "b"), (2, "")]  # the loser released nothing of its successor's


async def test_a_holder_believes_in_its_lease_from_its_question_on_and_not_from_the_answer(
    client: KubeClient, book: LeaseBook
) -> None:
    book.slow_s = 0.1
    async with lease(client, "a").hold() as term:
        granted = term.deadline
        assert granted <= book.asked_at + 2 / 3 + 0.05
        await until(lambda: term.deadline > granted)
        assert term.deadline <= book.asked_at + 2 / 3 + 0.05
        book.slow_s = 0.0


async def test_one_renewal_that_is_never_answered_loses_no_lease(client: KubeClient, book: LeaseBook) -> None:
    """As where a load balancer forgot the connection: there is time for another one."""
    async with Lease(client, "hbox", "ledger", "a", duration_s=6).hold() as term:
        book.hangs = 1
        await until(lambda: book.hangs == 0)
        written = book.version
        await until(lambda: book.version > written or term.lost.is_set())
        assert term.held


async def test_a_taken_lease_is_lost_at_the_next_renewal(client: KubeClient, book: LeaseBook) -> None:
    async with lease(client, "a").hold() as term:
        book.write(
            {"metadata": {"name": "ledger"}, "spec": {"holderIdentity": "b", "leaseDurationSeconds": 1, "leaseTransitions": 2}}
        )
        await asyncio.wait_for(term.lost.wait(), 5)
    assert book.grants[-1] == (2, "b")


async def test_a_deleted_lease_is_lost(client: KubeClient, book: LeaseBook) -> None:
    async with lease(client, "a").hold() as term:
        book.record = None
        await asyncio.wait_for(term.lost.wait(), 5)


async def test_renewals_done_but_not_heard_of_do_not_lose_the_lease(client: KubeClient, book: LeaseBook) -> None:
    async with lease(client, "a").hold() as term:
        deadline, version = term.deadline, book.version
        book.deaf = True
        await until(lambda: book.version > version)
        book.deaf = False
        await until(lambda: term.deadline > deadline)
        assert term.held
    assert {token for token, _ in book.grants} == {1}


async def test_a_grant_done_but_not_heard_of_is_taken_again_under_a_new_token(client: KubeClient, book: LeaseBook) -> None:
    book.deaf = True
    tokens = []

    async def hold() -> None:
        async with lease(client, "a").hold() as term:
            tokens.append(term.token)

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(hold())
        await until(lambda: book.version == 1)
        book.deaf = False
    (token,) = tokens
    assert token > 1
    assert book.grants == [(1, "a"), (token, "a"), (token, "")]


async def test_an_api_that_refuses_is_an_error_and_not_a_wait(api: Any, client: KubeClient) -> None:
    api.refuse("GET", ONE, 403, "Forbidden", "leases is forbidden")
    with pytest.raises(InvalidRequest, match="leases is forbidden"):
        async with lease(client, "a").hold():
            pass


@pytest.mark.parametrize("lacking", [("GET",), ("POST", "PUT")])
async def test_a_missing_right_is_reported_once_and_retried(
    client: KubeClient, book: LeaseBook, lacking: tuple[str, ...]
) -> None:
    book.lacking = lacking
    reports: list[str] = []
    mine = Lease(client, "hbox", "ledger", "a", duration_s=1, report=reports.append)

    async def hold() -> None:
        async with mine.hold():
            assert book.grants == [(1, "a")]

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(hold())
        await until(lambda: reports)
        await asyncio.sleep(0.3)
        assert len(reports) == 1
        assert "cannot do that" in reports[0]
        book.lacking = ()


async def test_a_standby_reports_that_its_right_is_back(client: KubeClient, book: LeaseBook) -> None:
    reports: list[str] = []
    async with lease(client, "a").hold(), asyncio.TaskGroup() as tasks:
        book.lacking = ("GET",)
        standby = tasks.create_task(_hold(Lease(client, "hbox", "ledger", "b", duration_s=1, report=reports.append)))
        await until(lambda: reports)
        book.lacking = ()
        await until(lambda: reports[1:] == [""])
        standby.cancel()


async def _hold(one: Lease) -> None:
    async with one.hold():
        pass


async def test_what_the_body_raises_comes_out_as_it_is_and_the_lease_is_released(client: KubeClient, book: LeaseBook) -> None:
    with pytest.raises(Conflict, match="mine"):
        async with lease(client, "a").hold():
            raise Conflict("mine")
    assert book.grants[-1] == (1, "")


async def test_a_cancelled_holder_releases(client: KubeClient, book: LeaseBook) -> None:
    held = asyncio.Event()

    async def hold() -> None:
        async with lease(client, "a").hold():
            held.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(hold())
        await held.wait()
        task.cancel()
    assert book.grants[-1] == (1, "")


async def test_a_lease_too_short_to_keep_is_refused(client: KubeClient) -> None:
    with pytest.raises(InvalidRequest, match="too short"):
        Lease(client, "hbox", "ledger", "a", duration_s=0.2)
