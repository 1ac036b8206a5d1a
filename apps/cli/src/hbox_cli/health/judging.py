"""The judgement of one case as a JSON object, with the keys of the case format."""

from collections.abc import Mapping, Sequence
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

from .cases import Case
from .nodes import snapshot_of
from .story import Story

Answer = dict[str, Any]


def judged(case: Case, rules: Rules | None = None) -> Answer:
    """What `hbox health judge` prints for the case; rules: the shipped ones. Raises InvalidRequest for an input that its kind does not have."""
    rules = rules or shipped_rules()
    context = _context(case.context, rules)
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
    return {"id": case.name, "kind": case.kind, **answer}


def _story(case: Case, rules: Rules) -> Answer:
    try:
        return Story(case.input, case.context, case.expect, rules).play()
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise InvalidRequest(f"{case.name}: not a story: {type(e).__name__}: {e}") from None


def own_rules(folder: Path) -> Rules:
    """An operator's tables. Raises InvalidRequest, which names file and entry."""
    try:
        return read_rules(folder)
    except BadRules as e:
        raise InvalidRequest(str(e)) from None


def _context(given: Mapping[str, Any], rules: Rules) -> Context:
    major = str(given.get("driver", "")).partition(".")[0].lstrip("Rr")
    return Context(rules.profile(str(given.get("box", "generic"))), driver=int(major) if major.isdigit() else None)


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
    records = _records(case)
    judgement = judge(
        [r for r in records if r["kind"] != "gpu-uuid"] + [r for r in records if r["kind"] == "gpu-uuid"], rules, context
    )
    worst = judgement.worst
    out: Answer = {"parse": [{k: v for k, v in r.items() if k != "at"} for r in merged(records)]}
    out |= _decision(worst)
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


def _records(case: Case) -> list[Record]:
    given = case.input
    if "dev_kmsg" in given:
        return read_raw(case.text("dev_kmsg"))
    if "fabricmanager_log" in given:
        lines = case.text("fabricmanager_log").splitlines()
        return [{**record, "line": n} for n, line in enumerate(lines, 1) if (record := parse_fabric_manager(line)) is not None]
    for key in ("kmsg", "journal"):
        if key in given:
            return read_text(case.text(key))
    raise InvalidRequest(f"{case.name}: input: one of kmsg, dev_kmsg, journal, fabricmanager_log is expected")


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
    profile = rules.profile(str(case.input["node"].get("box", ""))) if "node" in case.input else context.profile
    findings = judge_snapshot(snapshot, profile)
    worst = max(findings, key=worse, default=None)
    out = _decision(worst)
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
    given = case.input
    if scrape.model and context.profile.name == "generic":
        context = Context(rules.profile(scrape.model), context.driver)
    inventory = given.get("inventory")
    if isinstance(inventory, Mapping):
        inventory = list(inventory)
    if inventory is not None and not isinstance(inventory, int | list):
        raise InvalidRequest(f"{case.name}: input: inventory: a number of cards or their UUIDs are expected")
    findings, absent = judge_exporter(
        scrape,
        rules,
        context,
        inventory=inventory,
        nvml_count=case.integer("nvml_count"),
        empty_for_s=case.integer("empty_for_s"),
    )
    out: Answer = {"cards_seen": len(scrape.cards)}
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
        raise InvalidRequest(f"{case.name}: input: polls: a list of readings with t and ports is expected")
    asked = sorted(case.expect.get("at", ()), key=lambda entry: float(entry["t"]))
    out: Answer = {}
    rails = Rails.of(context.profile, expected=case.context.get("compute_ports"), rate=case.context.get("rate"))
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
    return (
        isinstance(ports, dict)
        and isinstance(poll.get("t", 0), int | float)
        and all(isinstance(p, dict) for p in ports.values())
    )


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
            raise InvalidRequest(f"{case.name}, {e}") from None
        findings = pair_findings(pairs)
        out: Answer = {
            "slow": list(pairs.slow),
            "borderline": list(pairs.borderline),
            "healthy_rest": pairs.well,
            "median": pairs.median,
        }
        return out | _decision(max(findings, key=worse, default=None)) | ({"nodes": _short(findings)} if findings else {})
    if "output" not in case.input:
        raise InvalidRequest(f"{case.name}: input: one of output, pairs is expected")
    run = parse_nccl(case.text("output"))
    profile = context.profile
    if profile.name == "generic" and run.get("model"):
        profile = rules.profile(str(run["model"]))
    return {"parse": run, **_decision(judge_run(run, profile))}
