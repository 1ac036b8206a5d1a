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

#: Kinds and variants of kernel messages that core/judge/kernel.py distinguishes; a table has to state each.
MESSAGES = frozenset(
    (
        "aer corrected",
        "aer corrected-often",
        "aer fatal",
        "aer nonfatal",
        "cper corrected",
        "cper fatal",
        "cper previous-boot",
        "cper recoverable",
        "filesystem-read-only",
        "gpu-init-failed",
        "hung-task driver",
        "hung-task other",
        "mlx5 access-reg-failed",
        "mlx5 cmd-timeout",
        "mlx5 fatal-error",
        "mlx5 health-poll",
        "mlx5 module-error",
        "mlx5 module-hot",
        "mlx5 module-plugged",
        "mlx5 module-power",
        "mlx5 module-unplugged",
        "mlx5 pcie-power",
        "mlx5 tx-timeout",
        "oom",
        "records-lost",
        "reset-required",
        "segfault",
        "uvm-error",
    )
)
#: Codes that core/judge applies to messages without a code: a lost card, an uncontained error, a GSP that does not answer.
LOST, UNCONTAINED, GSP_TIMEOUT = 79, 95, 119
#: What NVIDIA's decode table asks for, the worst first.
BUCKETS = ("RESET_GPU", "XID_154_EVAL", "IGNORE")
#: Words in the names of cards that no NVSwitch connects.
_WITHOUT_SWITCH = frozenset(("PCIE", "NVL"))


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
class MessageRule:
    """What is decided for one kind of kernel message. `why` may name keys of the record, as {count}."""

    severity: Severity
    blame: Blame
    scope: Scope
    action: Action
    why: str
    authority: str = "hbox-requirements"


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
    messages: Mapping[str, MessageRule]  #: by kind and variant
    switches: Switches
    units: tuple[Unit, ...]
    profiles: Mapping[str, Profile]

    def profile(self, box: str) -> Profile:
        """The profile by its name or by the model of a card; generic if none fits."""
        parts = {part.upper() for part in re.split(r"[^0-9A-Za-z]+", box)}
        for profile in self.profiles.values():
            if profile.nvswitch and parts & _WITHOUT_SWITCH:
                continue
            if profile.name.upper() in parts or parts & set(profile.models):
                return profile
        return self.profiles["generic"]


def parse_rules(codes: str, nvlink5: str, profiles: str) -> Rules:
    """The rules of three YAML files. Raises BadRules."""
    try:
        table, units, boxes = yaml.safe_load(codes), yaml.safe_load(nvlink5), yaml.safe_load(profiles)
        out = Rules(
            codes={code: _code(code, entry, table["classes"]) for code, entry in table["xid"].items()},
            messages={name: _message(name, entry) for name, entry in table["kernel"].items()},
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
    except BadRules:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as e:
        raise BadRules(f"wrong form: {e}") from None
    for what, missing in (
        ("xid", {LOST, UNCONTAINED, GSP_TIMEOUT} - set(out.codes)),
        ("kernel", MESSAGES - set(out.messages)),
        ("profiles", {"generic"} - set(out.profiles)),
    ):
        if missing:
            raise BadRules(f"{what}: {', '.join(str(one) for one in sorted(missing))} is missing")
    return out


def _code(code: int, entry: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> CodeRule:
    if not isinstance(code, int):
        raise BadRules(f"xid {code}: not a number")
    try:
        values = {**classes[entry["class"]], **{k: v for k, v in entry.items() if k != "class"}}
    except KeyError as e:
        raise BadRules(f"xid {code}: no class {e}") from None
    values["recovery"] = _driver(code, values.get("recovery"))
    if values.get("workflow", "") not in WORKFLOWS | {""}:
        raise BadRules(f"xid {code}: unknown workflow {values['workflow']}")
    try:
        return CodeRule(code=code, **_with_enums(f"xid {code}", values))
    except TypeError as e:
        raise BadRules(f"xid {code}: {e}") from None


def _message(name: str, entry: Mapping[str, Any]) -> MessageRule:
    if name not in MESSAGES:
        raise BadRules(f"kernel: {name}: no kind of message")
    try:
        return MessageRule(**_with_enums(f"kernel: {name}", entry))
    except TypeError as e:
        raise BadRules(f"kernel: {name}: {e}") from None


def _with_enums(what: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with members of the enumerations of a finding in place of their texts."""
    kinds = {"severity": Severity, "blame": Blame, "scope": Scope, "action": Action, "also": Action}
    return {key: _member(f"{what}: {key}", value, kinds[key]) if key in kinds else value for key, value in entry.items()}


def _driver(code: int, text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"R\d{3}", text):
        raise BadRules(f"xid {code}: recovery: {text} is no driver branch")
    return int(text[1:])


def _member(what: str, value: Any, kind: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise BadRules(f"{what}: {value} is not one of {', '.join(kind)}") from None


def _unit(entry: Mapping[str, Any]) -> Unit:
    rows = tuple(Decoded(**{"state": 0, **row, "status": tuple(row["status"] or ())}) for row in entry["rows"])
    old, new = (tuple(int(n) for n in entry[key]) for key in ("old", "new"))
    if len(old) != 2 or len(new) != 2:
        raise BadRules(f"xid {entry['xid']}: {entry['names']}: old and new are [mask, value]")
    for row in rows:
        if row.bucket not in BUCKETS:
            raise BadRules(f"xid {entry['xid']}: {entry['names']}: bucket: {row.bucket} is not one of {', '.join(BUCKETS)}")
    return Unit(entry["xid"], tuple(entry["names"]), (old[0], old[1]), (new[0], new[1]), rows)


def _profile(name: str, entry: Mapping[str, Any]) -> Profile:
    for key in ("cards", "nvlinks", "ports", "rate", "slowdown_c", "margin"):
        if not isinstance(entry.get(key), int | None):
            raise BadRules(f"profile {name}: {key}: {entry[key]} is no whole number")
    try:
        return Profile(name=name, **{**entry, "models": tuple(model.upper() for model in entry.get("models", ()))})
    except TypeError as e:
        raise BadRules(f"profile {name}: {e}") from None
