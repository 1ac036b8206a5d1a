"""The cards of a node, from what its device plugin wrote.

HAMi's register annotation comes first, in both of its forms (reference hami §1.1): a JSON array (v2.8 on) or records
`id,count,devmem,devcore,type,numa,health` with `,index,mode` in newer plugins, each closed by `:`. Without it, the count in `allocatable`
and the labels of GPU feature discovery are all that is known.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model import Card
from hbox_common.model.annotations import GPU_MEMORY_LABEL, GPU_MODEL_LABEL
from hbox_common.model.bounds import ID_BYTES, VALUE_BYTES, is_plain, sanitized
from hbox_common.model.devices import MAX_CARDS, MAX_INDEX, MAX_MEMORY_MIB

#: HAMi's default deviceSplitCount: pods that may share a card of known memory (reference hami §2.1).
DEFAULT_SHARES = 10

#: Of the annotation: a thousand cards' records. Pods that may share one card: HAMi's own users write 10 to 100.
REGISTER_BYTES, MAX_SHARES = 192 * 1024, 10_000

_RECORD_FIELDS = (7, 9)
_GIB_IN_NAME = re.compile(r"(?<![A-Za-z0-9])(\d{1,4})\s?Gi?B(?![A-Za-z])", re.IGNORECASE)
_TRUE, _FALSE = ("true", "1"), ("false", "0", "")


def registered_cards(text: str) -> tuple[Card, ...]:
    """The cards of a `hami.io/node-nvidia-register` annotation, in its order.

    Raises InvalidRequest, saying which record is wrong, for what is neither form; an index twice is wrong too.
    """
    text = text.strip()
    if len(text) > REGISTER_BYTES:
        raise InvalidRequest(f"{len(text)} characters, at most {REGISTER_BYTES} are read")
    cards = _from_json(text) if text.startswith(("[", "{")) else _from_records(text)
    if len(cards) > MAX_CARDS:
        raise InvalidRequest(f"{len(cards)} cards of one node")
    for what, values in (("index", [c.index for c in cards]), ("id", [c.uuid for c in cards])):
        if len(set(values)) != len(values):
            raise InvalidRequest(f"two cards have the same {what}")
    return tuple(cards)


def _from_json(text: str) -> list[Card]:
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
    return [_json_card(position, fields, indexed=indexed) for position, fields in enumerate(cards)]


def _json_card(position: int, fields: Mapping[str, Any], *, indexed: bool) -> Card:
    # Go leaves out zero values when it writes: `index` of card 0 and `health: false` among them. Plugins without an index list in order.
    uuid, model, healthy = fields.get("id", ""), fields.get("type", ""), fields.get("health", False)
    if not isinstance(uuid, str) or not uuid or not isinstance(model, str) or not isinstance(healthy, bool):
        raise InvalidRequest(f"card {position}: id, type or health is missing or of the wrong kind")
    return _card(
        position,
        index=_whole(position, "index", fields.get("index", 0)) if indexed else position,
        uuid=uuid,
        model=model,
        memory_mib=_whole(position, "devmem", fields.get("devmem", 0)),
        shares=_whole(position, "count", fields.get("count", 1)),
        numa=_whole(position, "numa", fields.get("numa", 0)),
        healthy=healthy,
    )


def _from_records(text: str) -> list[Card]:
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
                model=fields[4],
                memory_mib=_whole(position, "devmem", fields[2]),
                shares=_whole(position, "count", fields[1]),
                numa=_whole(position, "numa", fields[5]),
                healthy=health in _TRUE,
            )
        )
    return cards


def _card(position: int, *, index: int, uuid: str, model: str, memory_mib: int, shares: int, numa: int, healthy: bool) -> Card:
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
        model=model.removeprefix("NVIDIA-"),  # the plugin puts its vendor word before the product's name
        memory_mib=memory_mib,
        shares=shares,
        numa=numa,
        healthy=healthy,
    )


def _whole(position: int, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidRequest(f"card {position}: {name} is not a whole number")
    try:
        return int(value)
    except ValueError as e:
        raise InvalidRequest(f"card {position}: {name} is {sanitized(str(value), 64)!r}, not a whole number") from e


def counted_cards(node: str, count: int, labels: Mapping[str, str]) -> tuple[Card, ...]:
    """`count` cards as the labels describe them, with ids `<node>-<index>`.

    Memory is the label's, else what the product's name says (`A100-SXM4-80GB`), else 0: such a card can only be taken whole.
    """
    model = labels.get(GPU_MODEL_LABEL, "")
    memory = _memory_mib(labels.get(GPU_MEMORY_LABEL, ""), model)
    shares = DEFAULT_SHARES if memory else 1
    return tuple(Card(index=i, uuid=f"{node}-{i}", model=model, memory_mib=memory, shares=shares) for i in range(count))


def _memory_mib(label: str, model: str) -> int:
    if label.isascii() and label.isdigit() and 0 < int(label) <= MAX_MEMORY_MIB:
        return int(label)
    in_name = _GIB_IN_NAME.search(model)
    return int(in_name[1]) * 1024 if in_name else 0
