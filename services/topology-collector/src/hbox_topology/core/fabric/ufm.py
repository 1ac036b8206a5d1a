"""What rows of UFM's REST interface say, whatever version wrote them.

Keys come and go between versions, numbers are strings in some, and a port that is down has "N/A", "None", "" or nothing where its peer stands. Ports say all
that is needed; systems add names of switches, which chips share a chassis, and machines that are gone. Rows that cannot be read are left out, and told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hbox_common.errors import InvalidRequest

from .snapshot import (
    MAX_LINKS,
    MAX_NAME,
    MAX_SWITCHES,
    HostLink,
    Snapshot,
    Switch,
    Trunk,
    guid_of,
    host_and_hca,
    host_of,
    is_aggregation_node,
    speed_of,
)

MAX_PROBLEMS = 20
_NOTHING = frozenset({"", "n/a", "none", "null", "unknown"})
_UP = frozenset({"link up", "linkup", "active", "up", "5"})
#: Collections of /app/versioning of which the graph is made.
VERSIONS = ("servers_version", "switches_version", "ports_version", "links_version")


class EventKind(Enum):
    DOWN = "down"  #: of a link, a node or a switch
    FAILOVER = "failover"  #: of UFM or the subnet manager: what is said meanwhile may be half


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
    number = _integer(row.get("id"))
    which = _integer(row.get("event_type"))
    kind = _EVENTS.get(_integer(row.get("type")) if which < 0 else which)
    return None if kind is None or number < 0 else UfmEvent(number, kind)


def versions_of(document: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Counters of what the graph is made of; None where it says none of them."""
    found = tuple(_integer(document.get(name)) for name in VERSIONS)
    return found if max(found) >= 0 else None


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

    def system(self, row: Mapping[str, Any]) -> None:
        """A row of /resources/systems."""
        guid = _guid(row, "guid", "name")
        kind = _text(row, "type").lower()
        if not guid:
            self._problem("system", row)
        elif kind in ("switch", "router", "gateway") or (not kind and _text(row, "model").lower() not in ("", "computer")):
            name, model = _text(row, "system_name") or guid, _text(row, "model")
            self._switch(Switch(guid, name, model, _guid(row, "system_guid") or guid))
        elif _text(row, "state").lower() == "missing":
            self._missing.add(host_of(_text(row, "system_name")))

    def port(self, row: Mapping[str, Any]) -> None:
        """A row of /resources/ports. Raises InvalidRequest at more rows than any fabric has."""
        self.rows += 1
        if self.rows > MAX_LINKS:
            raise InvalidRequest(f"more than {MAX_LINKS} ports")
        guid = _guid(row, "guid") or _named_port(row.get("name"))[0]
        number = _integer(row.get("number"))
        if not guid or number < 0:
            return self._problem("port", row)
        if "switch" in _text(row, "description").lower() or guid in self._switches:
            self._switch_port(row, guid, number)
        else:
            self._host_port(row, guid, number)
        return None

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

    def _host_port(self, row: Mapping[str, Any], guid: str, number: int) -> None:
        description = _text(row, "node_description")
        if is_aggregation_node(description) or is_aggregation_node(_text(row, "system_name")):
            self._aggregation.add(guid)
            return
        host, hca = host_and_hca(description)
        if not host and (name := host_and_hca(_text(row, "system_name"))[0]) and not description:
            host, hca = name, _text(row, "dname").partition("/")[0]
        peer, peer_port = _peer(row)
        up = _is_up(row) and bool(peer)
        width, speed = _speed(row)
        if not up:
            peer, peer_port, width, speed = "", 0, 0, ""
        self._hosts[guid, number] = HostLink(guid, number, host, hca, peer, peer_port, speed, width, up)

    def _switch_port(self, row: Mapping[str, Any], guid: str, number: int) -> None:
        if guid not in self._switches:
            self._switch(Switch(guid, _text(row, "system_name") or guid))
        peer, peer_port = _peer(row)
        if not peer or peer == guid or not _is_up(row):
            return
        width, speed = _speed(row)
        description = _text(row, "peer_node_description")
        if is_aggregation_node(description):
            self._aggregation.add(peer)
            return
        host, hca = host_and_hca(description)
        # A switch is described as `name:port` here, a card as `host mlx5_0`: which of the two it is, its own rows say.
        self._backup_or_trunk(HostLink(peer, peer_port, host, hca, guid, number, speed, width))

    def _backup_or_trunk(self, seen: HostLink) -> None:
        a, b = (seen.switch, seen.switch_port), (seen.card, seen.port)
        ends = (*a, *b) if a[0] < b[0] else (*b, *a)
        if seen.card in self._switches or not seen.hca:
            self._trunks.setdefault(ends, Trunk(*ends, seen.speed, seen.width))
        else:
            self._backup[b] = seen

    def _problem(self, what: str, row: Mapping[str, Any]) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(f"a {what} without GUID or number: {str(row.get('name'))[:60]!r}")


def _text(row: Mapping[str, Any], key: str) -> str:
    found = row.get(key)
    return found[:MAX_NAME].strip() if isinstance(found, str) and found.strip().lower() not in _NOTHING else ""


def _guid(row: Mapping[str, Any], *keys: str) -> str:
    for key in keys:
        found = row.get(key)
        if isinstance(found, str):
            try:
                return guid_of(found)
            except InvalidRequest:
                continue
    return ""


def _integer(found: Any) -> int:
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
    guid, _, number = name.rpartition("_")
    try:
        return guid_of(guid), max(_integer(number), 0)
    except InvalidRequest:
        return "", 0


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
