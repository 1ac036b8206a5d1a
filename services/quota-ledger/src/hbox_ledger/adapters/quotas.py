"""Kubernetes' ResourceQuotas: what they say of cards, and of requests."""

from collections.abc import Callable, Mapping
from contextlib import suppress

from hbox_common.errors import InvalidRequest
from hbox_common.kube import ResourceQuota as QuotaObject
from hbox_common.model import VENDORS, CardQuota, ResourceQuota, Resources, capacity_units, request_units
from hbox_common.model.bounds import sanitized
from hbox_common.model.resources import PODS

#: Of one quota, by which `enqueue` judges.
QUOTA_AMOUNTS = 64


def card_quota(found: QuotaObject) -> CardQuota | None:
    """What it says of cards; None where that is nothing. A quota that cannot be kept as written is one with a fault."""
    hard = found.spec.hard
    percents = {f"limits.{vendor.memory_percent}": vendor for vendor in VENDORS if vendor.memory_percent}
    if not any(key in VENDORS.limits or key in percents for key in hard):
        return None
    limits: Resources = {}
    fault = ""
    try:
        limits = {name: _limit(key, hard[key]) for key, name in VENDORS.limits.items() if key in hard}
        for percent, vendor in percents.items():
            if percent in hard:
                raise InvalidRequest(
                    f"{percent} means nothing over cards of several sizes; write limits.{vendor.memory}, in MiB"
                )
        if found.spec.scopes or found.spec.scope_selector.match_expressions:
            raise InvalidRequest(
                "scopes are not supported where cards are limited; limit them in a quota of its own, without scopes"
            )
    except InvalidRequest as e:
        fault = sanitized(e.message, 256)
    return CardQuota(found.metadata.namespace, found.metadata.name, limits, fault)


def amounts_of(found: QuotaObject) -> ResourceQuota | None:
    """What it says of requests; None where that is nothing, or where it has scopes: they are for some pods only, which minimums do not tell apart. What its
    controller enforces (`status.hard`) counts before what is written."""
    if found.spec.scopes or found.spec.scope_selector.match_expressions:
        return None
    hard = _requests(found.status.hard or found.spec.hard, capacity_units)
    return (
        ResourceQuota(found.metadata.namespace, found.metadata.name, hard, _requests(found.status.used, request_units))
        if hard
        else None
    )


def _requests(quantities: Mapping[str, str | float], units: Callable[[str, str | float], int]) -> Resources:
    """By resource: `cpu` and `requests.cpu` mean the same. Keys of anything else are left out, and so is what is no amount."""
    found: Resources = {}
    for key, quantity in quantities.items():
        name = key.removeprefix("requests.")
        if name.startswith(("limits.", "count/")) or name == PODS:
            continue
        if len(found) == QUOTA_AMOUNTS:
            break
        with suppress(InvalidRequest):
            found[name] = units(name, quantity)
    return found


def _limit(key: str, quantity: str | float) -> int:
    try:
        units = capacity_units(VENDORS.limits[key], quantity)
    except InvalidRequest as e:
        raise InvalidRequest(f"{key}: {e.message}") from e
    if units < 0:
        raise InvalidRequest(f"{key}: {quantity} is negative")
    if str(quantity).strip().endswith("i"):
        raise InvalidRequest(f"{key} is {quantity}; write a plain number (of MiB for memory, of percent for compute)")
    return units
