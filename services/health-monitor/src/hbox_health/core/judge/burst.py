"""Records that belong together become one judgement for each entity.

Order of authority on a card: the recovery action of XID 154, the decode table of 144 to 150, NVIDIA's catalogue with its workflows, our table. The worst code
of a burst decides: a card that falls off the bus prints 45, 43 and 119 for each process, which then blame no program.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hbox_common.health.records import BURST_S, card_of, merged

from .assess import Context, Record, assess, recovery_finding, xid_finding
from .finding import RANK, Action, Blame, Finding, Scope, Severity
from .rules import Rules

#: Actions from the mildest to the one that changes most; of two findings with one severity the later counts.
WEIGHT = {
    action: weight
    for weight, action in enumerate(
        (
            Action.NONE,
            Action.CLOSE_REASON,
            Action.REPORT,
            Action.NOTIFY_OWNER,
            Action.WATCH,
            Action.RETEST,
            Action.VALIDATE,
            Action.READ_RECOVERY_ACTION,
            Action.RUN_DIAGNOSTICS,
            Action.TICKET,
            Action.RESET_WHEN_IDLE,
            Action.LOAD_MODULE,
            Action.ACS_OFF,
            Action.RESTART_DEVICE_PLUGIN,
            Action.RESTART_FM,
            Action.ISOLATE_RAIL,
            Action.DRAIN_P2P,
            Action.MULTI_GPU_OFF,
            Action.ISOLATE_GPU,
            Action.RESET,
            Action.DRAIN_AND_RESET,
            Action.REPLACE,
            Action.CORDON,
            Action.REBOOT,
        )
    )
}

#: Codes that NVIDIA links to a double-bit error of the same burst.
_REMAPPED = frozenset((63, 64))
_CONTAINED = 94


@dataclass(slots=True)
class Judgement:
    """What one input amounts to."""

    findings: list[Finding] = field(default_factory=list)  #: the decisive one of each entity, as they came
    primary: dict[str, int] = field(default_factory=dict)  #: the code that explains each card, by PCI address
    open_reasons: list[int] = field(default_factory=list)  #: codes that outlive a recovery action that was taken back
    memory: str | None = None

    @property
    def worst(self) -> Finding | None:
        return max(self.findings, key=worse, default=None)

    @property
    def incidents(self) -> int:
        """A node, a fabric and a faulting program are one incident each, however many cards they show on."""
        return len({_group(finding) for finding in self.findings if finding.severity is not Severity.NONE})


def worse(finding: Finding) -> tuple[int, int]:
    return RANK[finding.severity], WEIGHT[finding.action]


def _group(finding: Finding) -> str:
    if finding.scope is Scope.NODE:
        return "node"
    if finding.blame is Blame.USER:
        return "job"
    if finding.scope in {Scope.MULTI_GPU, Scope.FABRIC} or finding.kind.startswith("sxid"):
        return "fabric"
    return finding.entity


def judge(records: Sequence[Record], rules: Rules, context: Context) -> Judgement:
    """The judgement of the records of one node, in the order in which they came."""
    uuids = {card_of(r) or "": str(r["uuid"]) for r in records if r.get("kind") == "gpu-uuid"}
    context = replace(context, uuids={**uuids, **context.uuids})
    cards: dict[str, list[Record]] = {}
    others: list[Record] = []
    record: Record
    for record in merged(dict(r) for r in records):
        card = card_of(record)
        if card is not None and record.get("kind", "xid") in _OF_CARDS:
            cards.setdefault(card, []).append(record)
        else:
            others.append(record)
    out = Judgement()
    uvm = any(r.get("kind") == "uvm-error" for r in others)
    for card, of_card in cards.items():
        finding, code, left = _card(of_card, rules, context, uvm=uvm)
        out.findings.append(finding)
        if code is not None:
            out.primary[card] = code
        out.open_reasons += left
        out.memory = out.memory or _memory(of_card)
    _programs(out, cards)
    sick = [f for f in out.findings if RANK[f.severity] >= RANK[Severity.DEGRADED]]
    for record in others:
        found = assess(record, rules, context)
        # A line without an address is about the only card that is sick, if there is one; an error of unified memory belongs to its XID.
        of_sick = len(sick) == 1 and record.get("kind") in _OF_CARDS | {"uvm-error"}
        if found is not None and not of_sick:
            out.findings.append(found)
    return out


_OF_CARDS = frozenset(("xid", "gpu-lost", "gpu-init-failed", "reset-required", "gsp-rate-limit", "aer"))


def _card(records: Sequence[Record], rules: Rules, context: Context, *, uvm: bool) -> tuple[Finding, int | None, list[int]]:
    """The decisive finding of one card, the code that explains it, and the codes that stay open after a recovery action was taken back."""
    entity = context.entity(records[0])
    xids = [r for r in records if r.get("kind", "xid") == "xid"]
    changes = [r["to"] for r in xids if r["code"] == 154 and "to" in r]
    closing = bool(changes) and changes[-1] == 0
    rest = _left(records, rules) if closing else [r for r in records if not _is_change(r)]
    findings = _findings(rest, rules, context, uvm=uvm)
    worst = max(findings, key=worse, default=None)
    if closing:
        closed = recovery_finding(entity, 0)
        if worst is None:
            return closed, 154, []
        left = sorted({int(f.code) for f in findings if f.code.isdigit()})
        return replace(worst, also=Action.CLOSE_REASON), _code(worst), left
    if not changes:
        if worst is None:  # XID 154 in words that no driver known to us prints
            return xid_finding(xids[0], rules, context), 154, []
        return worst, _code(worst), []
    asked = recovery_finding(entity, changes[-1])
    if worst is None or RANK[worst.severity] < RANK[Severity.DEGRADED]:
        blame = asked.blame if worst is None or worst.blame in {Blame.USER, Blame.NONE} else worst.blame
        return replace(asked, blame=blame), next((r["code"] for r in xids if _linked(r, rules)), 154), []
    fatal = worst.severity in {Severity.FATAL_GPU, Severity.FATAL_NODE} and asked.action is Action.DRAIN_AND_RESET
    severity = Severity.FATAL_GPU if fatal else asked.severity
    return replace(asked, severity=severity, blame=worst.blame, why=f"XID {worst.code}. {asked.why}"), _code(worst) or 154, []


def _is_change(record: Record) -> bool:
    return record.get("kind", "xid") == "xid" and record["code"] == 154 and "to" in record


def _left(records: Sequence[Record], rules: Rules) -> list[Record]:
    """What a recovery action that was taken back leaves open: whatever did not lead to it, and whatever came after."""
    asked = max((i for i, r in enumerate(records) if _is_change(r) and r["to"] != 0), default=-1)
    led = {i for i, r in enumerate(records[: max(asked, 0)]) if r["kind"] == "xid" and _linked(r, rules)}
    return [r for i, r in enumerate(records) if i not in led and not _is_change(r)]


def _linked(record: Record, rules: Rules) -> bool:
    rule = rules.codes.get(record["code"])
    return rule is not None and rule.recovery is not None


def _code(finding: Finding) -> int | None:
    return int(finding.code) if finding.code.isdigit() else None


def _memory(records: Sequence[Record]) -> str | None:
    return (
        next((str(r["memory"]) for r in records if r.get("memory") and r["code"] in {171, 172}), None)
        if _has(records, 48)
        else None
    )


def _has(records: Sequence[Record], *codes: int) -> bool:
    return any(r.get("kind", "xid") == "xid" and r["code"] in codes for r in records)


def _findings(records: Sequence[Record], rules: Rules, context: Context, *, uvm: bool) -> list[Finding]:
    """The findings of the records of one card, those workflows applied that need more than one record."""
    out: list[Finding] = []
    for index, record in enumerate(records):
        code = record.get("code") if record.get("kind", "xid") == "xid" else None
        rule = rules.codes.get(code) if code is not None else None
        if code is None or rule is None:
            found = assess(record, rules, context)
            out += [found] if found else []
            continue
        finding = xid_finding(record, rules, context, repeats=_repeats(record, records))
        match rule.workflow:
            case "double-bit":
                finding = _double_bit(finding, records)
            case "contained" if finding.severity is Severity.DEGRADED and _has(records, 48):
                continue  # what 48 asks for includes it
            case "qualifies-48" if _has(records, 48):
                continue
            case _ if code in _REMAPPED and _has(records, 48):
                continue
            case "place" | "program" if _recurs(record, records, rule.workflow):
                how = "at the same place" if rule.workflow == "place" else "with another program"
                why = f"XID {code} recurs in another run {how}: the card may be at fault."
                finding = replace(
                    finding,
                    severity=Severity.SUSPECT,
                    blame=Blame.UNKNOWN,
                    scope=Scope.GPU,
                    action=Action.RUN_DIAGNOSTICS,
                    why=why,
                )
            case "uvm" if uvm:
                finding = replace(
                    finding,
                    severity=Severity.FATAL_GPU,
                    action=Action.RESET,
                    why="Unified memory is in use and reports an error: the card is reset.",
                )
            case _ if code == 163 and _has(records[index + 1 :], 162):
                continue
        out.append(finding)
    # A process that the driver ended is no finding of its own once the reason is known.
    known = [f for f in out if RANK[f.severity] >= RANK[Severity.DEGRADED]]
    return known or out


def _double_bit(finding: Finding, records: Sequence[Record]) -> Finding:
    """XID 48: alone a reset; with a remapped row or a contained error of the same burst the card is drained first."""
    if _has(records, 95) or not _has(records, *_REMAPPED, _CONTAINED):
        return finding
    also = Action.REPLACE if _has(records, 64) else None
    why = "A double-bit error with a remapped row: no new work, then a reset; what does not touch the card continues."
    return replace(finding, action=Action.DRAIN_AND_RESET, also=also, why=why)


def _repeats(record: Record, records: Sequence[Record]) -> int:
    """How often the same code came on the same link with the same registers."""
    same = [r for r in records if r.get("code") == record["code"] and r.get("link") == record.get("link")]
    return sum(int(r.get("count", 1)) for r in same if r.get("registers") == record.get("registers"))


def _recurs(record: Record, records: Sequence[Record], workflow: str) -> bool:
    """Whether another run shows the same: at the same GPC and TPC (13), or with another program (31)."""
    for other in records:
        if other is record or other.get("code") != record["code"] or not _another_run(record, other):
            continue
        if workflow == "place" and _units(record) & _units(other):
            return True
        if workflow == "program" and record.get("name") and other.get("name") and record["name"] != other["name"]:
            return True
    return False


def _another_run(one: Record, other: Record) -> bool:
    if one.get("pid") is not None and other.get("pid") is not None:
        return bool(one["pid"] != other["pid"])
    return "at" in one and "at" in other and abs(one["at"] - other["at"]) > BURST_S


def _units(record: Record) -> set[tuple[Any, Any]]:
    return {(place[0], place[1]) for place in record.get("places", ()) if place[1] is not None}


def _programs(judgement: Judgement, cards: Mapping[str, Sequence[Record]]) -> None:
    """A fault that moves with its program from card to card is the program's."""
    names = [{r["name"] for r in records if r.get("code") == 31 and r.get("name")} for records in cards.values()]
    moving = {name for index, of_card in enumerate(names) for name in of_card if any(name in other for other in names[:index])}
    for index, finding in enumerate(judgement.findings):
        if finding.action is Action.RUN_DIAGNOSTICS and finding.code == "31" and names[index] <= moving:
            why = "The fault moves with the program from card to card."
            judgement.findings[index] = replace(
                finding, severity=Severity.INFO, blame=Blame.USER, scope=Scope.JOB, action=Action.NOTIFY_OWNER, why=why
            )
