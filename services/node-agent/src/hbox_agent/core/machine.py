"""A node's /sys and its kubelet's files as one value of the model. Pure: files come in as text by path; what cannot be read is left out and named."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from hbox_common.errors import InvalidRequest
from hbox_common.model import NodeName
from hbox_common.model.bounds import KEY_BYTES, VALUE_BYTES, is_plain, sanitized
from hbox_common.model.devices.adapters import natural, pci_path
from hbox_common.model.nodedevices import cpu_list, parse_cpu_list
from hbox_common.model.nodenuma import (
    MAX_DEVICES,
    MAX_PROBLEMS,
    MAX_ZONES,
    KubeletRules,
    NodeNuma,
    NumaZone,
    PciBridge,
    PciDevice,
    PciKind,
)
from hbox_common.yamltext import content_of

from .acs import redirect_of

T = TypeVar("T")

NODES = "/sys/devices/system/node"
CPUS = "/sys/devices/system/cpu"
PCI = "/sys/bus/pci/devices"
HCAS = "/sys/class/infiniband"
MOUNTS = "/proc/mounts"
CPU_INFO = "/proc/cpuinfo"

#: Files of the kubelet, as problems call them.
CONFIG, CPU_STATE, MEMORY_STATE = "the kubelet's configuration", "cpu_manager_state", "memory_manager_state"

#: PCI base classes and subclasses: display and 3D controllers, processing accelerators; Ethernet; InfiniBand.
_CARDS, _ETHERNET, _INFINIBAND = ("0x03", "0x12"), "0x0200", "0x0207"
_BRIDGE = "0x0604"
#: Baseboards' own display controllers are no cards: ASPEED, Matrox.
_NO_CARDS = frozenset({"0x1a03", "0x102b"})

_MEM_TOTAL = re.compile(r"MemTotal:\s+(\d{1,18}) kB")
_PCI_PATH = re.compile(rf"{PCI}/([0-9a-f]{{4,8}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7])/class")
#: Any file in an adapter's folder proves the adapter; during removal, or in a guest, some files are missing.
_HCA_PATH = re.compile(rf"{HCAS}/([^/]{{1,64}})(?:/.*)?")
_SOCKET_PATH = re.compile(rf"{CPUS}/cpu(\d{{1,5}})/topology/physical_package_id")
_HCA_PORT = re.compile(rf"{HCAS}/([^/]{{1,64}})/ports/\d{{1,3}}/state")
#: The CPU flag that a hypervisor sets in its guests.
_HYPERVISOR = re.compile(r"^flags\s*:.*\bhypervisor\b", re.MULTILINE)
_MAX_OPTIONS = 32


def machine(
    node: NodeName,
    files: Mapping[str, str],
    *,
    config: str | None,
    links: Mapping[str, str] | None = None,
    configs: Mapping[str, bytes] | None = None,
    cpu_state: str = "",
    memory_state: str = "",
    unread: Mapping[str, str] | None = None,
    iommu_groups: int = 0,
    at: float,
) -> NodeNuma:
    """files, links (what they lead to): by their paths on the node. configs: configuration spaces of PCI bridges by address.
    config: the kubelet's configuration, None where there is none to read; the states: of its
    CPU and memory managers; unread: which of them cannot be read, and why. Never raises."""
    unread = unread or {}
    problems = [sanitized(f"{what}: {why}", VALUE_BYTES) for what, why in unread.items()]
    links = links or {}

    def tried(what: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except (InvalidRequest, ValueError, KeyError, IndexError, TypeError, RecursionError) as e:
            if len(problems) < MAX_PROBLEMS:
                problems.append(sanitized(f"{what}: {e}", VALUE_BYTES))
            return otherwise

    if config is None and CONFIG not in unread:
        problems.append(f"{CONFIG} is not to be found")
    devices = _bounded(tried("PCI devices", lambda: _devices(files, links), []), problems)
    rules = None if config is None else tried(CONFIG, lambda: _rules(config), None)
    return NodeNuma(
        node=node,
        at=at,
        zones=tried("NUMA nodes", lambda: _zones(files), ()),
        sockets=tried("sockets", lambda: _sockets(files), 0),
        threads_per_core=tried("threads", lambda: _threads(files), 0),
        devices=devices,
        rules=rules,
        cpu_state=tried(CPU_STATE, lambda: _policy(cpu_state), ""),
        memory_state=tried(MEMORY_STATE, lambda: _policy(memory_state), ""),
        iommu_groups=iommu_groups,
        lxcfs=any(line.split(" ")[0] == "lxcfs" for line in files.get(MOUNTS, "").splitlines()),
        problems=tuple(problems),
        bridges=_bridges(devices, configs or {}),
        guest=_HYPERVISOR.search(files.get(CPU_INFO, "")) is not None,
        cut_cpus=tried("reservedSystemCPUs", lambda: _cut_cpus(files, rules.reserved_cpus), "") if rules is not None else "",
    )


def _zones(files: Mapping[str, str]) -> tuple[NumaZone, ...]:
    zones = []
    socket_of = _socket_of(files)
    online = parse_cpu_list(files[f"{NODES}/online"])
    if len(online) > MAX_ZONES:
        raise ValueError(f"{len(online)} of them")
    for id_ in online:
        folder = f"{NODES}/node{id_}"
        total = _MEM_TOTAL.search(files.get(f"{folder}/meminfo", ""))
        distances = [int(word) for word in files.get(f"{folder}/distance", "").split()]
        fits = len(distances) == len(online) and all(0 < d <= 65_535 for d in distances)
        cpus = cpu_list(parse_cpu_list(files.get(f"{folder}/cpulist", "")))
        own = {socket_of[cpu] for cpu in parse_cpu_list(cpus) if cpu in socket_of}
        socket = own.pop() if len(own) == 1 else -1
        zones.append(NumaZone(id_, cpus, int(total[1]) // 1024 if total else 0, tuple(distances) if fits else (), socket))
    return tuple(zones)


def _sockets(files: Mapping[str, str]) -> int:
    return len({text.strip() for path, text in files.items() if path.endswith("/topology/physical_package_id")})


def _socket_of(files: Mapping[str, str]) -> dict[int, int]:
    """By CPU."""
    found = ((_SOCKET_PATH.fullmatch(path), text.strip()) for path, text in files.items())
    return {int(match[1]): int(text) for match, text in found if match is not None and text.isascii() and text.isdigit()}


def _cut_cpus(files: Mapping[str, str], reserved: str) -> str:
    """Of cores that are reserved in part, those that are not."""
    own = set(parse_cpu_list(reserved))
    cores = {frozenset(parse_cpu_list(text)) for path, text in files.items() if path.endswith("/topology/thread_siblings_list")}
    return cpu_list({cpu for core in cores if core & own for cpu in core - own})


def _threads(files: Mapping[str, str]) -> int:
    """Of the core with most."""
    found = [parse_cpu_list(text) for path, text in files.items() if path.endswith("/topology/thread_siblings_list")]
    return max((len(own) for own in found), default=0)


def _devices(files: Mapping[str, str], links: Mapping[str, str]) -> list[PciDevice]:
    """Cards, adapters, network controllers. A virtual function is left out where its adapter is there, whose place and cable are its own."""
    found: list[PciDevice] = []
    physical: dict[str, str] = {}  #: address of a virtual function -> that of its adapter
    for path, leads in links.items():
        if path.startswith(f"{PCI}/") and path.endswith("/physfn"):
            physical[path.removesuffix("/physfn").rpartition("/")[2]] = leads.rstrip("/").rpartition("/")[2]
    for path, text in files.items():
        if (match := _PCI_PATH.fullmatch(path)) is None or match[1] in physical:
            continue
        folder, vendor = path.removesuffix("/class"), files.get(path.removesuffix("class") + "vendor", "").strip()
        kind = _kind(text.strip(), vendor)
        if kind is not None:
            numa, at = _numa(files.get(f"{folder}/numa_node", "")), pci_path(links.get(folder, ""))
            found.append(PciDevice(match[1], kind, numa, vendor=vendor[:16], path=at))
    found += _adapters(files, links, physical)
    found.sort(key=lambda one: (one.kind, one.address, natural(one.name)))
    return found


def _adapters(files: Mapping[str, str], links: Mapping[str, str], physical: Mapping[str, str]) -> list[PciDevice]:
    ports: dict[str, list[bool]] = {}
    for path, text in files.items():
        if (match := _HCA_PORT.fullmatch(path)) is not None:
            ports.setdefault(match[1], []).append("ACTIVE" in text)
    names = {match[1] for path in (*files, *links) if (match := _HCA_PATH.fullmatch(path)) is not None}
    found: dict[str, PciDevice] = {}
    for name in sorted(names, key=natural):
        if not is_plain(name, KEY_BYTES):
            continue
        at = pci_path(links.get(f"{HCAS}/{name}", ""))
        own = at.rpartition("/")[2] or links.get(f"{HCAS}/{name}/device", "").rstrip("/").rpartition("/")[2]
        at = at or pci_path(links.get(f"{PCI}/{own}", ""))
        numa = _numa(files.get(f"{HCAS}/{name}/device/numa_node", files.get(f"{PCI}/{own}/numa_node", "")))
        down = name in ports and not any(ports[name])
        found[name] = PciDevice("", PciKind.HCA, numa, name=name, path=at, down=down)
    address_of = {name: one.path.rpartition("/")[2] for name, one in found.items()}
    there = set(address_of.values()) - physical.keys()
    kept: list[PciDevice] = []
    for name, one in found.items():
        adapter = physical.get(address_of[name], "")
        if not adapter or adapter not in there:
            kept.append(one)
            there.add(adapter)  # of several functions without a visible adapter the first represents it
    return kept


def _bounded(devices: list[PciDevice], problems: list[str]) -> tuple[PciDevice, ...]:
    if len(devices) > MAX_DEVICES and len(problems) < MAX_PROBLEMS:
        problems.append(f"PCI devices: {len(devices)} found, {MAX_DEVICES} published, cards and RDMA adapters first")
    return tuple(devices[:MAX_DEVICES])


def bridge_addresses(files: Mapping[str, str]) -> list[str]:
    """Of PCI bridges, whose configuration is to be read."""
    found = ((_PCI_PATH.fullmatch(path), text) for path, text in files.items() if text.startswith(_BRIDGE))
    return [match[1] for match, _ in found if match is not None]


def _bridges(devices: Iterable[PciDevice], configs: Mapping[str, bytes]) -> tuple[PciBridge, ...]:
    """Those above cards and adapters."""
    above = {at for one in devices if one.kind is not PciKind.NIC for at in one.path.split("/")[1:-1]}
    return tuple(PciBridge(at, redirect_of(configs.get(at, b""))) for at in sorted(above)[:MAX_DEVICES])


def _kind(class_: str, vendor: str) -> PciKind | None:
    if class_.startswith(_CARDS):
        return None if vendor in _NO_CARDS else PciKind.CARD
    if class_.startswith((_ETHERNET, _INFINIBAND)):
        return PciKind.NIC
    return None


def _numa(text: str) -> int:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) <= 65_535 else -1


def _rules(config: str) -> KubeletRules:
    found = content_of(config) or {}
    if not isinstance(found, dict):
        raise InvalidRequest("it is no map")
    return KubeletRules(
        cpu_manager=_word(found, "cpuManagerPolicy"),
        cpu_options=_options(found, "cpuManagerPolicyOptions"),
        memory_manager=_word(found, "memoryManagerPolicy"),
        topology_manager=_word(found, "topologyManagerPolicy"),
        topology_scope=_word(found, "topologyManagerScope"),
        topology_options=_options(found, "topologyManagerPolicyOptions"),
        reserved_cpus=_word(found, "reservedSystemCPUs"),
    )


def _word(found: Mapping[str, Any], key: str) -> str:
    return _scalar(key, found.get(key))


def _options(found: Mapping[str, Any], key: str) -> dict[str, str]:
    value = found.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > _MAX_OPTIONS:
        raise InvalidRequest(f"{key} is no map of at most {_MAX_OPTIONS} options")
    return {sanitized(str(k), KEY_BYTES): _scalar(key, v) for k, v in value.items()}


def _scalar(key: str, value: Any) -> str:
    """As text. A list or map is refused, not written out: aliases within it may stand for more than fits any memory."""
    if isinstance(value, list | dict):
        raise InvalidRequest(f"{key} holds a list or map where a word belongs")
    return "" if value is None else str(value).lower() if isinstance(value, bool) else sanitized(str(value), VALUE_BYTES)


class _State(msgspec.Struct, rename="camel"):
    policy_name: str


def _policy(state: str) -> str:
    """The policy of a manager's checkpoint, whatever its version."""
    return sanitized(msgspec.json.decode(state, type=_State).policy_name, VALUE_BYTES) if state.strip() else ""
