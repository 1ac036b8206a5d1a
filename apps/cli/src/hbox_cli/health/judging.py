"""The judgement of one case as a JSON object, with the keys of the case format."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.health.dcgm import Scrape, parse_exporter
from hbox_common.health.lines import read_raw, read_text
from hbox_common.health.nccl import parse_nccl, parse_pairs
from hbox_common.health.records import Record, merged
from hbox_common.health.sxid import parse_fabric_manager
from hbox_health.core.judge.assess import Context
from hbox_health.core.judge.bandwidth import judge_pairs, judge_run, pair_findings
from hbox_health.core.judge.burst import Judgement, judge, worse
from hbox_health.core.judge.exporter import judge_exporter
from hbox_health.core.judge.finding import Action, Finding, Scope, Severity
from hbox_health.core.judge.nvlink import decode
from hbox_health.core.judge.rails import Rails
from hbox_health.core.judge.rules import BadRules, Rules
from hbox_health.core.judge.snapshot import Snapshot, judge_snapshot, lost_cards
from hbox_health.data import read_rules, shipped_rules

from .cases import Case, is_number
from .nodes import snapshot_of
from .story import Story

Answer = dict[str, Any]


def judged(case: Case, rules: Rules | None = None) -> Answer:
    """What `hbox health judge` prints for the case; rules: the shipped ones. Raises InvalidRequest for an input that its kind does not have."""
    rules = rules or shipped_rules()
    context = _context(case, rules)
    match case.kind:
        case "xid-line" | "sxid-line":
            answer = _kernel(case, rules, context)
        case "nvml":
            answer = _nvml(case, rules, context)
        case "dcgm":
            answer = _dcgm(case, rules, context)
        case "ib":
            answer = _ib(case, context)
        case "nccl":
            answer = _nccl(case, rules, context)
        case _:
            answer = _story(case, rules)
    return {"id": case.name, "kind": case.kind, "profile": context.profile.name, **answer}


def _story(case: Case, rules: Rules) -> Answer:
    events = case.input.get("events")
    if not isinstance(events, list) or not all(isinstance(e, dict) and is_number(e.get("t")) for e in events):
        raise InvalidRequest(f"{case.where}: input: events: a list of mappings with t is expected")
    try:
        return Story(case.input, case.context, case.expect, rules).play()
    except KeyError as e:
        raise InvalidRequest(f"{case.where}: not a story: {e} is missing") from None
    except (AttributeError, TypeError, ValueError) as e:
        raise InvalidRequest(f"{case.where}: not a story: {e}") from None


def own_rules(folder: Path) -> Rules:
    """An operator's tables. Raises InvalidRequest, which names file and entry."""
    try:
        return read_rules(folder)
    except BadRules as e:
        raise InvalidRequest(str(e)) from None


def _context(case: Case, rules: Rules) -> Context:
    major = re.match(r"[Rr]?(\d{3})(?!\d)", str(case.context.get("driver", "")))
    return Context(rules.profile(case.box), driver=int(major[1]) if major else None)


def _decision(finding: Finding | None) -> Answer:
    if finding is None:
        return {
            "severity": "none",
            "blame": "none",
            "action": "none",
            "authority": "hbox-requirements",
            "why": "Nothing is wrong.",
        }
    out: Answer = {"severity": finding.severity, "blame": finding.blame, "scope": finding.scope, "action": finding.action}
    if finding.severity is Severity.NONE:
        del out["scope"]  # nothing is taken away
    if finding.also is not None:
        out["also"] = finding.also
    if finding.severity is Severity.FATAL_GPU and finding.scope is Scope.GPU and finding.action is not Action.REPORT:
        out["evict"] = "pods-of-card"
    return out | {"authority": finding.authority, "why": finding.why}


def _short(findings: Sequence[Finding]) -> Answer:
    """Severity and action by the name of each entity; the worst where an entity has several findings."""
    out: dict[str, Finding] = {}
    for finding in findings:
        name = finding.entity.partition(":")[2] or finding.entity
        out[name] = max(out.get(name, finding), finding, key=worse)
    return {name: {"severity": finding.severity, "action": finding.action} for name, finding in out.items()}


def _kernel(case: Case, rules: Rules, context: Context) -> Answer:
    kind, text = _log(case)
    records = _READERS[kind](text)
    judgement = judge(
        [r for r in records if r["kind"] != "gpu-uuid"] + [r for r in records if r["kind"] == "gpu-uuid"], rules, context
    )
    worst = judgement.worst
    out: Answer = {"parse": [{k: v for k, v in r.items() if k != "at"} for r in merged(records)]}
    out |= _decision(worst)
    if ignored := _mentions(text) - sum(r["kind"] == "xid" for r in records):
        out["ignored"] = ignored
        if worst is None:
            out["why"] = "No event of the kernel; lines that quote an XID have another sender, or a form that is not known."
    out["incidents"] = judgement.incidents
    if judgement.primary:
        out["primary"] = judgement.primary
    if judgement.open_reasons:
        out["open_reasons"] = sorted(set(judgement.open_reasons))
    if judgement.memory is not None:
        out["memory"] = judgement.memory
    if len(judgement.findings) > 1:
        out["by_card"] = _short(judgement.findings)
    if events := sum(r.get("count", 1) for r in merged(records) if r["kind"] == "sxid"):
        out["events"] = events
    return out | _decoded(records, judgement, rules, context) | _same_as(worst)


def _fabric_manager(text: str) -> list[Record]:
    found = ((n, parse_fabric_manager(line)) for n, line in enumerate(text.splitlines(), 1))
    return [{**record, "line": n} for n, record in found if record is not None]


_READERS: Mapping[str, Callable[[str], list[Record]]] = {
    "dev_kmsg": read_raw,
    "fabricmanager_log": _fabric_manager,
    "kmsg": read_text,
    "journal": read_text,
}


def _log(case: Case) -> tuple[str, str]:
    kind = next((kind for kind in _READERS if kind in case.input), None)
    if kind is None:
        raise InvalidRequest(f"{case.where}: input: one of kmsg, dev_kmsg, journal, fabricmanager_log is expected")
    return kind, case.text(kind)


def _mentions(text: str) -> int:
    return sum("NVRM: Xid (" in line for line in text.splitlines())


def _decoded(records: Sequence[Record], judgement: Judgement, rules: Rules, context: Context) -> Answer:
    """Bucket and investigation of NVIDIA's decode table, for the code that decided."""
    rows = [
        row
        for record in records
        if record.get("code") in judgement.primary.values() and record["kind"] == "xid"
        if (row := decode(record, rules, context.driver)) is not None
    ]
    return {"bucket": rows[0].bucket, "investigate": rows[0].investigate} if rows else {}


def _same_as(worst: Finding | None) -> Answer:
    """The code that a line without one is worth."""
    worth = {"gpu-lost": 79, "gsp-rate-limit": 119}
    return {"same_as": worth[worst.kind]} if worst is not None and worst.kind in worth else {}


def _nvml(case: Case, rules: Rules, context: Context) -> Answer:
    snapshot: Snapshot = snapshot_of(case, rules)
    profile = context.profile
    if "node" in case.input and not case.box:
        profile = rules.profile(str(case.input["node"].get("box", "")))
    findings = judge_snapshot(snapshot, profile)
    worst = max(findings, key=worse, default=None)
    out: Answer = {"profile": profile.name, **_decision(worst)}
    shown = _short([f for f in findings if f.entity.startswith("gpu:")])
    named = [str(card["uuid"]) for card in snapshot.cards if card.get("named")]
    for uuid in named:
        shown.setdefault(uuid, {"severity": "none", "action": "none"})
    if shown:
        out["cards"] = shown
    if lost := lost_cards(snapshot):
        out["lost"] = lost
    if findings:
        out["incidents"] = len({"node" if f.scope in {Scope.NODE, Scope.MULTI_GPU} else f.entity for f in findings})
    return out


def _dcgm(case: Case, rules: Rules, context: Context) -> Answer:
    scrape = parse_exporter(case.text("metrics"))
    if scrape.model and context.profile.name == "generic":
        context = Context(rules.profile(scrape.model), context.driver)
    findings, absent = judge_exporter(
        scrape,
        rules,
        context,
        inventory=case.cards("inventory"),
        nvml_count=case.integer("nvml_count"),
        empty_for_s=case.integer("empty_for_s"),
    )
    out: Answer = {"profile": context.profile.name, "cards_seen": len(scrape.cards)}
    if scrape.node:
        out["node"] = scrape.node
    out |= _values(scrape)
    if last := {card: int(code) for card, code in scrape.values("DCGM_FI_DEV_XID_ERRORS").items() if code}:
        out["last_xid"] = last
    if absent:
        out["lost"] = absent
    out |= _decision(max(findings, key=worse, default=None))
    if shown := _short([f for f in findings if f.entity.startswith("gpu:")]):
        out["cards"] = shown
    return out


def _values(scrape: Scrape) -> Answer:
    """Values by card, of the field that has no value for a card, else of the first field."""
    names = [sample.name for sample in scrape.samples if sample.card is not None]
    blank = next((sample.name for sample in scrape.samples if sample.card is not None and sample.value is None), None)
    if not names:
        return {}
    values = scrape.values(blank or names[0])
    return {"values": {card: int(v) if v is not None and v.is_integer() else v for card, v in values.items()}}


def _ib(case: Case, context: Context) -> Answer:
    polls = case.input.get("polls")
    if not isinstance(polls, list) or not all(map(_is_poll, polls)):
        raise InvalidRequest(f"{case.where}: input: polls: a list of readings is expected, with t and ports as texts of sysfs")
    expected, rate = case.context.get("compute_ports"), case.context.get("rate")
    if not (expected is None or isinstance(expected, int)) or not (rate is None or is_number(rate)):
        raise InvalidRequest(f"{case.where}: context: compute_ports and rate: numbers are expected")
    asked = sorted(case.expect.get("at", ()), key=lambda entry: float(entry["t"]))
    out: Answer = {}
    rails = Rails.of(context.profile, expected=expected, rate=rate)
    answers: list[Answer] = []
    for poll in polls:
        t = float(poll.get("t", 0))
        while asked and float(asked[0]["t"]) < t:
            answers.append(_rails_at(rails, asked.pop(0)))
        rails.poll(t, poll["ports"])
    answers += [_rails_at(rails, entry) for entry in asked]
    findings = rails.findings(float(polls[-1].get("t", 0))) if polls else []
    if answers:
        out["at"] = answers
    worst = max(findings, key=worse, default=None)
    out |= _decision(worst)
    if hurt := sorted(f.entity.removeprefix("rail:") for f in findings if f.entity.startswith("rail:")):
        out["rails"] = hurt
        out["by_rail"] = _short(findings)
    if findings:
        out["incidents"] = len({"fabric" if f.scope is Scope.FABRIC else f.entity for f in findings})
    return out


def _is_poll(poll: Any) -> bool:
    ports = poll.get("ports") if isinstance(poll, dict) else None
    return isinstance(ports, dict) and is_number(poll.get("t", 0)) and all(map(_is_port, ports.values()))


def _is_port(port: Any) -> bool:
    return isinstance(port, dict) and all(isinstance(port.get(key, ""), str) for key in ("state", "rate", "link_layer"))


def _rails_at(rails: Rails, asked: Mapping[str, Any]) -> Answer:
    t = float(asked["t"])
    worst = max(rails.findings(t), key=worse, default=None)
    states = [rails.state(t, str(asked["rail"]))] if "rail" in asked else [rails.state(t, name) for name in rails.names]
    state = next((s for s in ("isolated", "still-isolated") if s in states), "well")
    return {
        "t": asked["t"],
        "severity": worst.severity if worst else "none",
        "action": worst.action if worst else "none",
        "state": state,
    }


def _nccl(case: Case, rules: Rules, context: Context) -> Answer:
    if "pairs" in case.input:
        try:
            pairs = judge_pairs(parse_pairs(case.text("pairs")))
        except ValueError as e:
            raise InvalidRequest(f"{case.where}, {e}") from None
        findings = pair_findings(pairs)
        out: Answer = {
            "slow": list(pairs.slow),
            "borderline": list(pairs.borderline),
            "healthy_rest": pairs.well,
            "median": pairs.median,
        }
        return out | _decision(max(findings, key=worse, default=None)) | ({"nodes": _short(findings)} if findings else {})
    if "output" not in case.input:
        raise InvalidRequest(f"{case.where}: input: one of output, pairs is expected")
    run = parse_nccl(case.text("output"))
    profile = context.profile
    if profile.name == "generic" and run.get("model"):
        profile = rules.profile(str(run["model"]))
    return {"profile": profile.name, "parse": run, **_decision(judge_run(run, profile))}
