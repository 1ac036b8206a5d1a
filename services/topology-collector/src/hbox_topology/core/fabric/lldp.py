"""LLDP as lldpcli prints it (`lldpcli -f json show neighbors`), of one machine: the graph of RoCE.

With one neighbour `interface` is an object, with several a list of objects of one key each; the name of a switch is a key too, its id a MAC. Leaves that
share a bond are a pair by themselves: they have the same machines.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model.fabric import HostLink, Snapshot, Switch

from .names import MAX_LINKS, MAX_NAME, MAX_SWITCHES, host_of

MAX_INTERFACES = 256
_MAC = re.compile(r"[0-9a-f]{2}([:-]?[0-9a-f]{2}){5}\Z")


def neighbours_of(host: str, document: Any) -> tuple[list[Switch], list[HostLink]]:
    """Switches that a machine sees, and its links to them. Raises InvalidRequest where it is not lldpcli's JSON."""
    if not isinstance(document, Mapping) or not isinstance(document.get("lldp"), Mapping):
        raise InvalidRequest(f"LLDP of {host}: there is no `lldp`", hint="this reads `lldpcli -f json show neighbors`")
    found = document["lldp"].get("interface", [])
    entries = found if isinstance(found, list) else [found]
    switches: dict[str, Switch] = {}
    links = []
    interfaces = ((name, seen) for entry in entries if isinstance(entry, Mapping) for name, seen in entry.items())
    for name, seen in islice(interfaces, MAX_INTERFACES):
        switch = _switch(seen)
        if switch is not None:
            switches[switch.guid] = switch
            own = f"{host_of(host)}/{name}"[:MAX_NAME]
            links.append(HostLink(own, 1, host_of(host), str(name)[:MAX_NAME], switch.guid, _number(seen)))
    return list(switches.values()), links


def snapshot_of(machines: Iterable[tuple[str, Any]]) -> Snapshot:
    """What all machines see: their names, and the document of each. A machine whose document cannot be read is left out, and told.

    Raises InvalidRequest at more than any fabric has.
    """
    switches: dict[str, Switch] = {}
    links: list[HostLink] = []
    problems = []
    for host, document in machines:
        try:
            seen, own = neighbours_of(host, document)
        except InvalidRequest as e:
            problems.append(e.message)
            continue
        for switch in seen:
            switches.setdefault(switch.guid, switch)
        links += own
        if len(links) > MAX_LINKS or len(switches) > MAX_SWITCHES:
            raise InvalidRequest(f"LLDP of {host}: with those before more than {MAX_LINKS} links, or {MAX_SWITCHES} switches")
    return Snapshot(switches, tuple(links), problems=tuple(problems[:20]))


def _switch(seen: Any) -> Switch | None:
    """The switch behind an interface; None for what is no bridge or router (a phone, another machine) or says no id."""
    chassis = seen.get("chassis") if isinstance(seen, Mapping) else None
    if not isinstance(chassis, Mapping) or not chassis:
        return None
    name, about = next(iter(chassis.items()))
    if name in ("id", "descr") or not isinstance(about, Mapping):  # a chassis without a name has its id here
        name, about = "", chassis
    given = about.get("id")
    value = given.get("value") if isinstance(given, Mapping) else None
    if not isinstance(value, str):
        return None
    text = value.strip().lower()
    mac = re.sub("[:-]", "", text) if _MAC.match(text) else ""
    guid = mac.zfill(16) if mac else text[:MAX_NAME]
    if not guid or not _forwards(about.get("capability")):
        return None
    return Switch(guid, str(name)[:MAX_NAME] or guid, str(about.get("descr", ""))[:MAX_NAME])


def _forwards(capability: Any) -> bool:
    """Whether it is a bridge or a router; what says nothing counts as one."""
    found = capability if isinstance(capability, list) else [capability] if isinstance(capability, Mapping) else []
    known = [one for one in found if isinstance(one, Mapping)]
    return not known or any(one.get("type") in ("Bridge", "Router") and one.get("enabled") is True for one in known)


def _number(seen: Mapping[str, Any]) -> int:
    port = seen.get("port")
    given = port.get("id") if isinstance(port, Mapping) else None
    value = given.get("value") if isinstance(given, Mapping) else ""
    digits = re.findall(r"\d{1,9}", str(value)[:MAX_NAME])
    return int(digits[-1]) if digits else 0
