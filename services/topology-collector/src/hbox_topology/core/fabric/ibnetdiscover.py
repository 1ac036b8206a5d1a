"""ibnetdiscover's text: a block for each switch and card, a line for each port that is up.

    Switch 41 "S-0c42a1030060abd0"   # "MF0;LG01-05:MQM8700/U1" enhanced port 0 lid 1 lmc 0
    [1]  "H-1c34da0300608820"[1](1c34da0300608820)   # "luna-0001 mlx5_0" lid 837 4xHDR
    Ca 1 "H-1c34da0300608820"        # "luna-0001 mlx5_0"
    [1](1c34da0300608820)  "S-0c42a1030060abd0"[1]   # lid 837 lmc 0 "MF0;LG01-05:MQM8700/U1" lid 1 4xHDR

Every cable stands twice, once at each end. What the format does in earnest: GUIDs in quotes are padded with zeros, the others are not; descriptions end in
blanks; tabs are lost where a log was pasted; a switch is cabled to itself; a port that is down is not there at all.
"""

import re
from collections.abc import Iterable

from hbox_common.errors import InvalidRequest
from hbox_common.model.fabric import HostLink, Snapshot, Switch, Trunk

from .names import MAX_LINKS, MAX_SWITCHES, NoGuid, guid_of, host_and_hca, is_aggregation_node, speed_of, switch_name

MAX_LINE = 2048
MAX_PROBLEMS = 20

_BLOCK = re.compile(r'(Switch|Ca|Rt)\s*(\d{1,5})\s*"([SHR])-([0-9a-fA-F]{1,16})"\s*#\s*"([^"]*)"')
_LINK = re.compile(
    r'\[(\d{1,5})\](?:\[[^\]]*\])?\s*(?:\(([0-9a-fA-F]{1,16})\))?\s*"([SHR])-([0-9a-fA-F]{1,16})"\s*\[(\d{1,5})\]'
    r"(?:\[[^\]]*\])?\s*(?:\(([0-9a-fA-F]{1,16})\))?\s*(?:#\s*(.*))?\Z"
)
_QUOTED = re.compile(r'"([^"]*)"')
_WIDTH = re.compile(r"(\d{1,3}x[A-Za-z]+\d*)\s*\Z")
_IMAGE = re.compile(r"sysimgguid=(?:0x)?([0-9a-fA-F]{1,16})\s*\Z")


def parse_ibnetdiscover(lines: Iterable[str]) -> Snapshot:
    """Raises InvalidRequest where the text names no switch, or more than any fabric has. A line that cannot be read is left out, and told."""
    reading = _Reading()
    for number, line in enumerate(lines, 1):
        try:
            reading.line(number, line)
        except NoGuid:
            reading.problem(number, "has a GUID of zeros")
    if not reading.switches:
        raise InvalidRequest(
            "no line names a switch", hint='this reads the text of `ibnetdiscover`, with lines like: Switch 41 "S-..." # "..."'
        )
    return reading.snapshot()


class _Reading:
    def __init__(self) -> None:
        self.switches: dict[str, Switch] = {}
        self.hosts: dict[tuple[str, int], HostLink] = {}
        self.trunks: dict[tuple[str, int, str, int], Trunk] = {}
        self.aggregation: set[str] = set()
        self.problems: list[str] = []
        self._image = ""
        self._block: tuple[str, str, str] | None = None  #: kind, GUID, description

    def line(self, number: int, line: str) -> None:
        line = line.strip()
        if not line:
            self._block, self._image = None, ""
        elif line.startswith("#"):
            return
        elif len(line) > MAX_LINE:
            self.problem(number, f"has {len(line)} characters")
        elif line[0] == "[":
            self._link(number, line)
        elif line.startswith("sysimgguid"):
            found = _IMAGE.match(line)
            self._image = guid_of(found[1]) if found else ""
        elif line.startswith(("Switch", "Ca", "Rt")):
            self._start(number, line)

    def _start(self, number: int, line: str) -> None:
        found = _BLOCK.match(line)
        if found is None:
            self._block = None
            return self.problem(number, "is no block of a switch or card")
        kind, guid, description = found[1], guid_of(found[4]), found[5]
        self._block = kind, guid, description
        if kind == "Switch":
            self._switch(guid, description, self._image)
            if len(self.switches) > MAX_SWITCHES:
                raise InvalidRequest(f"line {number}: more than {MAX_SWITCHES} switches")
        return None

    def _switch(self, guid: str, description: str, image: str) -> None:
        known = self.switches.get(guid)
        if known is None or (image and not known.chassis):
            name, model = switch_name(description)
            self.switches[guid] = Switch(guid, name or guid, model, image)

    def _link(self, number: int, line: str) -> None:
        if self._block is None:
            return self.problem(number, "is a port of no block")
        found = _LINK.match(line)
        if found is None:
            return self.problem(number, "is no port")
        kind, guid, description = self._block
        port, peer_kind, peer, peer_port = int(found[1]), found[3], guid_of(found[4]), int(found[5])
        comment = found[7] or ""
        quoted = _QUOTED.search(comment)
        peer_description = quoted[1] if quoted else ""
        tail = _WIDTH.search(comment)
        width, speed = speed_of(tail[1]) if tail else (0, "")
        if kind == "Switch" and peer_kind == "S":
            self._switch(peer, peer_description, "")
            if guid != peer:
                ends = (guid, port, peer, peer_port) if guid < peer else (peer, peer_port, guid, port)
                self.trunks[ends] = Trunk(*ends, speed, width)
        elif kind == "Switch" and peer_kind == "H":
            self._host((peer, peer_port), peer_description, (guid, port), (width, speed))
        elif kind == "Ca" and peer_kind == "S":
            self._switch(peer, peer_description, "")
            self._host((guid, port), description, (peer, peer_port), (width, speed))
        if len(self.hosts) + len(self.trunks) > MAX_LINKS:
            raise InvalidRequest(f"line {number}: more than {MAX_LINKS} links")
        return None

    def _host(self, end: tuple[str, int], description: str, at: tuple[str, int], tail: tuple[int, str]) -> None:
        card, port = end
        if is_aggregation_node(description):
            self.aggregation.add(card)
            return
        host, hca = host_and_hca(description)
        known = self.hosts.get((card, port))
        if known is None or (host and not known.host):
            self.hosts[card, port] = HostLink(card, port, host, hca, at[0], at[1], tail[1], tail[0])

    def problem(self, number: int, what: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"line {number} {what}")

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.switches,
            tuple(self.hosts.values()),
            tuple(self.trunks.values()),
            aggregation_nodes=len(self.aggregation),
            problems=tuple(self.problems),
        )
