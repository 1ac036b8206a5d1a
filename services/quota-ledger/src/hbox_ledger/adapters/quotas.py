"""Kubernetes' ResourceQuotas: what they say of cards, of PriorityClasses, and of requests."""

from collections.abc import Callable, Mapping
from contextlib import suppress

from hbox_common.errors import InvalidRequest
from hbox_common.kube import ResourceQuota as QuotaObject
from hbox_common.model import (
    VENDORS,
    CardQuota,
    ClassQuota,
    Match,
    MatchOperator,
    ResourceQuota,
    Resources,
    capacity_units,
    request_units,
)
from hbox_common.model.bounds import sanitized
from hbox_common.model.classquota import PRIORITY_CLASS_SCOPE
from hbox_common.model.resources import PODS

#: Of one quota, by which `enqueue` judges.
QUOTA_AMOUNTS = 64


def card_quota(found: QuotaObject) -> CardQuota | None:
    """The object's quota of cards; None if it limits none. If it cannot be applied as written, the quota has a fault."""
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


def class_quota(found: QuotaObject) -> ClassQuota | None:
    """The object's limits of jobs by PriorityClass; None if it is not by class alone, or limits nothing that claims contain. A class under an unknown operator
    is
    taken as one that the quota covers.
    """
    terms = found.spec.scope_selector.match_expressions
    scopes = {*found.spec.scopes, *(term.scope_name for term in terms)}
    if scopes != {PRIORITY_CLASS_SCOPE}:
        return None
    known = {operator.value: operator for operator in MatchOperator}
    classes = tuple(
        Match(PRIORITY_CLASS_SCOPE, known.get(term.operator, MatchOperator.EXISTS), tuple(term.values)) for term in terms
    )
    hard = _requests(found.spec.hard, capacity_units)
    pods: list[int] = []
    for key in (PODS, "count/pods"):
        if key in found.spec.hard:
            with suppress(InvalidRequest):
                pods.append(capacity_units(PODS, found.spec.hard[key]))
    if pods:
        hard[PODS] = min(pods)
    return ClassQuota(found.metadata.namespace, found.metadata.name, classes, hard) if hard else None


def amounts_of(found: QuotaObject) -> ResourceQuota | None:
    """The object's limits of requests; None if it has none, or has scopes: these cover only some pods, and minimums do not distinguish pods. Limits that the
    quota
    controller enforces (`status.hard`) take precedence over the spec.
    """
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
        units = capacity_units(VENDORS.limits[key], quantity) * VENDORS.units.get(key, 1)
    except InvalidRequest as e:
        raise InvalidRequest(f"{key}: {e.message}") from e
    if units < 0:
        raise InvalidRequest(f"{key}: {quantity} is negative")
    if str(quantity).strip().endswith("i"):
        unit = "MiB" if (mib := VENDORS.units.get(key, 1)) == 1 else f"{mib} MiB"
        raise InvalidRequest(f"{key} is {quantity}; write a plain number (of {unit} for memory, of percent for compute)")
    return units
