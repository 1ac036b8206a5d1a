"""The ledger as a process: what dies with it, and what its database may do to it."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from sqlalchemy import Connection

from hbox_common.errors import Bug, Unavailable
from hbox_common.events import Event
from hbox_common.store import Store
from hbox_ledger.adapters import tables
from hbox_ledger.core.accounts import usage
from hbox_ledger.ledger import Ledger
from hbox_ledger.relay import Outgoing, Relay

from .cluster import NODES, QUOTA, Streams

T = TypeVar("T")


@cache
def empty() -> bytes:
    """A database with the newest schema and nothing in it: migrating takes longer than many steps."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"

        async def make() -> None:
            async with Store.open(f"sqlite:///{path}", metadata=tables.metadata, versions=tables.VERSIONS) as store:
                await store.read(lambda connection: None)

        asyncio.run(make())
        return path.read_bytes()


class Noting(Relay):
    """Remembers what this process has told, published or not."""

    def __init__(self, store: Store, bus: Streams) -> None:
        super().__init__(store, bus)
        self.told: list[Event] = []

    def send(self, outgoing: Outgoing) -> None:
        self.told.append(outgoing.event)
        super().send(outgoing)

    async def publish(self, bus: Streams, most: int) -> None:
        for lane in self._lanes.values():
            for _ in range(min(most, lane.qsize())):
                out = lane.get_nowait()
                await bus.publish_raw(type(out.event), out.body, *out.keys, message_id=f"ledger-{out.id}")
                if out.letter is not None:
                    self._sent.append(out.letter)


class Process:
    """One ledger: its own store and relay on the common database."""

    def __init__(self, ledger: Ledger, relay: Noting, store: Store, stack: AsyncExitStack) -> None:
        self.ledger, self.relay, self.store, self.stack = ledger, relay, store, stack


async def started(path: Path, bus: Streams, clock: Callable[[], float], *, by_weight: bool = False) -> Process:
    """As the service starts: it hears first what the streams know."""
    stack = AsyncExitStack()
    opened = Store.open(f"sqlite:///{path}", metadata=tables.metadata, versions=tables.VERSIONS, exclusive=False)
    store = await stack.enter_async_context(opened)
    relay = Noting(store, bus)
    ledger = await Ledger.begin(store, relay, clock=clock, history=bus.heard(), by_weight=by_weight)
    for node in NODES.values():
        ledger.node(node)
    ledger.limit([QUOTA])
    return Process(ledger, relay, store, stack)


@contextmanager
def erring() -> Iterator[None]:
    """Every turn raises an error when the books have changed, before its commit."""
    with patch.object(usage, "meter", side_effect=ZeroDivisionError):
        yield


@contextmanager
def refusing(store: Store) -> Iterator[None]:
    """Every commit breaks a rule of the database, so that nothing of it is written."""
    write = store.write

    async def refuses(fn: Callable[[Connection], T], *, brief: bool = False) -> T:
        raise Bug("a constraint of the database forbids it")

    store.write = refuses  # type: ignore[method-assign]
    try:
        yield
    finally:
        store.write = write  # type: ignore[method-assign]


@contextmanager
def failing(store: Store, *, after: bool) -> Iterator[None]:
    """Every commit fails: before it reaches the disk, or after."""
    write = store.write

    async def fails(fn: Callable[[Connection], T], *, brief: bool = False) -> T:
        if after:
            await write(fn, brief=brief)
        raise Unavailable("the connection broke", outcome_unknown=True)

    store.write = fails  # type: ignore[method-assign]
    try:
        yield
    finally:
        store.write = write  # type: ignore[method-assign]
