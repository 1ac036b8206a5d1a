"""Compares the cards that NVML reports on a node with /sys and the kubelet. Pure."""

from collections.abc import Iterator, Sequence

from hbox_common.model import NodeDevices, NodeNuma, NodeNvml, NvmlCard, PciKind

from .findings import Level, NodeFinding

#: PCI vendor id.
NVIDIA = "0x10de"
#: Characters of GPU-<uuid>.
_UUID = 40


def nvml_findings(numa: NodeNuma, nvml: NodeNvml, devices: NodeDevices | None) -> Iterator[NodeFinding]:
    if nvml.problem:
        old = "; its last answer follows" if nvml.cards else ""
        yield NodeFinding(
            "nvml", Level.WARNING, f"{nvml.problem}{old}", "nvidia-smi on the node; services/node-agent/README.md"
        )
    cards = nvml.cards
    if not cards:
        return
    faults = list(_compared_with_sys(numa, cards))
    if devices is not None:
        faults += _compared_with_kubelet(cards, devices)
    for card in cards:
        faults += _card(card, linked=any(one.links for one in cards))
    if len({card.clique for card in cards if not card.lost}) > 1:
        known = ", ".join(sorted({card.clique or "none" for card in cards if not card.lost}))
        fix = "the fabric manager's partitions; a node is in one NVLink domain"
        faults.append(NodeFinding("nvlink", Level.FAULT, f"its cards are in several domains: {known}", fix))
    yield from faults
    if not faults and not nvml.problem:
        yield NodeFinding("nvml", Level.OK, f"driver {nvml.driver}: {len(cards)} cards, where /sys has them")


def _compared_with_sys(numa: NodeNuma, cards: Sequence[NvmlCard]) -> Iterator[NodeFinding]:
    own = {one.address: one.numa for one in numa.devices if one.kind is PciKind.CARD and one.vendor == NVIDIA}
    its = {card.address: card for card in cards if card.address}
    if own and (missing := sorted(own.keys() - its.keys())):
        yield NodeFinding(
            "nvml", Level.FAULT, f"/sys has {', '.join(missing[:8])}, of which NVML knows nothing",
            "dmesg | grep Xid; drain the node, and reset the card or reboot",
        )  # fmt: skip
    if own and (more := sorted(its.keys() - own.keys())):
        yield NodeFinding(
            "nvml", Level.FAULT, f"NVML has {', '.join(more[:8])}, which /sys does not: fallen off the bus", "reboot"
        )
    wrong = [
        f"{address} on node {its[address].numa} ({own[address]} by /sys)"
        for address in sorted(own.keys() & its.keys())
        if own[address] >= 0 and its[address].numa >= 0 and own[address] != its[address].numa
    ]
    if wrong:
        yield NodeFinding("nvml", Level.WARNING, f"it has {', '.join(wrong[:8])}", "compare both with the firmware's settings")


def _compared_with_kubelet(cards: Sequence[NvmlCard], devices: NodeDevices) -> Iterator[NodeFinding]:
    """Where its plugin gives out cards by their ids, and not slots or replicas."""
    known = {id_ for part in devices.allocatable for id_ in part.ids if id_.startswith("GPU-") and len(id_) == _UUID}
    if known and (gone := sorted(known - {card.uuid for card in cards if card.uuid})):
        yield NodeFinding(
            "nvml", Level.FAULT, f"the kubelet gives out {', '.join(gone[:4])}, of which NVML knows nothing",
            "restart the device plugin once the card is back",
        )  # fmt: skip


def _card(card: NvmlCard, *, linked: bool) -> Iterator[NodeFinding]:
    """linked: some card of the node has NVLinks that are up, so that all should."""
    name = f"card {card.index}"
    if card.lost:
        yield NodeFinding(name, Level.FAULT, "lost: it answers no call", "drain the node; reset the card, or reboot")
        return
    if linked and card.links_down:
        links = ", ".join(map(str, card.links_down[:8]))
        yield NodeFinding(name, Level.FAULT, f"NVLink {links} down", "nvidia-smi nvlink -s; drain the node, and reset the card")
    if card.fabric and card.fabric != "completed":
        yield NodeFinding(name, Level.FAULT, f"the fabric manager: {card.fabric}", "systemctl status nvidia-fabricmanager")
    if card.remap_failed:
        yield NodeFinding(name, Level.FAULT, "no rows of memory are left to replace bad ones by", "have the card repaired")
    elif card.remap_pending:
        yield NodeFinding(
            name, Level.WARNING, "bad rows or pages of memory are replaced at its next reset", "reset it when idle"
        )
    if card.ecc == "off":
        yield NodeFinding(name, Level.WARNING, "ECC is off: what is computed may be wrong", "nvidia-smi -e 1, and reset it")
    modes = ", ".join(word for word, pending in (("MIG", card.mig_pending), ("ECC", card.ecc_pending)) if pending)
    if modes:
        yield NodeFinding(name, Level.WARNING, f"{modes}: another mode at its next reset", "reset it when idle")
    for problem in card.problems:
        yield NodeFinding(name, Level.WARNING, f"NVML does not say: {problem}")
