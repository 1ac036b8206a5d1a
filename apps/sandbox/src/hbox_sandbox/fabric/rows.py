"""A fabric as UFM's REST interface returns it: systems and ports, one row for each end of a cable."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from hbox_common.model.fabric import HostLink, Snapshot

_NOTHING = "N/A"


def systems(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    first: dict[str, str] = {}
    ports: dict[str, list[str]] = defaultdict(list)
    for link in snapshot.hosts:
        first.setdefault(link.host, link.card)
        ports[link.host].append(f"{link.card}_{link.port}")
    for host, guid in first.items():
        yield _system(guid, host, "host", "Computer", guid) | {"ports": ports[host]}
    for switch in snapshot.switches.values():
        yield _system(switch.guid, switch.name, "switch", switch.model, switch.chassis or switch.guid)


def ports(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    for link in snapshot.hosts:
        up = link.up and bool(link.switch)
        peer = snapshot.switches[link.switch].name if up else _NOTHING
        yield _port(link.card, link.port, "Computer IB Port", link.host, _description(link), link.speed, link.width, up) | {
            "peer": f"{link.switch}_{link.switch_port}" if up else _NOTHING,
            "peer_guid": link.switch if up else _NOTHING,
            "peer_node_guid": link.switch if up else _NOTHING,
            "peer_node_name": peer,
            "peer_node_description": f"{peer}:{link.switch_port}" if up else _NOTHING,
        }
        if up:
            yield _port(
                link.switch,
                link.switch_port,
                "Switch IB Port",
                peer,
                f"{peer}:{link.switch_port}",
                link.speed,
                link.width,
                True,
            ) | {
                "peer": f"{link.card}_{link.port}",
                "peer_guid": link.card,
                "peer_node_guid": link.card,
                "peer_node_name": link.host,
                "peer_node_description": _description(link),
            }
    for trunk in snapshot.trunks:
        for guid, number, other, other_number in (
            (trunk.a, trunk.a_port, trunk.b, trunk.b_port),
            (trunk.b, trunk.b_port, trunk.a, trunk.a_port),
        ):
            name, peer = snapshot.switches[guid].name, snapshot.switches[other].name
            yield _port(guid, number, "Switch IB Port", name, f"{name}:{number}", trunk.speed, trunk.width, trunk.up) | {
                "peer": f"{other}_{other_number}" if trunk.up else _NOTHING,
                "peer_guid": other if trunk.up else _NOTHING,
                "peer_node_guid": other if trunk.up else _NOTHING,
                "peer_node_name": peer if trunk.up else _NOTHING,
                "peer_node_description": f"{peer}:{other_number}" if trunk.up else _NOTHING,
            }


def _description(link: HostLink) -> str:
    return f"{link.host} {link.hca}".strip() if link.host else "MT4129 ConnectX7   Mellanox Technologies"


def _system(guid: str, name: str, kind: str, model: str, image: str) -> dict[str, Any]:
    return {
        "name": guid, "guid": guid, "system_guid": image, "system_name": name, "type": kind, "model": model, "state": "active",
        "role": "endpoint" if kind == "host" else "tor", "vendor": "Mellanox", "ip": "0.0.0.0", "severity": "Info", "total_alarms": 0,
        "sm_mode": "noSM", "ports": [], "modules": [], "capabilities": ["fw_inband_upgrade"], "groups": [],
    }  # fmt: skip


def _port(guid: str, number: int, kind: str, system: str, description: str, speed: str, width: int, up: bool) -> dict[str, Any]:  # noqa: PLR0917
    """A port's row with all fields of a real one, so that its size is realistic."""
    return {
        "description": kind, "number": number, "external_number": number, "physical_state": "Link Up" if up else "Polling",
        "path": f"default / {kind.split(maxsplit=1)[0]}: {system} / {number}", "tier": 1 if kind.startswith("Computer") else 2, "high_ber_severity": _NOTHING,
        "lid": 21, "mirror": "disable", "logical_state": "Active" if up else "Down", "capabilities": ["healthy_operations", "reset", "disable"],
        "mtu": 4096, "peer_port_dname": "1", "severity": "Info" if up else "Warning", "active_speed": speed if up else _NOTHING,
        "enabled_speed": ["SDR", "FDR", "EDR", "HDR", "NDR"], "supported_speed": ["SDR", "FDR", "EDR", "HDR", "NDR"],
        "active_width": f"{width}x" if up else "None", "enabled_width": ["1x", "2x", "4x"], "supported_width": ["1x", "2x", "4x"],
        "dname": str(number), "systemID": guid, "node_description": description, "label": str(number), "name": f"{guid}_{number}",
        "module": _NOTHING, "peer_lid": 1, "guid": guid, "system_name": system, "system_ip": "0.0.0.0", "peer_ip": "0.0.0.0",
        "system_capabilities": ["fw_inband_upgrade"], "system_mirroring_template": False,
    }  # fmt: skip
