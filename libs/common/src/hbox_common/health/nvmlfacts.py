"""What NVIDIA's management library returned for a card, as the state of the card. Pure.

Raw values are those of node-agent's reader: for each question the answer, or `{"error": code}` with NVML's return code. NOT_SUPPORTED is an answer: rows and
their histogram then are `NOT_SUPPORTED` (as with MIG), any other key is left out, and so is what an old driver does not know (FUNCTION_NOT_FOUND). Values that
move all the time are cut to what a judgement needs, since each change is a fact: of the margin to the thermal limit what is below MARGIN, of the reasons for
lower clocks those that hardware sets.

Keys: `pci`, `index`, `model`, `every_call` (the return code of a lost card), `recovery_action`, `remapped_rows`, `histogram`, `sram_threshold_exceeded`,
`ecc_aggregate`, `ecc_dbe_volatile`, `ecc_sbe_aggregate`, `ecc_sbe_volatile`, `channel_repair_pending`, `tpc_repair_pending`, `unrepairable_memory`,
`inforom_validate`, `nvlinks_active`, `nvlinks_inactive`, `fabric`, `mig`, `mig_pending`, `mig_instances`, `tlimit_margin`, `slowdown_tlimit`,
`clocks_event_reasons`, `persistence`, `ecc`, `pcie_width`, `pcie_width_max`, `errors` (return code by question).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .records import Record, pci_of

#: NVML's return codes.
NOT_SUPPORTED, FUNCTION_NOT_FOUND, GPU_IS_LOST = 3, 13, 15
#: nvmlGpuFabricState_t
FABRIC_STATES = {0: "not-supported", 1: "not-started", 2: "in-progress", 3: "completed"}
#: Degrees below the limit of operation from which on the margin is published.
MARGIN = 5
#: Hardware slowdown, software and hardware thermal slowdown, power brake.
REASONS = 0x8 | 0x20 | 0x40 | 0x80

_QUESTIONS = ("remapped", "histogram", "sram", "ecc_dbe_volatile", "ecc_sbe_volatile", "reasons", "persistence")
_HISTOGRAM = ("max", "high", "partial", "low", "none")


def card_state(raw: Mapping[str, Any]) -> Record:
    """The state of a card from the reader's raw values. Never raises."""
    errors: dict[str, int] = {str(name): code for name, one in raw.items() if (code := _error(one)) is not None}
    state: Record = {"index": _number(raw.get("index")) or 0}
    if pci := pci_of(str(raw.get("address") or ""), function=False):
        state["pci"] = pci
    if isinstance(model := raw.get("model"), str):
        state["model"] = model
    every = _number(raw.get("every_call"))
    if raw.get("lost") or GPU_IS_LOST in errors.values() or every is not None:
        return state | {"every_call": GPU_IS_LOST if every is None else every}
    state |= _simple(raw) | _memory(raw, errors) | _links(raw) | _mig(raw) | _thermal(raw)
    fabric = raw.get("fabric")
    if isinstance(fabric, dict) and "error" not in fabric:
        state["fabric"] = _fabric(fabric)
    if (code := _every(raw, errors)) is not None:
        return {key: state[key] for key in ("index", "pci", "model", "recovery_action") if key in state} | {"every_call": code}
    if others := {name: code for name, code in errors.items() if code not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND)}:
        state["errors"] = others
    return state


def cards_of(lines: Iterable[str], *, problem: str = "") -> tuple[Record, list[tuple[str, Record]]]:
    """The reader's lines of JSON as the state of NVML on the node, and of each card with its uuid ("": it states none). An incomplete answer has a
    `problem`, and `asking`, the index of the card whose answer is missing, and does not say which cards are `listed`. Never raises."""
    node: Record = {"init": 0}
    cards: list[tuple[str, Record]] = []
    asking: int | None = None
    for line in lines:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(fields, dict):
            continue
        for key in ("init", "count"):
            if (found := _number(fields.get(key))) is not None:
                node[key] = found
        asking = _number(fields.get("asking")) if "asking" in fields else asking
        problem = str(fields.get("problem") or problem)
        if isinstance(fields.get("driver"), str):
            node["driver"] = fields["driver"]
        if isinstance(card := fields.get("card"), dict):
            health, asking = card.get("health"), None
            uuid = card.get("uuid")
            cards.append(
                (uuid if isinstance(uuid, str) else "", card_state({**card, **(health if isinstance(health, dict) else {})}))
            )
    if problem or "count" not in node:
        node["problem"] = problem or "it ended before it had answered"
        if asking is not None:
            node["asking"] = asking
    else:
        node["listed"] = sorted(uuid for uuid, card in cards if uuid and "every_call" not in card)
    return node, cards


def _every(raw: Mapping[str, Any], errors: Mapping[str, int]) -> int | None:
    """The return code of all questions but the recovery action; None if they differ, or if it means that the card does not have the values."""
    asked = [name for name in _QUESTIONS if name in raw]
    codes = {errors.get(name) for name in asked}
    code = codes.pop() if len(asked) > 1 and len(codes) == 1 else None
    return None if code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND) else code


def _error(one: Any) -> int | None:
    return _number(one.get("error")) if isinstance(one, dict) else None


def _number(one: Any) -> int | None:
    return one if isinstance(one, int) and not isinstance(one, bool) else None


def _numbers(one: Any, count: int) -> list[int]:
    """Exactly so many numbers, or none."""
    found = [_number(part) for part in one] if isinstance(one, list) and len(one) == count else []
    return [] if None in found else [part for part in found if part is not None]


def _simple(raw: Mapping[str, Any]) -> Record:
    """Numbers and flags that are published as they are."""
    state: Record = {}
    for key in (
        "recovery_action", "ecc_dbe_volatile", "ecc_sbe_aggregate", "ecc_sbe_volatile", "inforom_validate", "pcie_width", "pcie_width_max",
    ):  # fmt: skip
        if (found := _number(raw.get(key))) is not None:
            state[key] = found
    for key in ("persistence", "unrepairable_memory"):
        if (found := _number(raw.get(key))) is not None:
            state[key] = bool(found)
    if repair := _numbers(raw.get("repair"), 2):
        state["channel_repair_pending"], state["tpc_repair_pending"] = map(bool, repair)
    if ecc := _numbers(raw.get("ecc"), 2):
        state["ecc"] = bool(ecc[0])
    return state


def _memory(raw: Mapping[str, Any], errors: Mapping[str, int]) -> Record:
    state: Record = {}
    if rows := _numbers(raw.get("remapped"), 4):
        state["remapped_rows"] = {
            "correctable": rows[0],
            "uncorrectable": rows[1],
            "pending": bool(rows[2]),
            "failure": bool(rows[3]),
        }
    elif errors.get("remapped") == NOT_SUPPORTED:
        state["remapped_rows"] = "NOT_SUPPORTED"
    if banks := _numbers(raw.get("histogram"), 5):
        state["histogram"] = dict(zip(_HISTOGRAM, banks, strict=True))
    elif errors.get("histogram") == NOT_SUPPORTED:
        state["histogram"] = "NOT_SUPPORTED"
    aggregate: Record = {}
    if sram := _numbers(raw.get("sram"), 3):
        aggregate = {"sram_parity": sram[0], "sram_secded": sram[1]}
        state["sram_threshold_exceeded"] = bool(sram[2])
    if (dram := _number(raw.get("ecc_dram_aggregate"))) is not None:
        aggregate["dram"] = dram
    return state | ({"ecc_aggregate": aggregate} if aggregate else {})


def _links(raw: Mapping[str, Any]) -> Record:
    """How many links are up, and the numbers of those that are not; none of a card without NVLinks, or with MIG, whose links are off."""
    links = raw.get("links")
    mig = _numbers(raw.get("mig"), 2)
    if not isinstance(links, list) or not links or (mig and mig[0]):
        return {}
    pairs = [one for one in links if isinstance(one, list) and len(one) == 2 and _number(one[0]) is not None]
    return {"nvlinks_active": sum(bool(one[1]) for one in pairs), "nvlinks_inactive": [one[0] for one in pairs if not one[1]]}


def _mig(raw: Mapping[str, Any]) -> Record:
    state: Record = {}
    if mig := _numbers(raw.get("mig"), 2):
        state["mig"], state["mig_pending"] = bool(mig[0]), mig[0] != mig[1]
    instances = raw.get("instances")
    if isinstance(instances, list) and instances:
        state["mig_instances"] = [str(one[0]) for one in instances if isinstance(one, list) and one]
    return state


def _thermal(raw: Mapping[str, Any]) -> Record:
    state: Record = {}
    if (margin := _number(raw.get("tlimit_margin"))) is not None:
        state["tlimit_margin"] = min(margin, MARGIN)
    if (slowdown := _number(raw.get("slowdown_tlimit"))) is not None:
        state["slowdown_tlimit"] = slowdown
    if (reasons := _number(raw.get("reasons"))) is not None:
        state["clocks_event_reasons"] = reasons & REASONS
    return state


def _fabric(raw: Mapping[str, Any]) -> Record:
    number, status, mask = (_number(raw.get(key)) for key in ("state", "status", "health"))
    found: Record = {"state": FABRIC_STATES.get(-1 if number is None else number, str(number)), "status": status or 0}
    if mask:
        found["health"] = mask
    return found
