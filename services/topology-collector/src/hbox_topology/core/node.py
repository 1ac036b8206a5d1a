"""One node object as scheduling sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, Card, Generation, NodeName, NodeState, Resources, Taint, TaintEffect, capacity_units
from hbox_common.model.annotations import CARD_ADAPTERS, CORDON_REASON, CORDONED_BY
from hbox_common.model.bounds import KEY_BYTES, NAME_BYTES, TEXT_BYTES, is_plain, oversized, sanitized
from hbox_common.model.devices import NodeReport
from hbox_common.model.devices.adapters import parse_card_adapters

from .facts import NodeFacts

#: The condition of a node state whose object could not be read completely; its value is True.
INVENTORY_WARNING = "hbox.io/InventoryProblem"

#: Of a node, so that its state goes into a message of 256 KiB: labels (380 bytes at most, each), taints, conditions, resources.
MAX_LABELS, MAX_TAINTS, MAX_CONDITIONS, MAX_RESOURCES = 300, 100, 60, 128

#: Of one label or annotation that vendors' rules read.
FACT_BYTES = 4096

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """A node's state and what was wrong in its object, in words."""

    state: NodeState
    warnings: tuple[str, ...] = ()


def read_node(facts: NodeFacts, generation: Generation) -> Reading:
    """The state of a node. Never raises: what cannot be understood is left out, so that nothing is promised there, and named in a warning.

    - A vendor's cards in `allocatable` stay what the kubelet admits by: cards, or under HAMi's plugin slots, ten to a card.
    - Where the plugin says only how many cards are allocatable, fewer than its capacity, nobody knows which are bad: the allocatable count stands.
    """
    warnings: list[str] = []
    facts, whole = _bounded(facts, warnings)
    amounts = _amounts(facts.allocatable, warnings)
    # What is of each card is known by its register; HAMi's mock plugin repeats the sums here.
    allocatable = {name: units for name, units in amounts.items() if name not in VENDORS.parts}
    report = NodeReport(facts.name, amounts, facts.labels, facts.annotations)
    cards = _with_adapters(_cards(report, allocatable, warnings), facts.annotations.get(CARD_ADAPTERS, ""), warnings)
    conditions = dict(facts.conditions)
    if warnings:
        conditions[INVENTORY_WARNING] = "True"
    state = NodeState(
        name=NodeName(facts.name),
        uid=facts.uid,
        generation=generation,
        ready=whole and facts.conditions.get("Ready") == "True",
        unschedulable=facts.unschedulable,
        labels=dict(facts.labels),
        taints=_taints(facts, warnings),
        conditions=conditions,
        allocatable=allocatable,
        cards=cards,
        device_facts=_device_facts(facts),
        cordoned_by=sanitized(facts.annotations.get(CORDONED_BY, ""), NAME_BYTES),
        registered=tuple(kind for kind in VENDORS.registered(report) if any(card.kind == kind for card in cards)),
        cordon_reason=sanitized(facts.annotations.get(CORDON_REASON, "")),
    )
    return Reading(state, tuple(sanitized(warning, TEXT_BYTES) for warning in warnings))


def _with_adapters(cards: tuple[Card, ...], text: str, warnings: list[str]) -> tuple[Card, ...]:
    """The cards with the RDMA adapters from the node's annotation."""
    if not text or not cards:
        return cards
    try:
        adapters = parse_card_adapters(text[:FACT_BYTES])
    except InvalidRequest as e:
        warnings.append(f"{CARD_ADAPTERS}: {e}")
        return cards
    if unknown := sorted(adapters.keys() - {card.index for card in cards}):
        warnings.append(f"{CARD_ADAPTERS} has card {unknown[0]}, which the node does not have")
    return tuple(replace(card, adapters=adapters[card.index]) if card.index in adapters else card for card in cards)


def _device_facts(facts: NodeFacts) -> dict[str, str]:
    """What vendors' rules read of the node. What is too long is none: the rule goes without."""
    values = {**facts.labels, **facts.annotations}
    return {name: values[name] for name in sorted(values.keys() & VENDORS.facts) if is_plain(values[name], FACT_BYTES)}


def _bounded(facts: NodeFacts, warnings: list[str]) -> tuple[NodeFacts, bool]:
    """The facts that a message carries, and whether these are all. What is left out may be what keeps pods away, so such a node takes nothing new."""
    before = len(warnings)
    for what, found, most in (
        ("labels", len(facts.labels), MAX_LABELS),
        ("taints", len(facts.taints), MAX_TAINTS),
        ("conditions", len(facts.conditions), MAX_CONDITIONS),
        ("allocatable", len(facts.allocatable), MAX_RESOURCES),
    ):
        if found > most:
            warnings.append(oversized(what, found, most))
    conditions = {
        kind: status for kind, status in facts.conditions.items() if is_plain(kind, KEY_BYTES) and is_plain(status, NAME_BYTES)
    }
    bounded = replace(
        facts,
        labels=_first(facts.labels, MAX_LABELS),
        taints=facts.taints[:MAX_TAINTS],
        conditions=_first(conditions, MAX_CONDITIONS),
        allocatable=_first(facts.allocatable, MAX_RESOURCES),
    )
    return bounded, len(warnings) == before


def _first(entries: Mapping[str, T], most: int) -> Mapping[str, T]:
    return entries if len(entries) <= most else dict(islice(entries.items(), most))


def _amounts(quantities: Mapping[str, str | float], warnings: list[str]) -> Resources:
    amounts: Resources = {}
    for name, quantity in quantities.items():
        try:
            amounts[name] = max(0, capacity_units(name, quantity))
        except InvalidRequest as e:
            warnings.append(f"allocatable {name}: {e.message}")
    return amounts


def _cards(report: NodeReport, allocatable: Resources, warnings: list[str]) -> tuple[Card, ...]:
    """The node's cards of all kinds. `allocatable` is mended: what it says of cards that cannot be read is taken out, and what kubelet does not know of the
    others is put in (`Vendor.offered`)."""
    cards = VENDORS.cards_of(report, warnings.append)
    if not cards and not VENDORS.named(allocatable):
        return cards
    for vendor in VENDORS:
        own = [card for card in cards if card.kind == vendor.kind]
        units = vendor.offered(own, report.amounts.get(vendor.cards, 0)) if own else 0
        if own and (units or vendor.cards in allocatable):
            allocatable[vendor.cards] = units
        else:
            allocatable.pop(vendor.cards, None)
    return cards


def _taints(facts: NodeFacts, warnings: list[str]) -> tuple[Taint, ...]:
    taints = []
    for key, value, effect in facts.taints:
        try:
            taints.append(Taint(key, value, TaintEffect(effect)))
        except ValueError:
            # An effect of a newer Kubernetes: keeping new work away is the safe reading of it.
            warnings.append(f"taint {key}: unknown effect {effect!r}")
            taints.append(Taint(key, value, TaintEffect.NO_SCHEDULE))
    return tuple(taints)
