"""Incidents, the memory of the judgement, orders of operators, and notices to owners in health-monitor's database, changed in one transaction, before anything
is published.

Of several processes one writes: `begin` starts the next epoch, and each transaction of an earlier epoch fails. A leader that was paused for longer than its
lease changes nothing when it continues.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, insert, select, update

from hbox_common.errors import Conflict
from hbox_common.events import DeviceErrorSeen
from hbox_common.model import Incident, IncidentState, NodeName
from hbox_common.model.healthorder import HealthOrder
from hbox_common.store import Store

from ..core.judge.memory import Memory, NodeMemory
from . import tables as t

#: Seconds for which a closed incident is kept.
KEPT_S = 30 * 86_400.0
#: Rows of one statement, below the limits of SQLite.
MOST_ROWS = 500

_INCIDENT, _NODE, _SHARED, ORDER, _NOTICE = (
    TypeAdapter(Incident),
    TypeAdapter(NodeMemory),
    TypeAdapter(Memory),
    TypeAdapter(HealthOrder),
    TypeAdapter(DeviceErrorSeen),
)


class IncidentStore:
    """All coroutines raise Unavailable while the database is unavailable. Those that write raise Conflict if another process has begun an epoch since
    `begin`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._epoch = 0
        self._begun = False

    async def begin(self) -> None:
        """Become the process that writes."""
        self._epoch, self._begun = await self._store.write(_begin), True

    async def confirm(self) -> None:
        """Raises Conflict if another process writes."""
        if await self._store.read(lambda c: c.execute(select(t.writer.c.epoch)).scalar()) != self._epoch:
            raise _taken_over()

    async def load(self, *, since: float) -> tuple[Memory, list[Incident]]:
        """All that the judgement remembered, and the incidents that are open or changed after `since`."""
        return await self._store.read(lambda connection: load(connection, since))

    async def save(  # noqa: PLR0917  all that one transaction changes
        self,
        memory: Memory,
        nodes: Collection[str],
        incidents: Iterable[Incident],
        orders: Iterable[HealthOrder] = (),
        notices: Iterable[DeviceErrorSeen] = (),
        published: Iterable[str] = (),
    ) -> None:
        """Store the memory of these nodes ("": of what belongs to none) as it is now; a node that it does not have is deleted. `published`: ids of notices."""
        rows = {name: _body(memory, name) for name in nodes}
        changed, ordered, new, old = list(incidents), list(orders), list(notices), list(published)

        def work(connection: Connection) -> None:
            self._fence(connection)
            _save(connection, rows, changed, ordered)
            _save_notices(connection, new, old)

        await self._store.write(work)

    async def notices(self) -> list[DeviceErrorSeen]:
        """Notices that may not have been published."""
        query = select(t.notices.c.body).order_by(t.notices.c.id)
        return await self._store.read(lambda c: [_NOTICE.validate_json(row.body) for row in c.execute(query)])

    async def order(self, id_: str) -> HealthOrder | None:
        """The order of this id, if it is stored."""
        found = await self._store.read(lambda c: c.execute(select(t.orders.c.body).where(t.orders.c.id == id_)).scalar())
        return None if found is None else ORDER.validate_json(found)

    async def orders(self, *, since: float, node: NodeName | str = "") -> list[HealthOrder]:
        """Orders since a time, oldest first; of one node if it is named."""
        query = select(t.orders.c.body).where(t.orders.c.at >= since).order_by(t.orders.c.at, t.orders.c.id)
        if node:
            query = query.where(t.orders.c.node == node)
        return await self._store.read(lambda c: [ORDER.validate_json(row.body) for row in c.execute(query)])

    async def forget(self, *, before: float) -> None:
        """Delete incidents that closed before this time."""

        def work(connection: Connection) -> None:
            self._fence(connection)
            connection.execute(
                delete(t.incidents).where(t.incidents.c.changed < before, t.incidents.c.state == IncidentState.CLOSED)
            )

        await self._store.write(work)

    def _fence(self, connection: Connection) -> None:
        """Locks the row until the end of the transaction, so that no other process begins an epoch meanwhile."""
        assert self._begun
        own = update(t.writer).where(t.writer.c.epoch == self._epoch).values(epoch=self._epoch)
        if connection.execute(own).rowcount != 1:
            raise _taken_over()


def _taken_over() -> Conflict:
    return Conflict("another health-monitor has taken over the database", hint="it starts anew, as a standby")


def _begin(connection: Connection) -> int:
    current = connection.execute(select(t.writer.c.epoch).with_for_update()).scalar()
    epoch = (current or 0) + 1
    statement = insert(t.writer).values(id=1, epoch=epoch) if current is None else update(t.writer).values(epoch=epoch)
    connection.execute(statement)
    return epoch


def _save_notices(connection: Connection, new: list[DeviceErrorSeen], published: list[str]) -> None:
    for one in (*published, *(notice.own_id for notice in new)):
        connection.execute(delete(t.notices).where(t.notices.c.id == one))
    if new:
        connection.execute(insert(t.notices), [{"id": one.own_id, "body": one.model_dump_json()} for one in new])


def _body(memory: Memory, name: str) -> str | None:
    if not name:
        return _SHARED.dump_json(replace(memory, nodes={})).decode()
    node = memory.nodes.get(name)
    return None if node is None else _NODE.dump_json(node).decode()


def load(connection: Connection, since: float) -> tuple[Memory, list[Incident]]:
    found = connection.execute(
        select(t.incidents.c.body).where((t.incidents.c.state != IncidentState.CLOSED) | (t.incidents.c.changed >= since))
    )
    incidents = [_INCIDENT.validate_json(row.body) for row in found]
    bodies = {row.node: row.body for row in connection.execute(select(t.memories))}
    shared = bodies.pop("", None)
    memory = Memory() if shared is None else _SHARED.validate_json(shared)
    memory.nodes = {name: _NODE.validate_json(body) for name, body in bodies.items()}
    return memory, incidents


def _save(
    connection: Connection, nodes: Mapping[str, str | None], incidents: list[Incident], orders: list[HealthOrder]
) -> None:
    if orders:
        connection.execute(delete(t.orders).where(t.orders.c.id.in_([one.id for one in orders])))
        connection.execute(
            insert(t.orders),
            [{"id": one.id, "at": one.at, "node": one.node, "body": ORDER.dump_json(one).decode()} for one in orders],
        )
    rows = [
        {"id": one.id, "node": one.node, "state": one.state, "changed": one.changed, "body": _INCIDENT.dump_json(one).decode()}
        for one in incidents
    ]
    for start in range(0, len(rows), MOST_ROWS):
        part = rows[start : start + MOST_ROWS]
        connection.execute(delete(t.incidents).where(t.incidents.c.id.in_([row["id"] for row in part])))
        connection.execute(insert(t.incidents), part)
    names = list(nodes)
    for start in range(0, len(names), MOST_ROWS):
        some = names[start : start + MOST_ROWS]
        connection.execute(delete(t.memories).where(t.memories.c.node.in_(some)))
        bodies = [{"node": name, "body": body} for name in some if (body := nodes[name]) is not None]
        if bodies:
            connection.execute(insert(t.memories), bodies)
