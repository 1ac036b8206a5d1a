"""docs/reference/health-codes.md, what HBox decides for each code, and docs/runbooks/incidents/README.md, what follows from a decision, generated from the
tables of the judgement."""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from .core.judge.assess import RECOVERY_ACTIONS, recovery_finding, sxid_finding
from .core.judge.courses import Isolation, Leave, course_of
from .core.judge.finding import Action, Blame, Finding, Scope, Severity
from .core.judge.kinds import FAMILIES, family_of
from .core.judge.rules import CodeRule, MessageRule, Rules
from .data import shipped_rules

_INTRO = """\
# Health codes

Generated from the code by `make docs`; do not edit. What HBox decides for each code of NVIDIA's driver (XID) and of an NVSwitch (SXID), and for each kernel
message about hardware, on its own. Several messages of one fault are one judgement: the worst counts, and the recovery action of the card (XID 154, NVML field
230) has a higher authority than any code. `hbox health judge FILE` judges a log. What follows from an action: [incidents](../runbooks/incidents/README.md).

Tables: `codes.yaml`, `nvlink5.yaml` and `profiles.yaml` of health-monitor. Facts of NVIDIA:
[XID catalogue](https://docs.nvidia.com/deploy/xid-errors/), [memory errors](https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/),
[Fabric Manager](https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/)."""

_RULES = """\
- A code that no table has is reported, and the recovery action of the card is read. It restarts nothing.
- 154 column: the driver from which XID 154 follows the code. HBox waits 2 s for it; without it the code decides.
- 13, 31: the same GPC and TPC in another run (13), or the same card with another program (31), asks for diagnostics. A fault that moves with its program from
  card to card is the program's.
- 45 that names its cause follows the cause. Alone one process ended.
- 48 with 63, 64 or 94: the card is drained and reset; what does not touch it continues. 171 and 172 name the memory of a 48.
- 94 on a card that cannot contain an error (L20) counts as 95.
- 162 ends what 163 began. 159 counts with an error of `nvidia-uvm`."""


def page(rules: Rules) -> str:
    lines = [_INTRO, "", "## Recovery action", "", "| Value | Severity | Scope | Action | |", "|---|---|---|---|---|"]
    lines += [
        f"| {value} | {severity} | {scope} | {action} | {why}. |"
        for value, (severity, scope, action, why) in RECOVERY_ACTIONS.items()
    ]
    other = recovery_finding("", None)
    lines += [
        f"| other | {other.severity} | {other.scope} | {other.action} | A value that no table names: nothing restarts. |",
        "",
    ]
    lines += ["## XID", "", _RULES, "", "| XID | NVIDIA's name | NVIDIA asks for | 154 | Severity | Blame | Scope | Action | |"]
    lines += ["|---|---|---|---|---|---|---|---|---|", *(_row(rule) for rule in rules.codes.values()), "", *_nvlink5(rules), ""]
    lines += ["## SXID", "", "The word in the line, Fatal or Non-fatal, counts before the class of the code.", ""]
    lines += ["| Line | Code | Severity | Scope | Action |", "|---|---|---|---|---|"]
    lines += [
        f"| {'Fatal' if fatal else 'Non-fatal'} | {label} | {finding.severity} | {finding.scope} | {_then(finding.action, finding.also)} |"
        for fatal, label, code in (
            (True, _numbers(rules.switches.always_fatal), min(rules.switches.always_fatal)),
            (True, "any other", 0),
            (False, _numbers(rules.switches.harmless), min(rules.switches.harmless)),
            (False, "any other", 0),
        )
        for finding in (sxid_finding({"code": code, "fatal": fatal}, rules),)
    ] + [""]
    lines += [
        "## Other kernel messages",
        "",
        "| Kind | | Severity | Blame | Scope | Action | |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_message(name, rule) for name, rule in rules.messages.items()]
    return "\n".join(lines) + "\n"


_INCIDENTS = """\
# Incidents

Generated from the code by `make docs`; do not edit. The kinds of incidents, as in the label `kind` of `hbox_health_incidents` and as the first part of the kind
that `hbox health incidents` prints. Each has a page: what it means, what HBox does, what an operator does. The
[guide](../../guides/health.md) describes states, breaker, exemptions and maintenance; [health-codes](../../reference/health-codes.md) has each code."""

_CLOSED_TO = {
    Isolation.NONE: "nothing",
    Isolation.CARD: "the card",
    Isolation.RAIL: "the adapter",
    Isolation.MULTI_GPU: "work on several cards",
    Isolation.NODE: "the node",
}
_LEAVING = {
    Leave.NONE: "none",
    Leave.CARD: "jobs on the card",
    Leave.MULTI_GPU: "jobs with several cards",
    Leave.MULTI_NODE: "gangs over several nodes",
    Leave.NODE: "jobs on the cards at once, others within an hour",
    Leave.ALL: "all jobs",
}


def incidents_page() -> str:
    lines = [_INCIDENTS, "", "| kind | |", "|---|---|"]
    lines += [f"| [{name}]({name}.md) | {meaning} |" for name, meaning in FAMILIES.items()]
    lines += ["", "## What follows from an action", ""]
    lines += [
        "By the action of a finding about a card, a port or a node. A remedy is executed only if its verb is among `remedies`.",
        "",
    ]
    lines += ["| action | incident | takes out of use | leaves | remedy | a boot ends it |", "|---|---|---|---|---|---|"]
    for action in Action:
        if action not in (Action.NONE, Action.CLOSE_REASON, Action.NOTIFY_OWNER):
            entity, scope, kind = _ABOUT.get(action, ("gpu:0", Scope.GPU, "xid"))
            course = course_of(Finding(entity, kind, "", Severity.DEGRADED, Blame.SOFTWARE, scope, action, "", ""))
            family = family_of(course.kind)
            cells = (
                f"`{action}`",
                f"[{family}]({family}.md)",
                _CLOSED_TO[course.isolation],
                _LEAVING[course.leave],
                f"`{course.verb}`" if course.verb else "",
                "yes" if course.cured_by_boot else "no",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


#: What an action is about, if not a card: entity, scope, kind of the finding.
_ABOUT = {
    Action.REBOOT: ("node", Scope.NODE, "cards"),
    Action.RESTART_FM: ("node", Scope.MULTI_GPU, "unit"),
    Action.LOAD_MODULE: ("node", Scope.NODE, "module"),
    Action.ACS_OFF: ("node", Scope.NODE, "acs"),
    Action.ISOLATE_RAIL: ("rail:0", Scope.RAIL, "port"),
    Action.CORDON: ("node", Scope.NODE, "cper"),
    Action.RETEST: ("node", Scope.NODE, "nccl"),
    Action.VALIDATE: ("node", Scope.NODE, "nvml"),
}


def _message(name: str, rule: MessageRule) -> str:
    kind, _, variant = name.partition(" ")
    cells = (kind, variant, rule.severity, rule.blame, rule.scope, rule.action, re.sub(r"[{}]", "", rule.why))
    return f"| {' | '.join(cells)} |"


def _row(rule: CodeRule) -> str:
    action = _then(rule.action, rule.also)
    nvidia = rule.nvidia + (f"; {rule.then}" if rule.then else "")
    since = "" if rule.recovery is None else "always" if rule.recovery == 0 else f"R{rule.recovery}"
    cells = (rule.code, rule.name, nvidia or "no bucket", since, rule.severity, rule.blame, rule.scope, action, rule.why)
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _then(action: Action, also: Action | None) -> str:
    return f"{action}, then {also}" if also else str(action)


def _nvlink5(rules: Rules) -> Iterator[str]:
    yield "### 144 to 150"
    yield ""
    yield "By NVIDIA's decode table: unit, state and status of the registers. The sub-code is in bits 9:5 of the first register before R575, 6:0 from R575 on."
    yield "RESET_GPU resets the card (drains it first where only a link is dead), XID_154_EVAL follows the recovery action and else restarts the program."
    yield "IGNORE is recorded even if the line states Fatal. A line without registers asks for the recovery action."
    yield ""
    yield "| XID | Unit | Rows by bucket |"
    yield "|---|---|---|"
    for unit in rules.units:
        buckets = Counter(row.bucket for row in unit.rows)
        yield f"| {unit.xid} | {' / '.join(unit.names)} | {', '.join(f'{bucket} {n}' for bucket, n in sorted(buckets.items()))} |"


def _numbers(codes: Sequence[int] | frozenset[int]) -> str:
    return ", ".join(str(code) for code in sorted(codes))


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check the page in a folder; 1 if it is stale."""
    options = argparse.ArgumentParser(prog="python -m hbox_health.page", description=(__doc__ or "").strip())
    options.add_argument("--write", type=Path, metavar="FOLDER")
    options.add_argument("--check", type=Path, metavar="FOLDER")
    chosen = options.parse_args(argv)
    folder = chosen.write or chosen.check
    if folder is None:
        options.error("one of --write, --check is needed")
    pages = {
        folder / "health-codes.md": page(shipped_rules()),
        folder.parent / "runbooks" / "incidents" / "README.md": incidents_page(),
    }
    stale = [path for path, text in pages.items() if not path.is_file() or path.read_text() != text]
    if chosen.write:
        for path in stale:
            path.write_text(pages[path])
        return 0
    for path in stale:
        sys.stderr.write(f"{path}: stale; run `make docs`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
