"""What rows of UFM's REST interface say, whatever version wrote them.

Keys come and go between versions, numbers are strings in some, and a port that is down has "N/A", "None", "" or nothing where its peer stands. Ports say all
that is needed; systems add names of switches, which chips share a chassis, and machines that are gone. Rows that cannot be read are left out, and told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model.fabric import HostLink, Snapshot, Switch, Trunk

from .names import MAX_LINKS, MAX_NAME, MAX_SWITCHES, NoGuid, guid_of, host_and_hca, host_of, is_aggregation_node, speed_of

MAX_PROBLEMS = 20
_NOTHING = frozenset({"", "n/a", "none", "null", "unknown"})
_UP = frozenset({"link up", "linkup", "active", "up", "5"})
#: Collections of /app/versioning of which the graph is made.
VERSIONS = ("servers_version", "switches_version", "ports_version", "links_version")


class EventKind(Enum):
    DOWN = "down"  #: of a link, a node or a switch
    FAILOVER = "failover"  #: of UFM or the subnet manager: data may be partial meanwhile


_EVENTS = {
    **dict.fromkeys((329, 331, 907, 909), EventKind.DOWN),
    **dict.fromkeys((512, 514, 602), EventKind.FAILOVER),
}


@dataclass(frozen=True, slots=True)
class UfmEvent:
    number: int
    kind: EventKind


def event_of(row: Mapping[str, Any]) -> UfmEvent | None:
    """None for all that say nothing of the fabric's shape. Since 6.17 the id of an event is `event_type`, before it was `type`."""
    number = integer(row.get("id"))
    which = integer(row.get("event_type"))
    kind = _EVENTS.get(integer(row.get("type")) if which < 0 else which)
    return None if kind is None or number < 0 else UfmEvent(number, kind)


def versions_of(document: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Version counters of the graph's inputs; None if the document contains none of them."""
    found = tuple(integer(document.get(name)) for name in VERSIONS)
    return found if max(found) >= 0 else None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row without GUID or number."""

    what: str
    name: str


@dataclass(frozen=True, slots=True)
class SystemRow:
    """What counts of a row of /resources/systems: a switch, or a machine that is gone, or neither."""

    switch: Switch | None = None
    missing: str = ""


@dataclass(frozen=True, slots=True)
class PortRow:
    """What counts of a row of /resources/ports."""

    guid: str
    number: int
    of_switch: bool  #: its own row says so
    system: str
    card: HostLink | None  #: as the port of a card; None: of a switch, or an aggregation node
    seen: HostLink | None  #: as the port of a switch: what is at the other end, seen as a card; None: nothing
    peer_aggregates: bool  #: an aggregation node is at the other end


def system_row(row: Mapping[str, Any]) -> SystemRow | Unreadable:
    guid = _guid(row, "guid", "name")
    kind = _text(row, "type").lower()
    if not guid:
        return Unreadable("system", str(row.get("name"))[:60])
    if kind in ("switch", "router", "gateway") or (not kind and _text(row, "model").lower() not in ("", "computer")):
        name, model = _text(row, "system_name") or guid, _text(row, "model")
        return SystemRow(Switch(guid, name, model, _guid(row, "system_guid") or guid))
    missing = _text(row, "state").lower() == "missing"
    return SystemRow(missing=host_of(_text(row, "system_name"))) if missing else SystemRow()


def port_row(row: Mapping[str, Any]) -> PortRow | Unreadable:
    guid = _guid(row, "guid") or _named_port(row.get("name"))[0]
    number = integer(row.get("number"))
    if not guid or number < 0:
        return Unreadable("port", str(row.get("name"))[:60])
    peer, peer_port = _peer(row)
    up = _is_up(row) and bool(peer)
    width, speed = _speed(row) if up else (0, "")
    of_switch = "switch" in _text(row, "description").lower()
    seen, aggregates = None, False
    if up and peer != guid:
        description = _text(row, "peer_node_description")
        host, hca = host_and_hca(description)
        seen, aggregates = HostLink(peer, peer_port, host, hca, guid, number, speed, width), is_aggregation_node(description)
    card = None if of_switch else _card(row, guid, number, (peer, peer_port, speed, width) if up else None)
    return PortRow(guid, number, of_switch, _text(row, "system_name"), card, seen, aggregates)


def _card(row: Mapping[str, Any], guid: str, number: int, end: tuple[str, int, str, int] | None) -> HostLink | None:
    """`end`: switch and port at the other one, speed and width, where it is up. None = of an aggregation node."""
    description = _text(row, "node_description")
    if is_aggregation_node(description) or is_aggregation_node(_text(row, "system_name")):
        return None
    host, hca = host_and_hca(description)
    if not host and (name := host_and_hca(_text(row, "system_name"))[0]) and not description:
        host, hca = name, _text(row, "dname").partition("/")[0]
    if end is None:
        return HostLink(guid, number, host, hca, "", 0, "", 0, False)
    return HostLink(guid, number, host, hca, *end, True)


class UfmReading:
    """Rows in, a snapshot out."""

    def __init__(self) -> None:
        self._switches: dict[str, Switch] = {}
        self._missing: set[str] = set()
        self._hosts: dict[tuple[str, int], HostLink] = {}
        self._backup: dict[tuple[str, int], HostLink] = {}  #: as their switches see them
        self._trunks: dict[tuple[str, int, str, int], Trunk] = {}
        self._aggregation: set[str] = set()
        self._problems: list[str] = []
        self.rows = 0

    def system(self, row: SystemRow | Unreadable) -> None:
        """Of /resources/systems: all of them before the first port."""
        if isinstance(row, Unreadable):
            self._problem(row)
        elif row.switch is not None:
            self._switch(row.switch)
        elif row.missing:
            self._missing.add(row.missing)

    def port(self, row: PortRow | Unreadable) -> None:
        """Of /resources/ports. Raises InvalidRequest at more rows than any fabric has."""
        self.rows += 1
        if self.rows > MAX_LINKS:
            raise InvalidRequest(f"more than {MAX_LINKS} ports")
        if isinstance(row, Unreadable):
            self._problem(row)
        elif row.of_switch or row.guid in self._switches:
            self._switch_port(row)
        elif row.card is None:
            self._aggregation.add(row.guid)
        else:
            self._hosts[row.guid, row.number] = row.card

    def snapshot(self) -> Snapshot:
        for end, link in self._backup.items():
            self._hosts.setdefault(end, link)
        for link in self._hosts.values():
            if link.switch and link.switch not in self._switches:
                self._switches[link.switch] = Switch(link.switch, link.switch)
        return Snapshot(
            self._switches,
            tuple(link for link in self._hosts.values() if not link.host or link.host not in self._missing),
            tuple(trunk for trunk in self._trunks.values() if trunk.a in self._switches and trunk.b in self._switches),
            aggregation_nodes=len(self._aggregation),
            problems=tuple(self._problems),
        )

    def _switch(self, switch: Switch) -> None:
        if len(self._switches) >= MAX_SWITCHES:
            raise InvalidRequest(f"more than {MAX_SWITCHES} switches")
        self._switches.setdefault(switch.guid, switch)

    def _switch_port(self, row: PortRow) -> None:
        if row.guid not in self._switches:
            self._switch(Switch(row.guid, row.system or row.guid))
        seen = row.seen
        if seen is None:
            return
        if row.peer_aggregates:
            self._aggregation.add(seen.card)
            return
        # A switch is described as `name:port` here, a card as `host mlx5_0`: which of the two it is, its own rows say.
        a, b = (seen.switch, seen.switch_port), (seen.card, seen.port)
        ends = (*a, *b) if a[0] < b[0] else (*b, *a)
        if seen.card in self._switches or not seen.hca:
            self._trunks.setdefault(ends, Trunk(*ends, seen.speed, seen.width))
        else:
            self._backup[b] = seen

    def _problem(self, row: Unreadable) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(f"a {row.what} without GUID or number: {row.name!r}")


def _text(row: Mapping[str, Any], key: str) -> str:
    found = row.get(key)
    return found[:MAX_NAME].strip() if isinstance(found, str) and found.strip().lower() not in _NOTHING else ""


def _guid(row: Mapping[str, Any], *keys: str) -> str:
    for key in keys:
        found = row.get(key)
        if isinstance(found, str) and (guid := _read_guid(found)):
            return guid
    return ""


def _read_guid(text: str) -> str:
    """Empty if it is none. A card without a GUID reports zeros."""
    try:
        return guid_of(text)
    except NoGuid:
        return ""


def integer(found: Any) -> int:
    """-1 where it is none."""
    if isinstance(found, bool):
        return -1
    if isinstance(found, int):
        return found if 0 <= found < 2**53 else -1
    return int(found) if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 16 else -1


def _named_port(name: Any) -> tuple[str, int]:
    """Of `fc6a1c0300600000_1`."""
    if not isinstance(name, str):
        return "", 0
    text, _, number = name.rpartition("_")
    guid = _read_guid(text)
    return (guid, max(integer(number), 0)) if guid else ("", 0)


def _peer(row: Mapping[str, Any]) -> tuple[str, int]:
    guid, number = _named_port(row.get("peer"))
    return (guid, number) if guid else (_guid(row, "peer_node_guid", "peer_guid"), 0)


def _is_up(row: Mapping[str, Any]) -> bool:
    physical, logical = _text(row, "physical_state").lower(), _text(row, "logical_state").lower()
    return (not physical or physical in _UP) and logical != "down"


def _speed(row: Mapping[str, Any]) -> tuple[int, str]:
    width, _ = speed_of(_text(row, "active_width"))
    speed = _text(row, "active_speed").upper()
    return width, speed if speed.isalnum() and len(speed) < 8 else ""
