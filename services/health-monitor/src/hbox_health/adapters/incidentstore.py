"""Incidents, the memory of the judgement, and orders of operators in health-monitor's database, changed in one transaction, before anything is published."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, insert, select

from hbox_common.model import Incident, IncidentState, NodeName
from hbox_common.model.healthorder import HealthOrder
from hbox_common.store import Store

from ..core.judge.memory import Memory, NodeMemory
from . import tables as t

#: Seconds for which a closed incident is kept.
KEPT_S = 30 * 86_400.0
#: Rows of one statement, below the limits of SQLite.
MOST_ROWS = 500

_INCIDENT, _NODE, _SHARED, ORDER = (
    TypeAdapter(Incident),
    TypeAdapter(NodeMemory),
    TypeAdapter(Memory),
    TypeAdapter(HealthOrder),
)


class IncidentStore:
    """All coroutines raise Unavailable while the database is unavailable."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self, *, since: float) -> tuple[Memory, list[Incident]]:
        """All that the judgement remembered, and the incidents that are open or changed after `since`."""
        return await self._store.read(lambda connection: load(connection, since))

    async def save(
        self, memory: Memory, nodes: Collection[str], incidents: Iterable[Incident], orders: Iterable[HealthOrder] = ()
    ) -> None:
        """Store the memory of these nodes ("": of what belongs to none) as it is now; a node that it does not have is deleted."""
        rows = {name: _body(memory, name) for name in nodes}
        changed, ordered = list(incidents), list(orders)
        await self._store.write(lambda connection: _save(connection, rows, changed, ordered))

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
            connection.execute(
                delete(t.incidents).where(t.incidents.c.changed < before, t.incidents.c.state == IncidentState.CLOSED)
            )

        await self._store.write(work)


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
