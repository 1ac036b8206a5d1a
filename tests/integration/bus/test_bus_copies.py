"""Subjects of other users stay theirs although the broker publishes answers where a client asks for them: nats-server itself copies, receivers refuse."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from pydantic import BaseModel

from hbox_common.brokerkeys import keep, new_account_seed, public_account_key
from hbox_common.bus import Access, Bus, Delivery, EmbeddedServer, Start, metrics
from hbox_common.bus.callout import Callout, Reviewed
from hbox_common.bus.connection import Connection
from hbox_common.bus.errors import NotPermitted
from hbox_common.bus.micro import Endpoint
from hbox_common.bus.users import ADMIN, AGENT, CALLOUT, OPERATOR, agent_of, agent_user, users
from hbox_common.clock import new_id, wall_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import (
    MESSAGE_ID,
    Event,
    HealthPolicyAsked,
    HealthPolicyPage,
    HealthReport,
    HealthVerdict,
    NodeDevicesChanged,
    RemediesDecided,
    Stream,
    encode,
    headers,
)
from hbox_common.model import NodeDevices, NodeName
from hbox_common.model.remedy import Decision, Verb

from ...waiting import until

STATE = Stream.STATE.value
OWN, OTHERS = NodeDevicesChanged.subject("node-1"), NodeDevicesChanged.subject("node-2")


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    return tmp_path / "users"


@pytest.fixture
async def server(tmp_path: Path, seeds: Path) -> AsyncIterator[EmbeddedServer]:
    issuer = new_account_seed()

    async def review(token: str) -> Reviewed:
        return Reviewed(AGENT, token)

    keys = keep(seeds, users())
    async with EmbeddedServer(tmp_path / "nats", keys=keys, issuer=public_account_key(issuer)) as server:
        async with bus_as(server, seeds, ADMIN):
            pass  # it creates the streams
        async with Connection.open(
            server.url, name=CALLOUT, instance="1", access=Access(seed=seeds / f"{CALLOUT}.nk")
        ) as asked:
            task = asyncio.create_task(Callout(issuer, review).run(asked))
            await asked.flush()
            yield server
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def bus_as(server: EmbeddedServer, seeds: Path, user: str) -> AbstractAsyncContextManager[Bus]:
    return Bus.connect(server.url, name=user, instance="1", access=Access(seed=seeds / f"{user}.nk"))


@asynccontextmanager
async def client_of(server: EmbeddedServer, folder: Path, node: str) -> AsyncIterator[Connection]:
    """A program with the token of a node's agent, that sends what it likes."""
    token = folder / f"{node}.token"
    token.write_text(node)
    async with Connection.open(
        server.url, name=AGENT, instance="x", access=Access(token=token), user=agent_user(node)
    ) as client:
        yield client


def devices(node: str, at: float = 1.0) -> NodeDevicesChanged:
    return NodeDevicesChanged(devices=NodeDevices(NodeName(node), at=at))


def forged(event: Event) -> dict[str, str]:
    """Headers of a valid message; without an id, which would make a copy of it a duplicate."""
    writer = event.about.writers[0]
    made = headers(event, source=f"/hbox/{writer}/1", message_id=new_id(), now=wall_s())
    return {name: value for name, value in made.items() if name != MESSAGE_ID}


async def answered(bus: Bus, request: HealthPolicyAsked) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                assert await bus.ask(request, HealthPolicyPage)
                return
            except Unavailable:  # it is not subscribed yet
                await asyncio.sleep(0.05)


async def copy(client: Connection, event: Event, to: str) -> None:
    """Let the broker publish `event` on the subject `to`: it is stored under the client's own subject, and read with `to` as the inbox."""
    await client.request(OWN, encode(event), headers=forged(event), timeout_s=5)
    await client.send(f"$JS.API.DIRECT.GET.{STATE}.{OWN}", reply=to)
    await client.flush()


async def test_a_copy_of_an_agents_message_under_another_nodes_subject_is_refused(
    server: EmbeddedServer, seeds: Path, tmp_path: Path
) -> None:
    came: list[Delivery] = []

    async def take(deliveries: Sequence[Delivery]) -> None:
        came.extend(deliveries)

    async with (
        bus_as(server, seeds, "topology-collector") as reader,
        bus_as(server, seeds, ADMIN) as admin,
        client_of(server, tmp_path, "node-1") as client,
        asyncio.TaskGroup() as tasks,
    ):
        following = tasks.create_task(
            reader.follow([NodeDevicesChanged], take, start=Start.LAST_PER_SUBJECT, writers_only=True)
        )
        await copy(client, devices("node-2"), OTHERS)
        await until(lambda: came, timeout_s=5)  # under the agent's own subject
        await asyncio.sleep(0.5)
        assert [one.subject for one in came] == [OWN]
        assert (await admin.count_by_subject(NodeDevicesChanged))[OTHERS] == 1, "the broker stores the copy"
        left_out = metrics.LEFT_OUT._value.get()
        listed = [one.subject for one in await admin.last(NodeDevicesChanged, [(None,)])]
        assert (listed, metrics.LEFT_OUT._value.get()) == ([OWN], left_out + 1), "a copy does not hide the others"
        with pytest.raises(InvalidRequest, match="copied by the broker"):
            await admin.last_in_stream(NodeDevicesChanged, "node-2")
        with pytest.raises(InvalidRequest, match="copied by the broker"):
            await admin.last_one(NodeDevicesChanged, "node-2")
        async with client_of(server, tmp_path, "node-2") as owner:
            await owner.request(OTHERS, encode(devices("node-2", at=2.0)), headers=forged(devices("node-2")), timeout_s=5)
        await until(lambda: len(came) == 2, timeout_s=5)
        assert (came[1].event, came[1].subject) == (devices("node-2", at=2.0), OTHERS)
        following.cancel()


async def test_decisions_that_an_agent_copies_are_not_read_by_another_nodes_remedy(
    server: EmbeddedServer, seeds: Path, tmp_path: Path
) -> None:
    decided = RemediesDecided(
        node=NodeName("node-2"), boot_id="b", decisions=(Decision("i1", "node", Verb.REBOOT, 1, wall_s() + 600),)
    )
    handled: list[Delivery | None] = []

    async def handle(found: Delivery | None) -> None:
        handled.append(found)

    async with (
        bus_as(server, seeds, ADMIN) as remedy,
        client_of(server, tmp_path, "node-1") as client,
        asyncio.TaskGroup() as tasks,
    ):
        following = tasks.create_task(remedy.follow_last(RemediesDecided, "node-2", handle=handle, every_s=0.2))
        await until(lambda: handled == [None], timeout_s=5)
        await copy(client, decided, decided.subject("node-2"))
        assert (await remedy.count_by_subject(RemediesDecided)) == {decided.subject("node-2"): 1}
        await asyncio.sleep(1)
        assert handled == [None]
        following.cancel()


async def test_an_agent_has_no_consumers_no_streams_and_no_whole_streams(
    server: EmbeddedServer, seeds: Path, tmp_path: Path
) -> None:
    pushed = {"name": "x", "deliver_subject": OTHERS, "ack_policy": "none", "filter_subject": OWN}
    made = {"name": "HBOX_JOBS", "subjects": ["hbox.v1.job.>"], "republish": {"src": ">", "dest": OTHERS}}
    requests: dict[str, object] = {
        f"$JS.API.CONSUMER.CREATE.{STATE}.x": {"stream_name": STATE, "config": pushed},
        f"$JS.API.CONSUMER.CREATE.{STATE}.x.{OWN}": {"stream_name": STATE, "config": pushed},
        f"$JS.API.CONSUMER.DURABLE.CREATE.{STATE}.x": {"stream_name": STATE, "config": pushed},
        "$JS.API.STREAM.CREATE.HBOX_JOBS": made,
        f"$JS.API.DIRECT.GET.{STATE}": {"last_by_subj": OWN},
        f"$JS.API.DIRECT.GET.{STATE}.{OTHERS}": "",
        f"$JS.API.STREAM.INFO.{STATE}": "",
    }
    async with bus_as(server, seeds, "binder") as binder, client_of(server, tmp_path, "node-1") as client:
        for subject, body in requests.items():
            with pytest.raises(NotPermitted):
                await client.request(subject, json.dumps(body).encode(), timeout_s=2)
        assert binder.connected


@pytest.mark.parametrize("user", ["node-agent", "node-agent-node-1"])
def test_an_agents_permissions_are_its_own_subjects(user: str) -> None:
    own = users()[AGENT] if user == AGENT else agent_of("node-1")
    for subject in own.publish:
        read = subject.removeprefix("$JS.API.DIRECT.GET.HBOX_STATE.").removeprefix("$JS.API.DIRECT.GET.HBOX_REPORTS.")
        assert read.startswith(("hbox.v1.node.devices.", "hbox.v1.node.numa.", "hbox.v1.health.report."))
    assert len(own.publish) == 6


async def test_an_agent_reads_its_own_last_values(server: EmbeddedServer, seeds: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("node-1")
    async with Bus.connect(
        server.url, name=AGENT, instance="1", access=Access(token=token), user=agent_user("node-1"), ensure=False
    ) as bus:
        assert await bus.last_one(NodeDevicesChanged, "node-1") is None
        await bus.publish(devices("node-1"), "node-1")
        report = HealthReport(node=NodeName("node-1"), boot_id="b", agent="a", facts=(), seq=7)
        await bus.publish(report, "node-1")
        for type_, event in ((NodeDevicesChanged, devices("node-1")), (HealthReport, report)):
            last = await bus.last_one(type_, "node-1")
            assert last is not None
            assert last.event == event


async def test_a_request_is_not_answered_on_a_subject_of_the_services(server: EmbeddedServer, seeds: Path) -> None:
    """health-monitor may publish verdicts; a client of its endpoints may not."""
    asked = 0

    async def answer(_: HealthPolicyAsked) -> AsyncIterator[Event]:
        nonlocal asked
        asked += 1
        yield HealthPolicyPage(version="1", values=())

    async def answer_json(_: BaseModel) -> BaseModel:
        return BaseModel()

    verdict = HealthVerdict.subject("node-1")
    endpoint = Endpoint("nothing", "Answers nothing.", BaseModel, BaseModel, answer_json)
    async with (
        bus_as(server, seeds, "health-monitor") as monitor,
        bus_as(server, seeds, OPERATOR) as operator,
        asyncio.TaskGroup() as tasks,
    ):
        serving = [
            tasks.create_task(monitor.serve(HealthPolicyAsked, answer)),
            tasks.create_task(monitor.offer([endpoint], version="1", about="tests")),
        ]
        request = HealthPolicyAsked(asker="test")
        await answered(operator, request)
        client = operator._connection
        header = headers(request, source="/hbox/cli/1", message_id="m", now=wall_s())
        for reply in (verdict, "$JS.API.STREAM.INFO.HBOX_STATE", "$JS.ACK.HBOX_STATE.x.1.1.1.1.0"):
            await client.send(request.subject(), encode(request), reply=reply, headers=header)
        await client.send("hbox.v1.api.health-monitor.nothing", b"{}", reply=verdict)
        await client.send("hbox.v1.api.health-monitor.nothing", b"no json", reply=verdict)
        await client.send("$SRV.PING", b"", reply=verdict)
        await client.flush()
        assert await operator.ask(request, HealthPolicyPage)  # after the others
        await asyncio.sleep(0.5)
        assert asked == 2
        assert await operator.last_of_subjects(HealthVerdict, [HealthVerdict.filter()]) == []
        for task in serving:
            task.cancel()


async def test_an_order_that_a_consumer_delivers_is_none(server: EmbeddedServer, seeds: Path) -> None:
    """A consumer delivers to any exact subject that has a subscriber, such as that of requests."""
    asked = 0

    async def answer(_: HealthPolicyAsked) -> AsyncIterator[Event]:
        nonlocal asked
        asked += 1
        yield HealthPolicyPage(version="1", values=())

    request = HealthPolicyAsked(asker="test")
    subject = HealthVerdict.subject("node-1")
    pushed = {"name": "x", "deliver_subject": request.subject(), "ack_policy": "none", "filter_subject": subject}
    async with (
        bus_as(server, seeds, "health-monitor") as monitor,
        bus_as(server, seeds, ADMIN) as admin,
        asyncio.TaskGroup() as tasks,
    ):
        serving = tasks.create_task(monitor.serve(HealthPolicyAsked, answer))
        await answered(admin, request)
        client = admin._connection
        await client.request(subject, encode(request), headers=forged(request), timeout_s=5)
        body = json.dumps({"stream_name": STATE, "config": pushed}).encode()
        made = await client.request(f"$JS.API.CONSUMER.CREATE.{STATE}.x", body, timeout_s=5)
        assert b"error" not in made.data
        await asyncio.sleep(1)
        delivered = json.loads((await client.request(f"$JS.API.CONSUMER.INFO.{STATE}.x", timeout_s=5)).data)["delivered"]
        assert (delivered["consumer_seq"], asked) == (1, 1)
        serving.cancel()
