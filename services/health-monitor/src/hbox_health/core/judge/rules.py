"""The tables of the judgement: codes, the decode table of NVLink 5, profiles of boxes. Data, checked when it is read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from .finding import Action, Blame, Scope, Severity

#: Workflows that core/judge implements; a table that names another is invalid.
WORKFLOWS = frozenset(
    (
        "cause",
        "contained",
        "double-bit",
        "ends-163",
        "nvlink4",
        "nvlink5",
        "place",
        "program",
        "qualifies-48",
        "recovery-action",
        "uvm",
    )
)


class BadRules(ValueError):
    """A table that cannot be used; the message names the entry."""


@dataclass(frozen=True, slots=True)
class CodeRule:
    """What is decided for one XID."""

    code: int
    name: str
    severity: Severity
    blame: Blame
    scope: Scope
    action: Action
    why: str
    authority: str = "nvidia-xid-catalogue"
    also: Action | None = None
    workflow: str = ""
    recovery: int | None = None  #: XID 154 follows the code from this driver on
    nvidia: str = ""  #: what NVIDIA's catalogue asks for at once
    then: str = ""  #: and afterwards

    def waits_for_recovery_action(self, driver: int | None) -> bool:
        """Whether XID 154 has to follow within 2 s; an unknown driver may print it."""
        return self.recovery is not None and (driver is None or driver >= self.recovery)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A row of NVIDIA's decode table."""

    state: int
    status: tuple[int, ...]  #: none: any
    bucket: str
    investigate: str
    fault: str  #: HW, SW, FW, HW/SW, NA
    fatal: str  #: all, link, none
    second: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    xid: int
    names: tuple[str, ...]
    old: tuple[int, int]  #: mask and value of the interrupt info before R575
    new: tuple[int, int]
    rows: tuple[Decoded, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """What a well node of a box shows; None: unknown, not judged."""

    name: str
    models: tuple[str, ...] = ()
    cards: int | None = None
    nvlinks: int | None = None
    ports: int | None = None
    rate: int | None = None
    nvswitch: bool = False
    containment: bool = True
    slowdown_c: int | None = None
    margin: int = -2
    busbw: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Switches:
    """Classes of SXIDs; the word in the line counts before them."""

    always_fatal: frozenset[int]
    potentially_fatal: frozenset[int]
    non_fatal: frozenset[int]
    harmless: frozenset[int]

    def known(self, code: int) -> bool:
        return code in self.always_fatal or code in self.potentially_fatal or code in self.non_fatal


@dataclass(frozen=True, slots=True)
class Rules:
    codes: Mapping[int, CodeRule]
    switches: Switches
    units: tuple[Unit, ...]
    profiles: Mapping[str, Profile]

    def profile(self, box: str) -> Profile:
        """The profile by its name or by the model of a card; generic if none fits."""
        parts = {part.upper() for part in re.split(r"[^0-9A-Za-z]+", box)}
        for profile in self.profiles.values():
            if profile.name.upper() in parts or parts & set(profile.models):
                return profile
        return self.profiles["generic"]


def parse_rules(codes: str, nvlink5: str, profiles: str) -> Rules:
    """The rules of three YAML files. Raises BadRules."""
    try:
        table, units, boxes = yaml.safe_load(codes), yaml.safe_load(nvlink5), yaml.safe_load(profiles)
        out = Rules(
            codes={code: _code(code, entry, table["classes"]) for code, entry in table["xid"].items()},
            switches=Switches(
                **{
                    name: frozenset(int(code) for code in table["sxid"][name])
                    for name in ("always_fatal", "potentially_fatal", "non_fatal", "harmless")
                }
            ),
            units=tuple(_unit(entry) for entry in units["units"]),
            profiles={name: _profile(name, entry) for name, entry in boxes["profiles"].items()},
        )
    except yaml.YAMLError as e:
        raise BadRules(f"invalid YAML: {' '.join(str(e).split())}") from None
    except (AttributeError, KeyError, TypeError) as e:
        raise BadRules(f"wrong form: {e}") from None
    if "generic" not in out.profiles:
        raise BadRules("profiles: generic is missing")
    return out


def _code(code: int, entry: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> CodeRule:
    if not isinstance(code, int):
        raise BadRules(f"xid {code}: not a number")
    try:
        values = {**classes[entry["class"]], **{k: v for k, v in entry.items() if k != "class"}}
    except KeyError as e:
        raise BadRules(f"xid {code}: no class {e}") from None
    values["recovery"] = _driver(code, values.get("recovery"))
    for key, kind in (("severity", Severity), ("blame", Blame), ("scope", Scope), ("action", Action), ("also", Action)):
        if key in values:
            values[key] = _word(f"xid {code}: {key}", values[key], kind)
    if values.get("workflow", "") not in WORKFLOWS | {""}:
        raise BadRules(f"xid {code}: unknown workflow {values['workflow']}")
    try:
        return CodeRule(code=code, **values)
    except TypeError as e:
        raise BadRules(f"xid {code}: {e}") from None


def _driver(code: int, text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"R\d{3}", text):
        raise BadRules(f"xid {code}: recovery: {text} is no driver branch")
    return int(text[1:])


def _word(what: str, value: Any, kind: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise BadRules(f"{what}: {value} is not one of {', '.join(kind)}") from None


def _unit(entry: Mapping[str, Any]) -> Unit:
    rows = tuple(Decoded(**{"state": 0, **row, "status": tuple(row["status"] or ())}) for row in entry["rows"])
    old, new = (tuple(int(n) for n in entry[key]) for key in ("old", "new"))
    if len(old) != 2 or len(new) != 2:
        raise BadRules(f"xid {entry['xid']}: {entry['names']}: old and new are [mask, value]")
    return Unit(entry["xid"], tuple(entry["names"]), (old[0], old[1]), (new[0], new[1]), rows)


def _profile(name: str, entry: Mapping[str, Any]) -> Profile:
    try:
        return Profile(name=name, **{**entry, "models": tuple(model.upper() for model in entry.get("models", ()))})
    except TypeError as e:
        raise BadRules(f"profile {name}: {e}") from None
