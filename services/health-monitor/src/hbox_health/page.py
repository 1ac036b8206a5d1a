"""docs/reference/health-codes.md: what HBox decides for each code, generated from the tables of the judgement."""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from .core.judge.assess import RECOVERY_ACTIONS, recovery_finding, sxid_finding
from .core.judge.finding import Action
from .core.judge.rules import CodeRule, MessageRule, Rules
from .data import shipped_rules

_INTRO = """\
# Health codes

Generated from the code by `make docs`; do not edit. What HBox decides for each code of NVIDIA's driver (XID) and of an NVSwitch (SXID), and for each kernel
message about hardware, on its own. Several messages of one fault are one judgement: the worst counts, and the recovery action of the card (XID 154, NVML field
230) has a higher authority than any code. `hbox health judge FILE` judges a log.

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
    path, text = folder / "health-codes.md", page(shipped_rules())
    if chosen.write:
        path.write_text(text)
    elif not path.is_file() or path.read_text() != text:
        sys.stderr.write(f"{path}: stale; run `make docs`\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
