"""Kernel records as observations: which entity each one is about. Pure."""

from collections.abc import Iterable, Mapping

from hbox_common.health.records import Record, card_of
from hbox_common.health.report import NODE, Check

from .reports import Observation

#: Kinds that are about a card if they have its address.
_OF_CARDS = frozenset({"xid", "gpu-lost", "gpu-init-failed", "reset-required", "gpu-uuid", "gsp-rate-limit", "aer"})


def observations(
    records: Iterable[Record], *, cards: Mapping[str, str], rails: Mapping[str, str], booted_at: float
) -> list[Observation]:
    """cards: uuid by PCI address without function; rails: name of the adapter by PCI address. booted_at: when the kernel's clock was 0, since the epoch."""
    return [_observation(record, cards, rails, booted_at) for record in records]


def _observation(record: Record, cards: Mapping[str, str], rails: Mapping[str, str], booted_at: float) -> Observation:
    kind = str(record.get("kind", "xid"))
    at = record.get("at")
    time = booted_at + at if isinstance(at, float) else None
    value = {key: one for key, one in record.items() if key not in ("at", "text")}
    if kind == "records-lost":
        text = "the kernel overwrote records before they were read"
        return Observation(Check.KERNEL_LOG, NODE, "gap", value, text, time, event=True)
    code = str(record.get("code", kind))
    return Observation(
        Check.KERNEL_LOG, _entity(kind, record, cards, rails), code, value, str(record.get("text", "")), time, event=True
    )


def _entity(kind: str, record: Record, cards: Mapping[str, str], rails: Mapping[str, str]) -> str:
    pci = card_of(record)
    if kind.startswith("sxid"):
        return f"switch:{pci}" if pci else NODE
    if isinstance(uuid := record.get("uuid"), str):
        return f"gpu:{uuid}"
    if pci is not None and pci in cards:
        return f"gpu:{cards[pci]}"
    if pci is not None and pci in rails:
        return f"rail:{rails[pci]}"
    return f"gpu:{pci}" if pci and kind in _OF_CARDS else NODE
