"""What the NVML reader wrote, as a value of the model, within bounds. The words are those of a driver: nothing of them is believed to be well-formed."""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hbox_common.model.bounds import ID_BYTES, VALUE_BYTES, is_plain, sanitized
from hbox_common.model.nodenvml import MAX_CARDS, MAX_INSTANCES, MAX_LINKS, MAX_PROBLEMS, MigInstance, NodeNvml, NvmlCard

_ADDRESS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
#: nvmlGpuFabricState_t
_FABRIC = {1: "not-started", 2: "in-progress", 3: "completed"}
_MOST_MIB = 2**31


def nvml_of(lines: Sequence[str], last: NodeNvml, *, problem: str = "") -> NodeNvml:
    """lines: what the reader wrote; problem: why it ended too early, as far as that is known. Where the answer is not whole, the cards of `last` stand, with
    the reason. Never raises."""
    driver, count, asking, found = "", None, None, {}
    for line in lines:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            continue
        driver = _word(fields["driver"]) if "driver" in fields else driver
        problem = _word(fields["problem"]) or problem if "problem" in fields else problem
        count = _number(fields.get("count"), MAX_CARDS + 1) if "count" in fields else count
        asking = _number(fields.get("asking"), MAX_CARDS) if "asking" in fields else asking
        card = _card(fields["card"]) if isinstance(fields.get("card"), dict) else None
        if card is not None:
            found[card.index], asking = card, None
    if count is None and asking is not None:
        problem = f"{problem or 'it ended'}, asked for card {asking}"
    if count is None or problem:
        return replace(last, problem=sanitized(problem or "it ended before it had answered", VALUE_BYTES))
    return NodeNvml(driver, tuple(found[index] for index in sorted(found)[:MAX_CARDS]))


def _card(fields: dict[str, Any]) -> NvmlCard | None:
    index = _number(fields.get("index"), MAX_CARDS)
    if index is None:
        return None
    errors = fields.get("errors")
    errors = errors if isinstance(errors, dict) else {}
    if "lost" in errors:
        return NvmlCard(index, lost=True)
    mig, ecc, remapped, fabric = (fields.get(key) for key in ("mig", "ecc", "remapped", "fabric"))
    links, down = _links(fields.get("links"))
    numa = fields.get("numa")
    remapped = remapped if isinstance(remapped, list) and len(remapped) == 4 else [0, 0, 0, 0]
    return NvmlCard(
        index,
        uuid=_id(fields.get("uuid")),
        address=_address(fields.get("address")),
        model=_word(fields.get("model")),
        memory_mib=(_number(fields.get("memory"), _MOST_MIB << 20) or 0) >> 20,
        numa=numa[0] if isinstance(numa, list) and len(numa) == 1 and _number(numa[0], 65_536) is not None else -1,
        mig=_mode(mig),
        mig_pending=_differs(mig),
        instances=_instances(fields.get("instances")),
        links=links,
        links_down=down,
        clique=_clique(fabric),
        fabric=_state(fabric),
        ecc=_mode(ecc),
        ecc_pending=_differs(ecc),
        remap_pending=bool(remapped[2]) or fields.get("retired") == 1,
        remap_failed=bool(remapped[3]),
        problems=tuple(_word(f"{what}: {why}") for what, why in list(errors.items())[:MAX_PROBLEMS]),
    )


def _word(value: Any) -> str:
    return "" if value is None else sanitized(str(value), VALUE_BYTES)


def _id(value: Any) -> str:
    return value if isinstance(value, str) and is_plain(value, ID_BYTES) else ""


def _number(value: Any, below: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below else None


def _address(value: Any) -> str:
    """As /sys writes it: the domain has four digits, NVML writes eight, and in capitals."""
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return ""
    domain = match[1].lower()
    return (
        f"{domain[4:] if len(domain) == 8 and domain.startswith('0000') else domain}:{match[2]}:{match[3]}.{match[4]}".lower()
    )


def _mode(value: Any) -> str:
    return ("on" if value[0] else "off") if isinstance(value, list) and len(value) == 2 else ""


def _differs(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and value[0] != value[1]


def _instances(value: Any) -> tuple[MigInstance, ...]:
    found = [
        MigInstance(one[0], _id(one[1]))
        for one in (value if isinstance(value, list) else ())
        if isinstance(one, list) and len(one) == 2 and _id(one[0])
    ]
    return tuple(sorted(found[:MAX_INSTANCES], key=lambda one: one.uuid))


def _links(value: Any) -> tuple[dict[str, int], tuple[int, ...]]:
    """How many are up to each peer, and the numbers of those that are down."""
    up: dict[str, int] = {}
    down: list[int] = []
    for one in (value if isinstance(value, list) else ())[:MAX_LINKS]:
        if not (isinstance(one, list) and len(one) == 2 and _number(one[0], MAX_LINKS) is not None):
            continue
        if one[1]:
            peer = "switch" if one[1] == "switch" else _address(one[1]) or "other"
            up[peer] = up.get(peer, 0) + 1
        else:
            down.append(one[0])
    return dict(sorted(up.items())), tuple(down)


def _clique(fabric: Any) -> str:
    """Of a card that is in a domain of several nodes; a box with NVSwitches of its own has a cluster of zeros."""
    if not isinstance(fabric, dict) or not isinstance(cluster := fabric.get("cluster"), str):
        return ""
    clique = _number(fabric.get("clique"), 2**32)
    if clique is None or not re.fullmatch(r"[0-9a-f]{32}", cluster) or not int(cluster, 16) or _state(fabric) != "completed":
        return ""
    return f"{uuid.UUID(cluster)}.{clique}"


def _state(fabric: Any) -> str:
    if not isinstance(fabric, dict):
        return ""
    state = _FABRIC.get(fabric["state"], "") if isinstance(fabric.get("state"), int) else ""
    return "failed" if state == "completed" and fabric.get("status") != 0 else state
