"""NVML inputs of cases, and documents of whole nodes, as one snapshot."""

from collections.abc import Mapping
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_health.core.judge.rules import Profile, Rules
from hbox_health.core.judge.snapshot import Snapshot

from .cases import Case

#: What every card of a case shows unless the case states otherwise.
_WELL = {"recovery_action": 0, "ecc": True, "persistence": True, "fabric": {"state": "completed", "status": 0}}
_MOST_CARDS = 64


def snapshot_of(case: Case, rules: Rules) -> Snapshot:
    """Raises InvalidRequest for an input that is no snapshot."""
    given = case.input
    if "node" in given:
        return _of_document(given["node"])
    profile = rules.profile(str(case.context.get("box", "generic")))
    differing, common = given.get("cards", {}), given.get("all_cards", {})
    for key in ("cards", "all_cards", "units", "modules"):
        if not isinstance(given.get(key, {}), Mapping):
            raise InvalidRequest(f"{case.name}: input: {key}: a mapping is expected")
    cards = _cards(case.name, differing, common, profile)
    modules = given.get("modules", {})
    if "nvidia_peermem_loaded" in given:
        modules = {**modules, "nvidia_peermem": bool(given["nvidia_peermem_loaded"])}
    return Snapshot(
        cards=cards,
        init=case.integer("init") or 0,
        count=case.integer("count"),
        inventory=given.get("inventory"),
        listed=given.get("listed"),
        units={str(unit): str(state) for unit, state in given.get("units", {}).items()},
        modules=modules,
        uptime_s=given.get("uptime_s"),
        maintenance=bool(given.get("maintenance", False)),
        dcgm=given.get("dcgm_overall_health"),
        polls=case.integer("polls"),
    )


def _cards(name: str, differing: Mapping[Any, Any], common: Mapping[str, Any], profile: Profile) -> list[dict[str, Any]]:
    well = {**_WELL, **({"nvlinks_active": profile.nvlinks} if profile.nvlinks else {})}
    number = max([profile.cards or 8, *(int(index) + 1 for index in differing if str(index).isdigit())])
    if number > _MOST_CARDS:
        raise InvalidRequest(f"{name}: input: cards: more than {_MOST_CARDS}")
    cards = [{"uuid": f"index-{index}", **_without_links(well, common), **common} for index in range(number)]
    for index, what in differing.items():
        if not isinstance(what, Mapping):
            raise InvalidRequest(f"{name}: input: cards: {index}: a mapping is expected")
        changed = {**what, "named": "uuid" in what}
        if str(index).isdigit():
            cards[int(index)] = {**_without_links(cards[int(index)], what), **changed}
        else:
            cards.append({"uuid": str(index), **_without_links(well, what), **changed})
    return cards


def _without_links(card: Mapping[str, Any], what: Mapping[str, Any]) -> dict[str, Any]:
    """Active links follow from the inactive ones where only these are given."""
    return {k: v for k, v in card.items() if not (k == "nvlinks_active" and "nvlinks_inactive" in what)}


def _of_document(node: Mapping[str, Any]) -> Snapshot:
    """A document of a whole node (`gpus`, `driver`, units): the form of the NVML mock profiles."""
    init = node.get("init", 0)
    units = {"nvidia-fabricmanager": str(node["fabric_manager"])} if "fabric_manager" in node else {}
    modules = {"nvidia_peermem": bool(node["nvidia_peermem_loaded"])} if "nvidia_peermem_loaded" in node else {}
    cards = [_of_card(card) for card in node["gpus"] if isinstance(card, Mapping)]
    return Snapshot(
        cards=cards,
        init=init,
        count=node.get("device_count"),
        inventory=[str(card.get("uuid")) for card in cards],
        units=units,
        modules=modules,
        uptime_s=node.get("uptime_s"),
    )


def _of_card(card: Mapping[str, Any]) -> dict[str, Any]:
    ecc, mig, links = card.get("ecc", {}), card.get("mig", {}), card.get("nvlinks")
    out = dict(card)
    out["ecc"] = ecc.get("mode", "enabled")
    out["ecc_dbe_volatile"] = ecc.get("volatile", {}).get("uncorrected", 0)
    out["mig"] = bool(mig.get("current"))
    if links is not None:
        out["nvlinks_active"] = sum(1 for link in links if link.get("active"))
    return out
