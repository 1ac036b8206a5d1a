"""A ledger on a real database, SQLite and PostgreSQL, without the bus; and plans for a small cluster of nodes n0, n1 with four cards each."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hbox_common.bus import EmbeddedServer
from hbox_common.errors import Unavailable
from hbox_common.events import (
    BindOutcome,
    Event,
    Outcome,
    OutcomesObserved,
    Placement,
    Plan,
    PlansProposed,
    PodsObserved,
    decode,
    headers,
)
from hbox_common.kube import KubeClient, apply, wait_established
from hbox_common.kube.definitions import QUEUE
from hbox_common.model import (
    Card,
    CardSlice,
    ClaimId,
    Epoch,
    Generation,
    Index,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodFact,
    PodPhase,
    PodUid,
    QueueName,
    SchedulerId,
)
from hbox_common.store import Store
from hbox_ledger.adapters import tables
from hbox_ledger.core.accounts.history import DECAY, Decay
from hbox_ledger.ledger import Ledger, Numbered
from hbox_ledger.relay import Relay
from hbox_ledger.settings import LedgerSettings
from hbox_ledger.views import Views
from hbox_sandbox.api import ApiServer

from ...jobterms import terms
from ...postgres_server import PostgresServer
from .ledger_world import DEADLINE_S


@dataclass
class Recorder:
    """Takes what the relay publishes; refuses nothing, forgets nothing."""

    sent: list[tuple[str, Event]] = field(default_factory=list)

    async def publish_raw(self, type_: type[Event], body: bytes, *keys: str, message_id: str) -> None:
        self.sent.append((message_id, decode(body, headers(type_, source="", message_id=message_id, now=0.0))))


@dataclass
class Running:
    store: Store
    relay: Relay
    ledger: Ledger
    views: Views
    clock: list[float]

    async def propose(self, *plans: Plan) -> None:
        proposal = PlansProposed(scheduler=SchedulerId("s"), epoch=self.ledger.state.epoch, seen=Index(0), plans=plans)
        self.ledger.state.records.only(map(terms, plans))
        await self.ledger.propose([proposal])

    async def open(self, *facts: PodFact) -> None:
        await self.ledger.reconcile(facts, as_of=self.ledger.index)

    async def outcome(self, id: str, pod: str, outcome: BindOutcome) -> None:
        holding = self.ledger.state.live[self.ledger.state.by_pod[PodUid(pod)]]
        said = Outcome(
            decision="d",
            claim=holding.claim.id,
            generation=holding.generation,
            job=holding.claim.job,
            pod_uid=pod,
            outcome=outcome,
        )
        await self.ledger.outcomes([Numbered(id, OutcomesObserved(epoch=Epoch(1), outcomes=(said,)))])

    async def see(self, id: str, *facts: PodFact) -> None:
        await self.ledger.observed([Numbered(id, PodsObserved(pods=facts))])

    def states(self) -> dict[str, str]:
        return {h.claim.pod: h.claim.state.value for h in self.ledger.state.live.values()}


def _nodes() -> tuple[NodeState, ...]:
    room = {"cpu": 64_000, "pods": 100, "nvidia.com/gpu": 16}
    return tuple(
        NodeState(
            NodeName(name),
            name,
            Generation(1),
            ready=True,
            allocatable=room,
            cards=tuple(Card(i, f"{name}-{i}", "A100", 40_960, shares=4) for i in range(4)),
        )
        for name in ("n0", "n1")
    )


@asynccontextmanager
async def started(
    url: str, *, now: float = 1000.0, decay: Decay = DECAY, nodes: Sequence[NodeState] | None = None
) -> AsyncIterator[Running]:
    clock = [now]
    async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
        relay = Relay(store, Recorder())
        ledger = await Ledger.begin(store, relay, clock=lambda: clock[0], decay=decay)
        for node in _nodes() if nodes is None else nodes:
            ledger.node(node)
        yield Running(store, relay, ledger, Views(ledger, store), clock)
        if not ledger.taken_over.is_set():  # what it decided last did not happen
            ledger.state.validate()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Running]:
    """As `started`, after a process that died: PostgreSQL holds the lock of a dead process until it has noticed its death."""
    async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        while True:
            with suppress(Unavailable):
                running = await stack.enter_async_context(started(url))
                break
            await asyncio.sleep(0.01)
        yield running


def plan(id: str, *placements: tuple[str, str, tuple[CardSlice, ...]], job: str = "", min_member: int = 1) -> Plan:
    """Each placement is (pod, node, slices)."""
    return Plan(
        id=PlanId(id), job=JobId(job or id), namespace="ml", name=job or id, queue=QueueName("default"), priority=0,
        min_member=min_member, bound=0,
        requests=tuple({"cpu": 1000, "pods": 1, "nvidia.com/gpu": len(slices)} for _, _, slices in placements),
        placements=tuple(
            Placement(PodUid(pod), pod, "1", NodeName(node), Generation(1), slices, i)
            for i, (pod, node, slices) in enumerate(placements)
        ),
    )  # fmt: skip


def fact(
    pod: str, node: str, phase: PodPhase = PodPhase.RUNNING, *, claim: str = "", slices: tuple[CardSlice, ...] = ()
) -> PodFact:
    return PodFact(
        uid=PodUid(pod), namespace="ml", name=pod, phase=phase, node=NodeName(node), job=JobId(pod), queue=QueueName("default"),
        priority=0, requests={"cpu": 1000, "pods": 1}, cards=len(slices), slices=slices, claim=ClaimId(claim), ours=True,
    )  # fmt: skip


@dataclass(frozen=True)
class Kit:
    """What a test builds its case from."""

    started = staticmethod(started)
    opened = staticmethod(opened)
    plan = staticmethod(plan)
    fact = staticmethod(fact)

    @staticmethod
    def whole(index: int) -> CardSlice:
        return CardSlice(index, 100, 40_960)


@pytest.fixture
def kit() -> Kit:
    return Kit()


async def migrated(url: str) -> None:
    async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
        await store.read(lambda _: None)


@pytest.fixture(scope="session")
def sqlite_of_our_schema(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("schema") / "hbox.db"
    asyncio.run(migrated(f"sqlite:///{path}"))
    return path.read_bytes()


@pytest.fixture(scope="session")
def postgres_of_our_schema(postgres: PostgresServer) -> str:
    asyncio.run(migrated(postgres.empty_database()))
    return postgres.dump()


@pytest.fixture
def database_url(request: pytest.FixtureRequest, empty_database: Callable[[], str]) -> str:
    """The address of a database of each kind that has the newest schema, and nothing in it: to migrate an empty one takes longer than most tests."""
    url = empty_database()
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).write_bytes(request.getfixturevalue("sqlite_of_our_schema"))
        return url
    server: PostgresServer = request.getfixturevalue("postgres")
    made: str = request.getfixturevalue("postgres_of_our_schema")
    url = server.empty_database()  # the dump was perhaps made in it
    with server.connect() as connection:
        connection.execute(made.encode())
    return url


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[str]:
    async with ApiServer() as api:
        path = api.kubeconfig(tmp_path / "kubeconfig")
        async with KubeClient.connect(str(path), user_agent="test") as kube:
            await apply(kube, QUEUE, field_manager="test")
            await wait_established(kube, "queues.scheduling.volcano.sh")
        yield str(path)


@pytest.fixture
def settings(database_url: str, broker: EmbeddedServer, kubeconfig: str) -> LedgerSettings:
    return LedgerSettings(
        nats_url=broker.url,
        kubeconfig=kubeconfig,
        database_url=database_url,
        instance="l1",
        reconcile_s=1.0,
    )
