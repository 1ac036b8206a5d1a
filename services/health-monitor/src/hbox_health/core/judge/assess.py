"""One record becomes one finding. What needs several records (a burst, a repetition, the order of authority) is in burst.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hbox_common.health.records import card_of

from .finding import Action, Blame, Finding, Scope, Severity
from .kernel import kernel_finding
from .nvlink import decode, nvlink4, nvlink5
from .rules import GSP_TIMEOUT, LOST, UNCONTAINED, CodeRule, Profile, Rules

Record = Mapping[str, Any]

RECOVERY = "nvidia-recovery-action"
REQUIREMENTS = "hbox-requirements"
SWITCHES = "nvidia-fabric-manager-guide"

#: nvmlDeviceGpuRecoveryAction_t. An action that no table names takes the card away, and never restarts anything.
RECOVERY_ACTIONS: Mapping[int, tuple[Severity, Scope, Action, str]] = {
    0: (Severity.NONE, Scope.GPU, Action.CLOSE_REASON, "The driver asks for nothing any more"),
    1: (Severity.FATAL_GPU, Scope.GPU, Action.RESET, "The driver asks for a reset of the card"),
    2: (Severity.FATAL_NODE, Scope.NODE, Action.REBOOT, "The driver asks for a restart of the machine"),
    3: (
        Severity.DEGRADED,
        Scope.MULTI_GPU,
        Action.DRAIN_P2P,
        "The driver asks for an end of peer traffic; the card needs no reset",
    ),
    4: (Severity.DEGRADED, Scope.GPU, Action.DRAIN_AND_RESET, "The driver asks for no new work, and a reset"),
    5: (Severity.DEGRADED, Scope.FABRIC, Action.REPORT, "The IMEX domain has to be recovered; work within the node continues"),
    6: (Severity.FATAL_GPU, Scope.GPU, Action.RESET, "The driver asks for a reset of the card's PCIe bus"),
    7: (Severity.FATAL_NODE, Scope.NODE, Action.REBOOT, "The driver asks for a restart of the system"),
}


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of the node that an input comes from."""

    profile: Profile
    driver: int | None = None  #: major version
    uuids: Mapping[str, str] = field(default_factory=dict)  #: by PCI address without function

    def entity(self, record: Record) -> str:
        card = card_of(record)
        return f"gpu:{self.uuids.get(card, card)}" if card else "node"


def assess(record: Record, rules: Rules, context: Context) -> Finding | None:
    """The finding of one record on its own; None for a record that states no event."""
    match record.get("kind", "xid"):
        case "xid":
            return xid_finding(record, rules, context)
        case "sxid":
            return sxid_finding(record, rules)
        case "sxid-detail":
            return _sxid_detail(record, rules)
        case "gpu-lost":
            return _lost(record, rules, context)
        case "gsp-rate-limit":
            return _rate_limit(record, rules, context)
    return kernel_finding(record, context.entity(record), rules)


def recovery_finding(entity: str, value: int | None, *, kind: str = "xid", code: str = "154") -> Finding:
    """What the driver's recovery action asks for: the highest authority."""
    severity, scope, action, why = RECOVERY_ACTIONS.get(
        -1 if value is None else value,
        (
            Severity.FATAL_GPU,
            Scope.GPU,
            Action.ISOLATE_GPU,
            f"The driver asks for {value}, which no table names: the card is taken away",
        ),
    )
    unknown = value not in RECOVERY_ACTIONS
    blame = Blame.UNKNOWN if unknown else Blame.SOFTWARE if value == 5 else Blame.NONE if value == 0 else Blame.HARDWARE
    return Finding(
        entity, kind, code, severity, blame, scope, action, RECOVERY, f"{why}.", also=Action.REPORT if unknown else None
    )


def code_finding(rule: CodeRule, entity: str) -> Finding:
    return Finding(
        entity,
        "xid",
        str(rule.code),
        rule.severity,
        rule.blame,
        rule.scope,
        rule.action,
        rule.authority,
        rule.why,
        also=rule.also,
    )


def xid_finding(record: Record, rules: Rules, context: Context, *, repeats: int = 1) -> Finding:
    """`repeats`: how often the same error was seen on the same link of the card."""
    code, entity = int(record["code"]), context.entity(record)
    rule = rules.codes.get(code)
    if rule is None:
        why = f"No table has XID {code}: it is reported, and the recovery action of the card decides."
        return Finding(
            entity,
            "xid",
            str(code),
            Severity.UNKNOWN,
            Blame.UNKNOWN,
            Scope.GPU,
            Action.REPORT,
            REQUIREMENTS,
            why,
            also=Action.READ_RECOVERY_ACTION,
        )
    finding = code_finding(rule, entity)
    match rule.workflow:
        case "recovery-action" if "to" in record:
            return recovery_finding(entity, record["to"])
        case "nvlink4":
            return nvlink4(record, finding, repeats)
        case "nvlink5":
            return nvlink5(record, rule, finding, decode(record, rules, context.driver))
        case "contained" if not context.profile.containment:
            uncontained = code_finding(rules.codes[UNCONTAINED], entity)
            return replace(
                uncontained,
                code=str(code),
                why=f"The {context.profile.name} cannot contain a memory error: it counts as uncontained.",
            )
        case "cause" if "caused_by" in record:
            return caused_finding(record, rules, context)
    return finding


def caused_finding(record: Record, rules: Rules, context: Context) -> Finding:
    """XID 45 that names its cause: the cause decides, and the process is not to blame."""
    cause = int(record["caused_by"])
    of_cause = xid_finding({"code": cause, "pci": record.get("pci")}, rules, context)
    blame = Blame.HARDWARE if cause in rules.codes and rules.codes[cause].blame is Blame.HARDWARE else of_cause.blame
    return replace(of_cause, blame=blame, why=f"The driver ended the process because of XID {cause}. {of_cause.why}")


def sxid_finding(record: Record, rules: Rules) -> Finding:
    """The word in the line counts before the class of the code."""
    code, switches = int(record["code"]), rules.switches
    fatal = record.get("fatal")
    if fatal is None:
        fatal = code in switches.always_fatal
    entity = f"switch:{record.get('pci', record.get('physical_id', 'unknown'))}"
    base = Finding(entity, "sxid", str(code), Severity.INFO, Blame.UNKNOWN, Scope.SWITCH, Action.REPORT, SWITCHES, "")
    if fatal and code in switches.always_fatal:
        why = f"SXID {code} leaves the switch unusable until the machine restarts."
        return replace(
            base, severity=Severity.FATAL_NODE, blame=Blame.HARDWARE, scope=Scope.NODE, action=Action.REBOOT, why=why
        )
    if fatal:
        why = f"SXID {code} is fatal, as the line states: work over this switch ends, one-card work continues."
        return replace(
            base,
            severity=Severity.FATAL_GPU,
            blame=Blame.HARDWARE,
            scope=Scope.MULTI_GPU,
            action=Action.MULTI_GPU_OFF,
            also=Action.DRAIN_AND_RESET,
            why=why,
        )
    if code in switches.harmless:
        return replace(
            base, blame=Blame.NONE, action=Action.NONE, why=f"SXID {code} is printed when links train: nothing to do."
        )
    known = "" if switches.known(code) else ", which no table has,"
    return replace(base, why=f"SXID {code}{known} is not fatal, as the line states.")


def _sxid_detail(record: Record, rules: Rules) -> Finding:
    finding = sxid_finding({**record, "fatal": False}, rules)
    return replace(finding, kind="sxid-detail", action=Action.NONE, why="Details of an SXID whose event is not in the input.")


def _lost(record: Record, rules: Rules, context: Context) -> Finding:
    """As XID 79, which the driver does not always print."""
    return replace(code_finding(rules.codes[LOST], context.entity(record)), kind="gpu-lost", code="gpu-lost")


def _rate_limit(record: Record, rules: Rules, context: Context) -> Finding:
    why = "The driver prints only a part of its errors from here on; the card needs a reset, as after XID 119."
    return replace(
        code_finding(rules.codes[GSP_TIMEOUT], context.entity(record)), kind="gsp-rate-limit", code="gsp-rate-limit", why=why
    )
