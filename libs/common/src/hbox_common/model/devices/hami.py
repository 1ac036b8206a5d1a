"""Vendors whose cards are shared by HAMi: one grammar for nodes, requests and allocations, with each vendor's own names
(sources: hami-annotations, hami-nvidia).

- A node's register annotation has precedence, in both of its forms: a JSON array (v2.8 on) or records `id,count,devmem,devcore,type,numa,health` with
  `,index,mode` in newer plugins, each closed by `:`. Without it, only the count in `allocatable` and two labels are known.
- `<cards>: n` requests n whole cards, unless the same container requests a part of each: MiB, else percent of the memory.
- Compute is a percentage of each card's; with a part of the memory and no compute, the default of the vendor's plugin applies (`cores_unnamed`); without
  either, or with all of the memory, the card is allocated exclusively (100), as set by HAMi's webhook from v2.10.
- MiB have precedence over percent, and 0 MiB count as not set, as in HAMi.

Parts without a number of cards mean one card, as completed by HAMi's webhook (`Ask.completed`).

Fitting and selection of cards: `cardvendor`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hbox_common.errors import InvalidRequest

from ..bounds import ID_BYTES, VALUE_BYTES, is_plain, sanitized
from .asking import Ask
from .cards import ALL_CORES, MAX_CARDS, MAX_INDEX, MAX_MEMORY_MIB, Card, CardSlice, CardTraits
from .cardvendor import CardVendor
from .identity import made_up_id
from .layout import Layout
from .mig import MIG, registered_profiles
from .vendor import NodeReport, Quantity, whole_number

#: HAMi's default deviceSplitCount: pods that may share a card of known memory (sources: hami-nvidia).
DEFAULT_SHARES = 10

#: Of the annotation: a thousand cards' records. Pods that may share one card: HAMi's own users write 10 to 100.
REGISTER_BYTES, MAX_SHARES = 192 * 1024, 10_000

#: Maximum number of cards that `allocatable` alone proves. A larger number, and a multiple of HAMi's default of slots for each card, may be slots.
MOST_PLAIN = 16
#: The node label by which HAMi's chart selects nodes for its plugin, and the annotation that its plugin or scheduler writes on nodes.
HAMI_LABEL, HAMI_ON, HANDSHAKE = "gpu", "on", "hami.io/node-handshake"

_RECORD_FIELDS = (7, 9)
_ALLOCATED_FIELDS = 4
_GIB_IN_NAME = re.compile(r"(?<![A-Za-z0-9])(\d{1,4})\s?Gi?B(?![A-Za-z])", re.IGNORECASE)
_TRUE, _FALSE = ("true", "1"), ("false", "0", "")
_NO_WISHES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HamiVendor(CardVendor):
    register_annotation: str = ""  #: of a node: its cards
    type_prefix: str = ""  #: that the plugin puts before the product's name in the register
    #: of a node: its number of cards, from the vendor's feature discovery; empty: `allocatable` is the number
    count_label: str = ""
    replicas_label: str = ""  #: of a node: units of `cards` that its plugin offers for each card
    model_label: str = ""  #: of a node: the product's name, where there is no register
    memory_label: str = ""  #: of a node: MiB of each card
    cores_unnamed: int = 0  #: default percent of compute for a request with a part of the memory
    memory_unnamed_mib: int = 0  #: of each card where a container names no memory; 0 = all of it
    count_unnamed: int = 1  #: cards where a container names only parts of them
    shares_unregistered: int = DEFAULT_SHARES  #: pods to a card of known memory that no plugin registered
    memory_unregistered_mib: int = 0  #: of such a card if neither label nor product name states it
    cores_in_percent: bool = True  #: whether allocations say compute in percent, and not in the card's own units
    allocated_unit_mib: int = 1  #: of the memory in allocations

    def register(self, node: NodeReport) -> tuple[Card, ...]:
        """Without a register, as many cards as the kubelet's allocatable, described by the labels, with ids `<node>-<index>`. Memory is the label's, else from
        the product's name (`A100-SXM4-80GB`), else 0: such a card can only be allocated whole."""
        text = node.annotations.get(self.register_annotation)
        if text is not None:
            try:
                return registered_cards(text, self.type_prefix)
            except InvalidRequest as e:
                raise InvalidRequest(f"annotation {self.register_annotation}: {e.message}") from e
        self._refuse_slots(node)
        model = node.labels.get(self.model_label, "")
        memory = _memory_mib(node.labels.get(self.memory_label, ""), model) or self.memory_unregistered_mib
        shares = self.shares_unregistered if memory else 1
        count = node.amounts.get(self.cards, 0)
        return tuple(
            Card(index=i, uuid=made_up_id(node.name, i), model=model, memory_mib=memory, shares=shares) for i in range(count)
        )

    def _refuse_slots(self, node: NodeReport) -> None:
        """Raises InvalidRequest if the allocatable units may be slots of HAMi's plugin: the kubelet publishes slots before the plugin registers the cards."""
        count = node.amounts.get(self.cards, 0)
        if not self.count_label or not count:
            return
        cards = _count(node.labels.get(self.count_label, ""))
        if cards is not None:
            slots = count > cards * (_count(node.labels.get(self.replicas_label, "")) or 1)
        else:
            hami = node.labels.get(HAMI_LABEL) == HAMI_ON or HANDSHAKE in node.annotations
            slots = hami or count > MOST_PLAIN or count % DEFAULT_SHARES == 0
        if slots:
            raise InvalidRequest(
                f"allocatable {self.cards}: {count} may be slots of HAMi's plugin, which has not registered the cards yet",
                hint=f"if these are cards, label the node {self.count_label}={count}",
            )

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:  # noqa: ARG002
        count = whole_number(self.cards, asked) or 0
        cores = whole_number(self.cores, asked)
        memory = (whole_number(self.memory, asked) or 0) * self.memory_unit_mib
        percent = whole_number(self.memory_percent, asked)
        completed: tuple[str, ...] = ()
        if count == 0:
            if not any(whole_number(name, asked) for name in self.parts):
                return None
            count, completed = self.count_unnamed, (self.cards,)
        self.bounded(count)
        if cores is not None:
            cores = min(cores, ALL_CORES)  # more than a card is a whole one, as in HAMi
        if memory > MAX_MEMORY_MIB:
            raise InvalidRequest(f"{self.memory} is {asked[self.memory]}", hint="write the memory of one card")
        if percent is not None and percent > 100:
            raise InvalidRequest(
                f"{self.memory_percent} is {percent}", hint="write the percentage of one card's memory, 1 to 100"
            )
        if not memory and not percent:
            memory = self.memory_unnamed_mib
        with_part = self.cores_unnamed if cores is None else cores
        if memory:
            return Ask(self.kind, count, cores=with_part, memory_mib=memory, completed=completed)
        if not percent or percent == 100:
            return Ask(self.kind, count, cores=ALL_CORES if cores is None else cores, completed=completed)
        return Ask(self.kind, count, cores=with_part, memory_percent=percent, completed=completed)

    def amounts_of(self, count: int, memory_mib: int = 0, cores: int = 0) -> Mapping[str, int]:
        amounts = {self.cards: count}
        if memory_mib and self.memory:
            amounts[self.memory] = -(-memory_mib // self.memory_unit_mib)
            if cores and self.cores:
                amounts[self.cores] = cores
        return amounts

    def registered(self, node: NodeReport) -> bool:
        return self.register_annotation in node.annotations

    def annotate(
        self,
        layout: Layout,
        cards: Mapping[int, Card],
        *,
        node: str = "",  # noqa: ARG002
        now: float = 0.0,  # noqa: ARG002
    ) -> dict[str, str]:
        """Both annotations alike: `<uuid>,<kind>,<MiB>,<cores>:` a card, `;` a container (sources: hami-annotations)."""
        text = "".join("".join(self.device_text(cards[s.index], s) + ":" for s in one) + ";" for one in layout)
        return {name: text for name in (self.to_allocate_annotation, self.allocated_annotation) if name}

    def device_text(self, card: Card, taken: CardSlice) -> str:
        """One card of a container, as the plugin reads it."""
        return f"{card.uuid},{self.kind},{taken.memory_mib},{taken.cores}"

    def rebuild(
        self, allocated: str, cards: Sequence[Card], asks: Sequence[Ask], wishes: Mapping[str, str] = _NO_WISHES
    ) -> Layout:
        """Of each container `uuid,type,MiB,cores:` per card, containers divided by `;`."""
        by_uuid = {card.uuid: card for card in cards}
        layout = []
        for position, container in enumerate(allocated.split(";")[:-1] if allocated.endswith(";") else allocated.split(";")):
            ask = next((ask for ask in asks if ask.container == position), None)
            slices = []
            for record in container.split(":"):
                fields = [part.strip() for part in record.split(",")]
                uuid, part = self.identity(fields[0])
                known = len(fields) >= _ALLOCATED_FIELDS and uuid in by_uuid
                if not known or not all(text.isascii() and text.isdecimal() and len(text) < 11 for text in fields[2:4]):
                    continue
                memory_mib = min(int(fields[2]) * self.allocated_unit_mib, MAX_MEMORY_MIB)
                taken = self.taken(by_uuid[uuid], memory_mib, int(fields[3]), ask, wishes)
                slices.append(replace(taken, part=part) if part else taken)
            layout.append(tuple(slices))
        return tuple(layout) if any(layout) else ()

    def identity(self, text: str) -> tuple[str, str]:
        """The id of a card in such an annotation, and the part of the card given with it."""
        return text, ""

    def taken(self, card: Card, memory_mib: int, cores: int, ask: Ask | None, wishes: Mapping[str, str]) -> CardSlice:  # noqa: ARG002
        """The slice in one record of an allocation. Compute in the card's own units is taken from the request, else from the percentage, rounded up."""
        if not self.cores_in_percent:
            units = card.effective_traits.units
            cores = -(-cores * ALL_CORES // units) if ask is None else ask.cores
        return CardSlice(card.index, min(cores, ALL_CORES), memory_mib)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountedVendor(HamiVendor):
    """Cards without a node annotation: as many as the kubelet's allocatable, all equal, with HAMi's ids (`<node>-<word>-<index>`)."""

    word: str  #: in ids
    model: str = ""
    memory_mib: int = 0
    shares: int = 1

    def register(self, node: NodeReport) -> tuple[Card, ...]:
        count = node.amounts.get(self.cards, 0)
        if count > MAX_CARDS:
            raise InvalidRequest(f"allocatable {self.cards}: {count} cards on one node")
        return tuple(self.card(node, index, count) for index in range(count))

    def registered(self, node: NodeReport) -> bool:
        return bool(self.allocated_annotation and node.amounts.get(self.cards, 0))

    def card(self, node: NodeReport, index: int, count: int) -> Card:  # noqa: ARG002  most vendors' are all alike
        return Card(
            index=index,
            uuid=f"{node.name}-{self.word}-{index}",
            model=self.model,
            memory_mib=self.memory_mib,
            shares=self.shares,
            numa=0,
        )


def registered_cards(text: str, type_prefix: str = "") -> tuple[Card, ...]:
    """The cards of a register annotation, in its order.

    Raises InvalidRequest that names the faulty record, for a text in neither form, and for a duplicate index.
    """
    text = text.strip()
    if len(text) > REGISTER_BYTES:
        raise InvalidRequest(f"{len(text)} characters, at most {REGISTER_BYTES} are read")
    cards = _from_json(text, type_prefix) if text.startswith(("[", "{")) else _from_records(text, type_prefix)
    if len(cards) > MAX_CARDS:
        raise InvalidRequest(f"{len(cards)} cards of one node")
    for what, values in (("index", [c.index for c in cards]), ("id", [c.uuid for c in cards])):
        if len(set(values)) != len(values):
            raise InvalidRequest(f"two cards have the same {what}")
    return tuple(cards)


def _from_json(text: str, type_prefix: str) -> list[Card]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise InvalidRequest(f"not valid JSON: {e}") from e
    if not isinstance(found, list):
        raise InvalidRequest("a JSON array of cards is expected")
    if not all(isinstance(entry, dict) for entry in found):
        raise InvalidRequest("a JSON array of objects is expected")
    # Go reads names without regard to case.
    cards = [{str(name).lower(): value for name, value in entry.items()} for entry in found]
    indexed = any("index" in fields for fields in cards)
    groups: dict[str, int] = {}
    return [_json_card(position, fields, type_prefix, groups, indexed=indexed) for position, fields in enumerate(cards)]


def _json_card(position: int, fields: Mapping[str, Any], type_prefix: str, groups: dict[str, int], *, indexed: bool) -> Card:
    # Go leaves out zero values when it writes: `index` of card 0 and `health: false` among them. Plugins without an index list in order.
    uuid, model, healthy = fields.get("id", ""), fields.get("type", ""), fields.get("health", False)
    if not isinstance(uuid, str) or not uuid or not isinstance(model, str) or not isinstance(healthy, bool):
        raise InvalidRequest(f"card {position}: id, type or health is missing or of the wrong kind")
    return _card(
        position,
        index=_whole(position, "index", fields.get("index", 0)) if indexed else position,
        uuid=uuid,
        model=model.removeprefix(type_prefix),
        memory_mib=_whole(position, "devmem", fields.get("devmem", 0)),
        shares=_whole(position, "count", fields.get("count", 1)),
        numa=_whole(position, "numa", fields.get("numa", 0)),
        healthy=healthy,
        traits=_traits(position, fields, groups),
    )


def _traits(position: int, fields: Mapping[str, Any], groups: dict[str, int]) -> CardTraits | None:
    """None if the record has only defaults. `groups`: of the node's links so far, by name."""
    mode, units = fields.get("mode", ""), _whole(position, "devcore", fields.get("devcore", ALL_CORES))
    info = fields.get("custominfo") or {}
    if not isinstance(info, dict):
        raise InvalidRequest(f"card {position}: custominfo is no object")
    mode = mode or info.get("DeviceStrategy", "")
    if not isinstance(mode, str) or not is_plain(mode, VALUE_BYTES) or not 0 <= units <= MAX_MEMORY_MIB:
        raise InvalidRequest(f"card {position}: mode or devcore is of the wrong kind, or out of range")
    # Ascend's HCCS group, and Vastai's card of several dies, which may be named by words.
    name, group = info.get("NetworkID", info.get("AIC")), -1
    if name is not None:
        if isinstance(name, bool) or not isinstance(name, str | int | float):
            raise InvalidRequest(f"card {position}: NetworkID or AIC is of the wrong kind")
        group = groups.setdefault(str(name), len(groups))
    profiles = registered_profiles(position, fields.get("migprofiles")) if mode == MIG else ()
    traits = CardTraits(mode=mode, units=units or ALL_CORES, group=group, profiles=profiles)
    return traits if traits != CardTraits() else None


def _record_traits(position: int, fields: Sequence[str]) -> CardTraits | None:
    if len(fields) < max(_RECORD_FIELDS):
        return None
    return _traits(position, {"devcore": fields[3], "mode": fields[8]}, {})


def _from_records(text: str, type_prefix: str) -> list[Card]:
    cards = []
    for position, record in enumerate(part for part in text.split(":") if part.strip()):
        fields = [f.strip() for f in record.split(",")]
        if len(fields) not in _RECORD_FIELDS:
            raise InvalidRequest(f"card {position}: {len(fields)} fields, 7 or 9 are expected")
        health = fields[6].lower()
        if health not in _TRUE + _FALSE:
            raise InvalidRequest(f"card {position}: health is {fields[6]!r}, true or false is expected")
        cards.append(
            _card(
                position,
                index=_whole(position, "index", fields[7]) if len(fields) == max(_RECORD_FIELDS) else position,
                uuid=fields[0],
                model=fields[4].removeprefix(type_prefix),
                memory_mib=_whole(position, "devmem", fields[2]),
                shares=_whole(position, "count", fields[1]),
                numa=_whole(position, "numa", fields[5]),
                healthy=health in _TRUE,
                traits=_record_traits(position, fields),
            )
        )
    return cards


def _card(
    position: int,
    *,
    index: int,
    uuid: str,
    model: str,
    memory_mib: int,
    shares: int,
    numa: int,
    healthy: bool,
    traits: CardTraits | None = None,
) -> Card:
    if not uuid:
        raise InvalidRequest(f"card {position}: it has no id")
    if not (is_plain(uuid, ID_BYTES) and is_plain(model, VALUE_BYTES)):
        raise InvalidRequest(f"card {position}: its id or type is too long, or has control characters")
    if not (
        0 <= index <= MAX_INDEX and 0 <= memory_mib <= MAX_MEMORY_MIB and 1 <= shares <= MAX_SHARES and abs(numa) <= MAX_INDEX
    ):
        raise InvalidRequest(f"card {position}: index {index}, devmem {memory_mib}, count {shares}: out of range")
    return Card(
        index=index,
        uuid=uuid,
        model=model,
        memory_mib=memory_mib,
        shares=shares,
        numa=numa,
        healthy=healthy,
        traits=traits,
    )


def _whole(position: int, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidRequest(f"card {position}: {name} is not a whole number")
    try:
        return int(value)
    except ValueError as e:
        raise InvalidRequest(f"card {position}: {name} is {sanitized(str(value), 64)!r}, not a whole number") from e


def _count(label: str) -> int | None:
    """The value of a label that counts cards or their replicas; None if it is no such number."""
    return int(label) if label.isascii() and label.isdecimal() and len(label) < 6 else None


def _memory_mib(label: str, model: str) -> int:
    if label.isascii() and label.isdigit() and 0 < int(label) <= MAX_MEMORY_MIB:
        return int(label)
    in_name = _GIB_IN_NAME.search(model)
    return int(in_name[1]) * 1024 if in_name else 0
