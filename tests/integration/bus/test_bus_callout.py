"""The broker's authorization callout, by nats-server itself: an agent with a token publishes about its own node alone."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from hbox_common.brokerkeys import keep, new_account_seed, public_account_key
from hbox_common.bus import Access, Bus, EmbeddedServer, connection
from hbox_common.bus.callout import AT_ONCE, AUDIENCE, NODE_EXTRA, Callout, Reviewed, reviewed
from hbox_common.bus.connection import Connection
from hbox_common.bus.errors import NotPermitted
from hbox_common.bus.users import ADMIN, AGENT, CALLOUT, REMEDY, agent_of, agent_user, remedy_user, users
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import REGISTRY, HealthReport, NodeDevicesChanged, RemediesDecided, RemedyObserved, Stream, token_of
from hbox_common.model import NodeDevices, NodeName
from hbox_common.model.remedy import Decision, Outcome, Verb

from ...waiting import until

#: Pods by token, as an API server reviews them.
PODS = {
    "token-1": Reviewed(AGENT, "node-1"),
    "token-2": Reviewed(AGENT, "node-2"),
    "remedy-1": Reviewed(REMEDY, "node-1"),
}


#: Tokens whose next review fails.
unavailable: set[str] = set()
#: A token whose review has no end.
HANGING = "hanging"


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    return tmp_path / "users"


@pytest.fixture
def issuer() -> str:
    return new_account_seed()


@pytest.fixture
async def server(tmp_path: Path, seeds: Path, issuer: str) -> AsyncIterator[EmbeddedServer]:
    keys = keep(seeds, users())
    async with EmbeddedServer(tmp_path / "nats", keys=keys, issuer=public_account_key(issuer)) as server:
        async with Bus.connect(server.url, name=ADMIN, instance="1", access=Access(seed=seeds / f"{ADMIN}.nk")):
            pass  # it creates the streams
        yield server


async def review(token: str) -> Reviewed:
    if token in unavailable:
        unavailable.remove(token)
        raise Unavailable("the API server does not answer")
    if token == HANGING:
        await asyncio.Event().wait()
    if token not in PODS:
        raise InvalidRequest("the API server does not accept its token")
    return PODS[token]


@asynccontextmanager
async def answering(server: EmbeddedServer, seeds: Path, issuer: str) -> AsyncIterator[None]:
    access = Access(seed=seeds / f"{CALLOUT}.nk")
    async with Connection.open(server.url, name=CALLOUT, instance="1", access=access) as connected:
        task = asyncio.create_task(Callout(issuer, review).run(connected))
        await connected.flush()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def agent(server: EmbeddedServer, folder: Path, node: str, token: str) -> AsyncIterator[Bus]:
    file = folder / f"{node}.token"
    file.write_text(token)
    async with Bus.connect(
        server.url, name=AGENT, instance=node, access=Access(token=file), user=agent_user(node), ensure=False
    ) as bus:
        yield bus


def devices(node: str) -> NodeDevicesChanged:
    return NodeDevicesChanged(devices=NodeDevices(NodeName(node), at=1.0))


async def test_an_agent_with_a_token_publishes_about_its_own_node_only(
    server: EmbeddedServer, seeds: Path, issuer: str, tmp_path: Path
) -> None:
    async with answering(server, seeds, issuer), agent(server, tmp_path, "node-1", "token-1") as bus:
        await bus.publish(devices("node-1"), "node-1")
        last = await bus.last_one(NodeDevicesChanged, "node-1", timeout_s=5)
        assert last is not None
        assert (last.event, last.source) == (devices("node-1"), f"/hbox/{AGENT}/node-1")
        for node in ("node-2", "node-1.example"):
            for foreign in (devices(node), HealthReport(node=NodeName(node), boot_id="b", agent="a", facts=())):
                with pytest.raises(NotPermitted):
                    await bus.publish(foreign, node, timeout_s=2)


async def test_node_remedy_with_a_token_publishes_results_of_its_own_node_only(
    server: EmbeddedServer, seeds: Path, issuer: str, tmp_path: Path
) -> None:
    decision = Decision("i1", "node", Verb.REBOOT, 1, 2e9)

    def observed(node: str) -> RemedyObserved:
        return RemedyObserved(node=NodeName(node), boot_id="b", decision=decision, outcome=Outcome.DONE)

    decided = RemediesDecided(node=NodeName("node-1"), boot_id="b", decisions=(decision,))
    token = tmp_path / "token"
    token.write_text("remedy-1")
    async with (
        answering(server, seeds, issuer),
        Bus.connect(
            server.url, name=REMEDY, instance="1", access=Access(token=token), user=remedy_user("node-1"), ensure=False
        ) as bus,
    ):
        await bus.publish(observed("node-1"), "node-1")
        for foreign, node in ((observed("node-2"), "node-2"), (decided, "node-1"), (devices("node-1"), "node-1")):
            with pytest.raises(NotPermitted):
                await bus.publish(foreign, node, timeout_s=2)


async def test_an_agent_decides_and_reports_no_remedy(server: EmbeddedServer, seeds: Path, issuer: str, tmp_path: Path) -> None:
    decision = Decision("i1", "node", Verb.REBOOT, 1, 2e9)
    node = NodeName("node-1")
    async with answering(server, seeds, issuer), agent(server, tmp_path, "node-1", "token-1") as bus:
        for foreign in (
            RemediesDecided(node=node, boot_id="b", decisions=(decision,)),
            RemedyObserved(node=node, boot_id="b", decision=decision, outcome=Outcome.DONE),
        ):
            with pytest.raises(NotPermitted):
                await bus.publish(foreign, "node-1", timeout_s=2)


async def test_the_key_of_all_agents_admits_none_where_tokens_do(
    server: EmbeddedServer, seeds: Path, issuer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REFUSED_S", 0.0)
    async with answering(server, seeds, issuer):
        with pytest.raises(InvalidRequest, match="refuses us"):
            async with Bus.connect(server.url, name=AGENT, instance="1", access=Access(seed=seeds / f"{AGENT}.nk")):
                pass


async def test_an_agent_reads_no_answers_to_others(server: EmbeddedServer, seeds: Path, issuer: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("token-1")
    async with answering(server, seeds, issuer):
        # The inbox of another node's agent: the broker denies the subscription, so that no answer arrives.
        access = Access(token=file)
        async with Connection.open(server.url, name=AGENT, instance="1", access=access, user=agent_user("node-2")) as other:
            own = NodeDevicesChanged.subject("node-1")
            with pytest.raises(Unavailable):
                await other.request(f"$JS.API.DIRECT.GET.{Stream.STATE}.{own}", timeout_s=1)


@pytest.mark.parametrize("token", ["", "another", "token 1"])
async def test_a_client_without_a_valid_token_is_not_admitted(
    server: EmbeddedServer, seeds: Path, issuer: str, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REFUSED_S", 0.0)
    async with answering(server, seeds, issuer):
        with pytest.raises(InvalidRequest, match="refuses us"):
            async with asyncio.timeout(20), agent(server, tmp_path, "node-1", token):
                pass


async def test_an_agent_is_admitted_while_another_host_keeps_the_reviews_busy(
    server: EmbeddedServer, seeds: Path, issuer: str, tmp_path: Path
) -> None:
    tried = 0
    connect = b"CONNECT " + json.dumps({"auth_token": HANGING, "verbose": False}).encode() + b"\r\nPING\r\n"

    async def flood() -> None:
        nonlocal tried
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0))
            try:
                writer.write(connect)
                tried += 1
                await reader.read()
            except OSError:
                pass  # the broker closes the connection
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    async with answering(server, seeds, issuer):
        flooding = [asyncio.create_task(flood()) for _ in range(4 * AT_ONCE)]
        try:
            await until(lambda: tried >= 4 * AT_ONCE, timeout_s=20)
            async with asyncio.timeout(1.5), agent(server, tmp_path, "node-1", "token-1") as bus:
                await bus.publish(devices("node-1"), "node-1")
        finally:
            for one in flooding:
                one.cancel()
            await asyncio.gather(*flooding, return_exceptions=True)


async def test_agents_that_reconnect_together_are_admitted_at_the_first_try(
    server: EmbeddedServer, seeds: Path, issuer: str
) -> None:
    connect = b"CONNECT " + json.dumps({"auth_token": "token-1", "verbose": False}).encode() + b"\r\nPING\r\n"

    async def answered(place: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(f"127.0.1.{place + 1}", 0))
        try:
            await reader.readline()  # INFO
            writer.write(connect)
            return await reader.readline()
        finally:
            writer.close()
            await writer.wait_closed()

    async with answering(server, seeds, issuer):
        found = await asyncio.gather(*(answered(place) for place in range(3 * AT_ONCE)))
    assert set(found) == {b"PONG\r\n"}


async def test_services_with_keys_need_no_callout_and_agents_wait_for_it(
    server: EmbeddedServer, seeds: Path, issuer: str, tmp_path: Path
) -> None:
    async with Bus.connect(server.url, name="binder", instance="1", access=Access(seed=seeds / "binder.nk")):
        published = asyncio.create_task(publish_when_admitted(server, tmp_path))
        await asyncio.sleep(3)  # longer than the server waits for the callout
        assert not published.done()
        async with answering(server, seeds, issuer):
            await asyncio.wait_for(published, 30)


async def test_an_agent_waits_while_the_api_server_is_away_or_another_callout_admits_it(
    server: EmbeddedServer, seeds: Path, issuer: str, tmp_path: Path
) -> None:
    async with answering(server, seeds, issuer):
        unavailable.add("token-1")
        await asyncio.wait_for(publish_when_admitted(server, tmp_path), 30)
        assert not unavailable
        async with answering(server, seeds, issuer):
            unavailable.add("token-1")
            await asyncio.wait_for(publish_when_admitted(server, tmp_path), 1.5)


async def publish_when_admitted(server: EmbeddedServer, folder: Path) -> None:
    async with agent(server, folder, "node-1", "token-1") as bus:
        await bus.publish(devices("node-1"), "node-1")


async def test_an_admitted_agent_reads_its_token_anew_when_its_permissions_end(
    server: EmbeddedServer, seeds: Path, issuer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_common.bus.callout.LASTS_S", 2)
    async with answering(server, seeds, issuer), agent(server, tmp_path, "node-1", "token-1") as bus:
        await until(lambda: bus.connections >= 2, timeout_s=20)
        await bus.publish(devices("node-1"), "node-1")


def test_an_agents_permissions_name_no_other_node() -> None:
    every, own = users()[AGENT], agent_of("node.1")
    written = {t.filter() for t in REGISTRY.values() if t.about.stream is not None and AGENT in t.about.writers}
    assert written <= set(every.publish)
    assert not written & set(own.publish)
    assert {subject for subject in own.publish if subject.startswith("hbox.v1.") and token_of("node.1") in subject} == {
        subject.replace("*", token_of("node.1")) for subject in written
    }


USER = {"username": "system:serviceaccount:hbox-system:node-agent", "extra": {NODE_EXTRA: ["node-1"]}}
ACCEPTED = {
    "authenticated": True,
    "audiences": [AUDIENCE],
    "user": USER,
}


ACCOUNTS = {"hbox-system:node-agent": AGENT, "hbox-system:node-remedy": REMEDY}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"authenticated": False}, "does not accept"),
        ({"authenticated": "yes"}, "does not accept"),
        ({"audiences": ["https://kubernetes.default.svc"]}, "does not accept"),
        ({"audiences": None}, "does not accept"),
        (
            {"user": {**USER, "username": "system:serviceaccount:ml:node-agent"}},
            "not of the service account",
        ),
        ({"user": {**USER, "username": "hbox-system:node-agent"}}, "not of the service account"),
        ({"user": {**USER, "extra": {}}}, "names no node"),
        ({"user": {**USER, "extra": {NODE_EXTRA: ["node-1", "node-2"]}}}, "names no node"),
    ],
)
def test_a_review_admits_only_pods_of_the_programs_on_one_node(changes: dict[str, object], message: str) -> None:
    assert reviewed(ACCEPTED, accounts=ACCOUNTS) == Reviewed(AGENT, "node-1")
    with pytest.raises(InvalidRequest, match=message):
        reviewed({**ACCEPTED, **changes}, accounts=ACCOUNTS)


def test_the_service_account_decides_which_program_a_pod_is() -> None:
    remedy = {**ACCEPTED, "user": {**USER, "username": "system:serviceaccount:hbox-system:node-remedy"}}
    assert reviewed(remedy, accounts=ACCOUNTS) == Reviewed(REMEDY, "node-1")
    with pytest.raises(InvalidRequest, match="not of the service account hbox-system:node-agent"):
        reviewed(remedy, accounts={"hbox-system:node-agent": AGENT})
