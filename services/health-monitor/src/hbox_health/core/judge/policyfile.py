"""Policies as data: values of `policies.yaml` in place of the settings' and the defaults. Which remedies may run is a setting, not a policy."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import yaml

from .breaker import Limits
from .courses import CLEAN, WAITS, Policies
from .rules import BadRules

#: Tables of seconds by `kind` or `kind-code` of findings.
_TABLES = ("waits", "clean")
_KINDS = (*WAITS, *CLEAN, "nvml", "sxid", "xid")
#: Numbers below these mean nothing.
_LEAST = {"failures": 1, "flaps": 1, "group_nodes": 1, "job_attempts": 1, "job_deadline_s": 1}
_NAMES = tuple(field.name for field in fields(Policies) if field.type in (int, float))


def parse_policies(text: str, base: Policies) -> Policies:
    """`base` with the values of the file. Raises BadRules, which names the value."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise BadRules(f"policies: invalid YAML: {' '.join(str(e).split())}") from None
    changes: dict[str, Any] = {}
    for name, value in _mapping("policies", content or {}).items():
        if name in _TABLES:
            changes[name] = {**getattr(base, name), **dict(_table(name, value))}
        elif name == "limits":
            given: dict[str, Any] = {
                key: _number(f"limits: {key}", one, key, base.limits) for key, one in _mapping(name, value).items()
            }
            changes[name] = replace(base.limits, **given)
        else:
            changes[name] = _number(str(name), value, str(name), base)
    return replace(base, **changes)


def values_of(policies: Policies) -> Iterator[tuple[str, float]]:
    """Each value that a file may set, by its name."""
    for name in _NAMES:
        yield name, getattr(policies, name)
    for name in _TABLES:
        yield from ((f"{name}.{key}", value) for key, value in getattr(policies, name).items())
    yield from ((f"limits.{field.name}", getattr(policies.limits, field.name)) for field in fields(Limits))


def _mapping(what: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise BadRules(f"{what}: a mapping is expected")
    return value


def _table(name: str, value: Any) -> Iterator[tuple[str, float]]:
    for key, seconds in _mapping(name, value).items():
        if not any(key == kind or str(key).startswith(f"{kind}-") for kind in _KINDS):
            raise BadRules(f"{name}: {key} is no kind of finding: {', '.join(sorted(set(_KINDS)))}, or one of these with -CODE")
        yield str(key), _checked(f"{name}: {key}", seconds)


def _number(what: str, value: Any, name: str, base: Policies | Limits) -> float:
    known = {field.name: field.type for field in fields(base) if field.type in (int, float)}
    if name not in known:
        raise BadRules(f"{what} is not one of {', '.join(known)}")
    number = _checked(what, value, least=_LEAST.get(name, 0))
    if known[name] is int and not isinstance(value, int):
        raise BadRules(f"{what}: {value} is no whole number")
    if name.endswith("share") and number > 1:
        raise BadRules(f"{what}: {value} is no share, 0 to 1")
    return number


def _checked(what: str, value: Any, *, least: float = 0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        raise BadRules(f"{what}: {value} is no number of at least {least:g}")
    return value
