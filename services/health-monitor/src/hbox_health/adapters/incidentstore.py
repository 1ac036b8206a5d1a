"""Incidents in health-monitor's database: each change is stored before it is published."""

from collections.abc import Collection, Iterable, Mapping

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, insert, select

from hbox_common.model import Incident, IncidentState, NodeName
from hbox_common.store import Store

from ..core.recoveryactions import Incidents, NodeFacts
from . import tables as t

#: Seconds for which a closed incident is kept.
KEPT_S = 30 * 86_400.0

_INCIDENT = TypeAdapter(Incident)


class IncidentStore:
    """All coroutines raise Unavailable while the database is unavailable."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self, *, since: float) -> tuple[Incidents, list[Incident]]:
        """All that was judged, and the incidents that are open or changed after `since`."""
        return await self._store.read(lambda connection: _load(connection, since))

    async def save(self, changed: Iterable[Incident], facts: Mapping[NodeName, NodeFacts]) -> None:
        changed = list(changed)
        await self._store.write(lambda connection: _save(connection, changed, facts))

    async def forget(self, *, before: float) -> None:
        """Delete incidents that closed before this time."""

        def work(connection: Connection) -> None:
            connection.execute(
                delete(t.incidents).where(t.incidents.c.changed < before, t.incidents.c.state == IncidentState.CLOSED)
            )

        await self._store.write(work)


def _load(connection: Connection, since: float) -> tuple[Incidents, list[Incident]]:
    rows = connection.execute(
        select(t.incidents.c.body).where((t.incidents.c.state != IncidentState.CLOSED) | (t.incidents.c.changed >= since))
    )
    found = [_INCIDENT.validate_json(row.body) for row in rows]
    incidents = Incidents()
    for incident in found:
        if incident.state is not IncidentState.CLOSED:
            incidents.open.setdefault(incident.node, {})[incident.id] = incident
    for row in connection.execute(select(t.node_facts)):
        boots = tuple(row.earlier_boots.split(",")) if row.earlier_boots else ()
        incidents.nodes[NodeName(row.node)] = NodeFacts(row.boot_id, row.seq, boots)
    return incidents, found


def _save(connection: Connection, changed: Collection[Incident], facts: Mapping[NodeName, NodeFacts]) -> None:
    if changed:
        connection.execute(delete(t.incidents).where(t.incidents.c.id.in_([one.id for one in changed])))
        connection.execute(
            insert(t.incidents),
            [
                {
                    "id": one.id,
                    "node": one.node,
                    "state": one.state,
                    "changed": one.changed,
                    "body": _INCIDENT.dump_json(one).decode(),
                }
                for one in changed
            ],
        )
    if facts:
        connection.execute(delete(t.node_facts).where(t.node_facts.c.node.in_(facts)))
        connection.execute(
            insert(t.node_facts),
            [
                {"node": name, "boot_id": one.boot_id, "seq": one.seq, "earlier_boots": ",".join(one.earlier_boots)}
                for name, one in facts.items()
            ],
        )
