"""Checks whether a node can place a pod's cards, cores and adapters near each other: the kubelet's configuration and the machine's layout. Pure."""

from collections.abc import Iterator

from hbox_common.model import KubeletRules, NodeDevices, NodeNuma, NodeZones, PciKind, Redirect
from hbox_common.model.cardadapters import adapters_of, nearest_by_address
from hbox_common.model.devices.adapters import path_kind
from hbox_common.model.nodenuma import bridges_between
from hbox_common.model.numa import MAX_NODES, NumaPolicy
from hbox_common.views.node import unread

from .findings import Level, NodeFinding
from .nvml import nvml_findings
from .smitopo import SmiTopology


def findings(numa: NodeNuma, devices: NodeDevices | None) -> list[NodeFinding]:
    """Findings in the order in which an administrator works through them."""
    found = [
        NodeFinding("reading", Level.WARNING, problem, "is the folder mounted, and readable?")
        for problem in unread(numa, devices)
    ]
    found += _zones(numa)
    found += _rules(numa, numa.rules) if numa.rules is not None else []
    found += _machine(numa)
    found += _adapters(numa)
    found += _acs(numa)
    found += nvml_findings(numa, numa.nvml, devices) if numa.nvml is not None else []
    if devices is not None and devices.problem:
        found.append(NodeFinding("podresources", Level.FAULT, devices.problem, "does the kubelet run?"))
    elif devices is not None:
        found.append(NodeFinding("podresources", Level.OK, f"{len(devices.holds)} containers hold something of their own"))
    return found


def of_objects(zones: NodeZones) -> Iterator[NodeFinding]:
    """Findings about NUMA nodes that an object of the cluster describes (NodeResourceTopology, Numatopology); none if node-agent reports them."""
    if zones.source in ("", "node-agent"):
        return
    if zones.problem:
        known = (
            f"{len(zones.zones)} NUMA nodes from its earlier messages are used"
            if zones.zones
            else "its NUMA nodes are unknown, only node totals are checked"
        )
        yield NodeFinding(
            "zones", Level.WARNING, f"{zones.source}: {zones.problem}; {known}",
            f"check its writer: kubectl get events -A --field-selector involvedObject.kind={zones.source}; or install node-agent, which has precedence",
        )  # fmt: skip
    else:
        yield NodeFinding("zones", Level.OK, f"{len(zones.zones)} NUMA nodes by {zones.source}: {zones.policy}")


def compared(numa: NodeNuma, smi: SmiTopology) -> Iterator[NodeFinding]:
    """Differences between `nvidia-smi topo -m` and /sys. Cards are in the order of their PCI addresses, which is that of their numbers."""
    cards = [device for device in numa.devices if device.kind is PciKind.CARD]
    if len(cards) != len(smi.gpus):
        yield NodeFinding(
            "nvidia-smi", Level.WARNING, f"it lists {len(smi.gpus)} cards, /sys has {len(cards)}",
            "run it on the node, not in a container; a card that is missing there has fallen off the bus",
        )  # fmt: skip
    else:
        both = [(gpu, smi.numa(gpu), card.numa) for gpu, card in zip(smi.gpus, cards, strict=True)]
        wrong = [f"{gpu} on node {its} ({ours} by /sys)" for gpu, its, ours in both if its >= 0 and ours >= 0 and its != ours]
        if wrong:
            yield NodeFinding(
                "nvidia-smi", Level.WARNING, f"it has {', '.join(wrong[:8])}", "compare both with the firmware's settings"
            )
        else:
            yield NodeFinding("nvidia-smi", Level.OK, f"{len(cards)} cards on the NUMA nodes of /sys")
    if lost := smi.without_nvlink():
        yield NodeFinding(
            "nvlink", Level.FAULT, f"{', '.join(lost[:8])} without a link to any other card, which the others have",
            "nvidia-smi nvlink -s; drain the node, and reset the card",
        )  # fmt: skip
    differing = _other_paths(numa, smi) if len(cards) == len(smi.gpus) else []
    if differing:
        yield NodeFinding(
            "adapters", Level.WARNING, f"nvidia-smi and /sys differ: {', '.join(differing[:8])}",
            "in a guest or a container the tree is another one than the machine's: read both on the node itself",
        )  # fmt: skip
    far = [gpu for gpu in smi.gpus if smi.nics and not smi.near(gpu)]
    if far:
        yield NodeFinding("adapters", Level.WARNING, f"{', '.join(far[:8])} without an adapter below the same host bridge")
    elif smi.nics:
        yield NodeFinding("adapters", Level.OK, "each card has one below its own host bridge")


def _other_paths(numa: NodeNuma, smi: SmiTopology) -> list[str]:
    """Cards and adapters whose path differs between nvidia-smi and /sys. Cards are matched by their order, adapters by their names."""
    cards = [device for device in numa.devices if device.kind is PciKind.CARD]
    hcas = {device.name: device for device in numa.devices if device.kind is PciKind.HCA}
    found = []
    for gpu, card in zip(smi.gpus, cards, strict=True):
        for nic in smi.nics:
            its = smi.links.get((gpu, nic))
            if its is None or (hca := hcas.get(nic)) is None or not (hca.path and card.path):
                continue
            ours = path_kind(card.path, hca.path, one_numa=card.numa, other_numa=hca.numa)
            if ours is not None and its != ours:
                found.append(f"{gpu} and {nic} {its} ({ours} by /sys)")
    return found


def _adapters(numa: NodeNuma) -> Iterator[NodeFinding]:
    """Whether each card has an RDMA adapter below its own host bridge. Nodes without adapters are not meant for it."""
    hcas = [device for device in numa.devices if device.kind is PciKind.HCA]
    cards = [device for device in numa.devices if device.kind is PciKind.CARD]
    if not hcas or not cards:
        return
    if down := [device.name for device in hcas if device.down]:
        yield NodeFinding(
            "adapters", Level.WARNING, f"no port of {', '.join(down[:8])} is active", "ibstat; look at cable and switch port"
        )
    near = nearest_by_address(numa)
    if not near and adapters_of(numa):
        yield NodeFinding(
            "adapters", Level.WARNING, f"the PCI distance between {len(hcas)} adapters and {len(cards)} cards is unknown",
            "in a guest, write it on the node: hbox.io/card-adapters (docs/guides/numa.md)",
        )  # fmt: skip
        return
    far = [card.address for card in cards if card.address not in near or not near[card.address].near]
    if far:
        yield NodeFinding(
            "adapters", Level.WARNING, f"cards {', '.join(far[:8])} have no adapter below their own host bridge: RDMA traffic crosses the processor",
            "fit adapters below the switches of the cards; in a guest, write what the machine has on the node: hbox.io/card-adapters",
        )  # fmt: skip
    elif near:
        yield NodeFinding("adapters", Level.OK, f"each of {len(cards)} cards has an RDMA adapter below its own host bridge")


def _acs(numa: NodeNuma) -> Iterator[NodeFinding]:
    """Bridges that redirect what cards and adapters send each other (NCCL's troubleshooting, PCI Access Control Services)."""
    between = bridges_between(numa.devices)
    by_state = {
        state: [one.address for one in numa.bridges if one.address in between and one.redirect is state] for state in Redirect
    }
    on, unread = by_state[Redirect.ON], by_state[Redirect.UNREAD]
    summary = f"{len(between)} bridges between cards and adapters"
    if on and numa.guest:
        yield NodeFinding(
            "acs", Level.WARNING, f"redirects at {len(on)} of {summary}, as guests need it: {_some(on)}",
            "leave it on; on the machine, let the adapters translate addresses themselves: mlxconfig -d ADAPTER set ATS_ENABLED=true",
        )  # fmt: skip
    elif on:
        yield NodeFinding(
            "acs", Level.WARNING, f"redirects at {len(on)} of {summary}, so that transfers go by the root complex: {_some(on)}",
            "unless guests use the cards, off in the firmware; or, as root and at each boot, which turns it on again, for each: "
            f"setpci -s {on[0]} ECAP_ACS+0x6.w=0000",
        )  # fmt: skip
    if unread:
        yield NodeFinding(
            "acs", Level.WARNING, f"cannot be read at {len(unread)} of {summary}: {_some(unread)}",
            "the agent has no CAP_SYS_ADMIN; as root on the node, of each, 0000 is well: "
            f"setpci -s {unread[0]} ECAP_ACS+0x6.w",
        )  # fmt: skip
    if between and not on and not unread:
        yield NodeFinding("acs", Level.OK, f"no redirect at {summary}")


def _some(addresses: list[str]) -> str:
    return ", ".join(addresses[:8]) + (f" and {len(addresses) - 8} more" if len(addresses) > 8 else "")


def _zones(numa: NodeNuma) -> Iterator[NodeFinding]:
    per_socket = len([zone for zone in numa.zones if zone.cpus]) / numa.sockets if numa.sockets else 0.0
    summary = f"{len(numa.zones)} NUMA nodes on {numa.sockets} sockets"
    most = MAX_NODES
    if numa.rules is not None:
        option = numa.rules.topology_options.get("max-allowable-numa-nodes", "")
        most = int(option) if option.isascii() and option.isdigit() else MAX_NODES
    if len(numa.zones) > most:
        yield NodeFinding(
            "numa", Level.FAULT, f"{summary}: the kubelet's topology manager does not start with more than {most}",
            f"topologyManagerPolicyOptions: {{max-allowable-numa-nodes: \"{len(numa.zones)}\"}}",
        )  # fmt: skip
    else:
        yield NodeFinding("numa", Level.OK, summary)
    cards = [device for device in numa.devices if device.kind is PciKind.CARD]
    if cards and all(card.numa < 0 for card in cards):
        yield NodeFinding(
            "cards",
            Level.WARNING,
            f"the NUMA nodes of {len(cards)} cards are hidden",
            "pin the guest's NUMA nodes in the hypervisor",
        )
        return
    with_cards = {card.numa for card in cards if card.numa >= 0}
    bare = [zone.id for zone in numa.zones if zone.cpus and zone.id not in with_cards]
    if with_cards and bare and per_socket > 1:
        yield NodeFinding(
            "nps", Level.WARNING, f"NUMA nodes {', '.join(map(str, bare))} have cores and no card: these cores are never near one",
            "NPS1 in the firmware (AMD), or SNC off (Intel), unless it was measured that more is faster",
        )  # fmt: skip
    elif with_cards:
        yield NodeFinding("cards", Level.OK, f"{len(cards)} cards on NUMA nodes {', '.join(map(str, sorted(with_cards)))}")


def _rules(numa: NodeNuma, rules: KubeletRules) -> Iterator[NodeFinding]:
    if rules.cpu_manager != "static":
        yield NodeFinding(
            "cpu manager",
            Level.WARNING,
            f"policy {rules.cpu_manager or 'none'}: no container has cores of its own",
            "cpuManagerPolicy: static",
        )
    elif numa.cpu_state and numa.cpu_state != "static":
        yield NodeFinding(
            "cpu manager", Level.FAULT, f"static in the configuration, {numa.cpu_state} in cpu_manager_state",
            "drain the node, delete cpu_manager_state, restart the kubelet",
        )  # fmt: skip
    elif numa.threads_per_core > 1 and not rules.has("full-pcpus-only"):
        yield NodeFinding(
            "cpu manager",
            Level.WARNING,
            "static, and containers may share the threads of one core",
            'cpuManagerPolicyOptions: {full-pcpus-only: "true"}',
        )
    else:
        yield NodeFinding("cpu manager", Level.OK, "static")
    if rules.cpu_manager == "static":
        yield from _cpu_options(numa, rules)
    if rules.cpu_manager == "static" and not rules.reserved_cpus:
        yield NodeFinding(
            "reserved cpus",
            Level.WARNING,
            "which cores are the system's is left to the kubelet",
            "reservedSystemCPUs: some of each NUMA node",
        )
    policy = rules.topology_manager or "none"
    if policy == "none":
        yield NodeFinding(
            "topology manager",
            Level.WARNING,
            "policy none: cards and cores may be far from each other",
            "topologyManagerPolicy: best-effort",
        )
    elif policy == "best-effort":
        yield NodeFinding("topology manager", Level.OK, "best-effort")
    else:
        yield NodeFinding(
            "topology manager", Level.WARNING, f"{policy}: pods that were sent here may be refused (TopologyAffinityError)",
            "topologyManagerPolicy: best-effort, unless pods have to be refused",
        )  # fmt: skip


#: Options of the CPU manager that no kubelet starts with together (`NewStaticPolicyOptions`).
_APART = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)


def _cpu_options(numa: NodeNuma, rules: KubeletRules) -> Iterator[NodeFinding]:
    for one, other in _APART:
        if rules.has(one) and rules.has(other):
            yield NodeFinding(
                "cpu manager", Level.FAULT, f"no kubelet starts with both {one} and {other}", "leave one of them out"
            )
    if rules.has("full-pcpus-only") and numa.cut_cpus:
        yield NodeFinding(
            "reserved cpus", Level.WARNING, f"cores of CPUs {numa.cut_cpus} are reserved in part: no pod can use them under full-pcpus-only",
            "reservedSystemCPUs: whole cores",
        )  # fmt: skip
    if not rules.has("align-by-socket"):
        return
    with_cpus = [zone for zone in numa.zones if zone.cpus]
    if rules.topology_manager == NumaPolicy.SINGLE:
        yield NodeFinding(
            "cpu manager", Level.FAULT, "no kubelet starts with align-by-socket and single-numa-node", "leave the option out"
        )
    elif with_cpus and numa.sockets > len(with_cpus):
        yield NodeFinding(
            "cpu manager", Level.FAULT, f"no kubelet starts with align-by-socket where {numa.sockets} sockets are on {len(with_cpus)} NUMA nodes",
            "leave the option out",
        )  # fmt: skip
    elif any(zone.socket < 0 for zone in with_cpus):
        yield NodeFinding(
            "cpu manager", Level.WARNING, "align-by-socket, and of which socket NUMA nodes are is not known: HBox foresees the kubelet without the option",
            "is /sys/devices/system/cpu there for node-agent, and node-agent as new as scheduler-core?",
        )  # fmt: skip


def _machine(numa: NodeNuma) -> Iterator[NodeFinding]:
    if numa.lxcfs:
        yield NodeFinding(
            "lxcfs",
            Level.WARNING,
            "mounted: programs see other cores than they have",
            "do not mount it into containers that pin threads",
        )
    if numa.iommu_groups:
        yield NodeFinding(
            "iommu", Level.WARNING, f"{numa.iommu_groups} groups: transfers between cards may go by the root complex",
            "iommu=pt, or off, where no guest needs them",
        )  # fmt: skip
    elif numa.zones:
        yield NodeFinding("iommu", Level.OK, "off")
