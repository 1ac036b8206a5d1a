"""NVML inputs of cases, and documents of whole nodes, as one snapshot."""

from collections.abc import Mapping
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_health.core.judge.rules import Profile, Rules
from hbox_health.core.judge.snapshot import Snapshot

from .cases import Case, checked

#: What every card of a case shows unless the case states otherwise.
_WELL = {"recovery_action": 0, "ecc": True, "persistence": True, "fabric": {"state": "completed", "status": 0}}
_MOST_CARDS = 64

_INTEGER, _NUMBER, _FLAG, _TABLE = (int,), (int, float), (bool,), (dict,)
#: What the values of a card are; other keys are not judged.
_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("every_call", "recovery_action", "inforom_validate", "nvlinks_active", "polls"), _INTEGER),
    **dict.fromkeys(("clocks_event_reasons", "ecc_dbe_volatile"), _INTEGER),
    **dict.fromkeys(("ecc_sbe_per_s", "tlimit_margin", "slowdown_tlimit", "nvml_call_s"), _NUMBER),
    **dict.fromkeys(("channel_repair_pending", "tpc_repair_pending", "sram_threshold_exceeded", "unrepairable_memory"), _FLAG),
    **dict.fromkeys(("remapped_rows", "histogram", "ecc_aggregate", "fabric", "pcie"), _TABLE),
    "nvlinks_inactive": (int, list),
}
_FABRIC: Mapping[str, tuple[type, ...]] = {"state": (int, str), "status": _INTEGER, "health": (int, dict)}
#: Tables that hold only numbers and flags.
_COUNTS = ("remapped_rows", "histogram", "ecc_aggregate", "pcie")
#: Answers of NVML that are no value: the card or the driver does not have it.
_NO_VALUE = frozenset(("NOT_SUPPORTED", "FUNCTION_NOT_FOUND"))


def snapshot_of(case: Case, rules: Rules) -> Snapshot:
    """Raises InvalidRequest for an input that is no snapshot."""
    given = case.input
    if "node" in given:
        return _of_document(case.where, given["node"])
    profile = rules.profile(case.box)
    differing, common = given.get("cards", {}), given.get("all_cards", {})
    for key in ("cards", "all_cards", "units", "modules"):
        checked(f"{case.where}: input: {key}", given.get(key, {}), dict)
    modules = given.get("modules", {})
    if "nvidia_peermem_loaded" in given:
        modules = {**modules, "nvidia_peermem": bool(given["nvidia_peermem_loaded"])}
    return Snapshot(
        cards=_cards(case.where, differing, common, profile),
        init=case.integer("init") or 0,
        count=case.integer("count"),
        inventory=case.cards("inventory"),
        listed=case.uuids("listed"),
        units={str(unit): str(state) for unit, state in given.get("units", {}).items()},
        modules=modules,
        uptime_s=checked(f"{case.where}: input: uptime_s", given.get("uptime_s"), *_NUMBER, type(None)),
        maintenance=bool(given.get("maintenance", False)),
        dcgm=checked(f"{case.where}: input: dcgm_overall_health", given.get("dcgm_overall_health"), str, type(None)),
        polls=case.integer("polls"),
    )


def _card(where: str, card: Any) -> dict[str, Any]:
    """The values of a card, without those that NVML does not have. Raises InvalidRequest for a value of another kind than the judgement knows."""
    out = _values(where, card, _KINDS)
    for key in _COUNTS:
        for part, value in out.get(key, {}).items():
            checked(f"{where}: {key}: {part}", value, *_NUMBER, bool)
    if "fabric" in out:
        out["fabric"] = _values(f"{where}: fabric", out["fabric"], _FABRIC)
    return out


def _values(where: str, table: Any, kinds: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    out = {str(key): value for key, value in checked(where, table, dict).items() if not _is_no_value(value)}
    for key, of in kinds.items():
        if key in out:
            checked(f"{where}: {key}", out[key], *of)
    return out


def _is_no_value(value: Any) -> bool:
    return isinstance(value, str) and value.upper() in _NO_VALUE


def _cards(name: str, differing: Mapping[Any, Any], common: Mapping[Any, Any], profile: Profile) -> list[dict[str, Any]]:
    well = {**_WELL, **({"nvlinks_active": profile.nvlinks} if profile.nvlinks else {})}
    number = max([profile.cards or 8, *(int(index) + 1 for index in differing if str(index).isdigit())])
    if number > _MOST_CARDS:
        raise InvalidRequest(f"{name}: input: cards: more than {_MOST_CARDS}")
    common = _card(f"{name}: input: all_cards", common)
    cards = [{"uuid": f"index-{index}", **_without_links(well, common), **common} for index in range(number)]
    for index, given in differing.items():
        what = _card(f"{name}: input: cards: {index}", given)
        changed = {**what, "named": "uuid" in what}
        if str(index).isdigit():
            cards[int(index)] = {**_without_links(cards[int(index)], what), **changed}
        else:
            cards.append({"uuid": str(index), **_without_links(well, what), **changed})
    return cards


def _without_links(card: Mapping[str, Any], what: Mapping[str, Any]) -> dict[str, Any]:
    """Active links follow from the inactive ones where only these are given."""
    return {k: v for k, v in card.items() if not (k == "nvlinks_active" and "nvlinks_inactive" in what)}


def _of_document(name: str, node: Any) -> Snapshot:
    """A document of a whole node (`gpus`, `driver`, units): the form of the NVML mock profiles."""
    gpus = checked(f"{name}: gpus", checked(f"{name}: node", node, dict).get("gpus"), list)
    units = {"nvidia-fabricmanager": str(node["fabric_manager"])} if "fabric_manager" in node else {}
    modules = {"nvidia_peermem": bool(node["nvidia_peermem_loaded"])} if "nvidia_peermem_loaded" in node else {}
    cards = [_of_card(f"{name}: gpus: {index}", card) for index, card in enumerate(gpus)]
    return Snapshot(
        cards=cards,
        init=checked(f"{name}: init", node.get("init", 0), int),
        count=checked(f"{name}: device_count", node.get("device_count"), int, type(None)),
        inventory=[str(card.get("uuid")) for card in cards],
        units=units,
        modules=modules,
        uptime_s=checked(f"{name}: uptime_s", node.get("uptime_s"), *_NUMBER, type(None)),
    )


def _of_card(where: str, card: Any) -> dict[str, Any]:
    out = _card(where, card)
    ecc, mig = (checked(f"{where}: {key}", out.get(key, {}), dict) for key in ("ecc", "mig"))
    out["ecc"] = ecc.get("mode", "enabled")
    volatile = checked(f"{where}: ecc: volatile", ecc.get("volatile", {}), dict)
    out["ecc_dbe_volatile"] = checked(f"{where}: ecc: volatile: uncorrected", volatile.get("uncorrected", 0), int)
    out["mig"] = bool(mig.get("current"))
    links = checked(f"{where}: nvlinks", out.get("nvlinks"), list, type(None))
    if links is not None:
        out["nvlinks_active"] = sum(1 for link in links if checked(f"{where}: nvlinks", link, dict).get("active"))
    return out
