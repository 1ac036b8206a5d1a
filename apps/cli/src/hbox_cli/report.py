"""The report of a replay: arrivals, placements and their quality, as text and as report.json."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hbox_common.model import CardId
from hbox_common.model.devices import ALL_CORES
from hbox_sandbox.replay import DEPARTMENTS, OWNER, FreeNode, Lent, Measured, deserved, fragmented_milli, shapes_of
from hbox_sandbox.trace import Trace

from .audit import Audit, AuditNode, AuditPod


@dataclass(frozen=True, slots=True)
class Published:
    """FGD's result on the same trace, in percent of all cards; means of 10 runs (sources: fgd-results)."""

    allocation: float
    fragmentation: float | None
    arrived: int


#: By the trace's name. `alibaba-2023` is generated after `default`, so that its figure is a neighbour's, not its own.
PUBLISHED: Mapping[str, Published] = {
    "openb_pod_list_default": Published(95.23, 4.73, 100),
    "openb_pod_list_cpu050": Published(95.00, None, 100),
    "openb_pod_list_cpu100": Published(95.21, None, 100),
    "openb_pod_list_cpu200": Published(94.82, None, 100),
    "openb_pod_list_cpu250": Published(93.20, None, 100),
    "openb_pod_list_gpushare40": Published(93.96, None, 100),
    "openb_pod_list_gpushare60": Published(91.25, None, 100),
    "openb_pod_list_gpushare80": Published(89.08, None, 100),
    "openb_pod_list_gpushare100": Published(86.64, None, 100),
    "openb_pod_list_gpuspec10": Published(94.66, None, 100),
    "openb_pod_list_gpuspec20": Published(94.66, None, 100),
    "openb_pod_list_gpuspec25": Published(93.91, None, 100),
    "openb_pod_list_gpuspec33": Published(87.84, None, 100),
    "openb_pod_list_multigpu20": Published(95.53, None, 100),
    "openb_pod_list_multigpu30": Published(96.36, None, 100),
    "openb_pod_list_multigpu40": Published(96.91, None, 100),
    "openb_pod_list_multigpu50": Published(97.09, None, 100),
    "alibaba-2023": Published(95.23, 4.73, 100),
}


def make(
    trace: Trace,
    measured: Measured,
    audited: Audit,
    *,
    nodes: Sequence[AuditNode],
    pods: Sequence[AuditPod],
    policy: str,
    whole: bool,
) -> dict[str, Any]:
    """The content of report.json. `whole`: the whole trace was replayed, so that the report may compare with published figures."""
    latencies = measured.latencies_ms()
    ours = {node.name for node in trace.nodes}
    own = [pod for pod in pods if pod.node in ours and pod.holds]
    given = sum(piece.cores for pod in own for piece in pod.slices or ()) * 1000 // ALL_CORES
    fragments = fragmented_milli(_free(trace, nodes, own), shapes_of(trace.pods))
    published = PUBLISHED.get(trace.name) if whole else None
    return {
        "trace": trace.name,
        "policy": policy,
        "nodes": len(trace.nodes),
        "cards": trace.capacity_milli // 1000,
        "arrived": _percent(trace.demand_milli, trace.capacity_milli),
        "pods": {
            "submitted": len(measured.created_at),
            "bound": len(measured.bound_at),
            "waiting": len(measured.waiting),
            "without_verdict": sum(measured.job_of.get(name) not in measured.verdicts for name in measured.waiting),
        },
        "waiting_reasons": dict(_reasons(measured).most_common(12)),
        "latency_ms": {"p50": _percentile(latencies, 50), "p99": _percentile(latencies, 99)},
        "pods_per_s": round(measured.pods_per_s(), 1),
        "allocation": _percent(given, trace.capacity_milli),
        "fragmentation": _percent(fragments, trace.capacity_milli),
        "published": None
        if published is None
        else {
            "policy": "FGD",
            "allocation": published.allocation,
            "fragmentation": published.fragmentation,
            "arrived": published.arrived,
        },
        "evictions": len(measured.deleted),
        "audit": audit_of(audited),
    }


def audit_of(audited: Audit) -> dict[str, Any]:
    """The report's part about the audit."""
    return {
        "checks": audited.checks,
        "faults": len(audited.faults),
        "faults_found": audited.faults[:100],
        "notes": audited.notes[:100],
    }


def departments(lent: Lent, cards: int) -> dict[str, Any]:
    """The report's part about cards that were lent and taken back."""
    shares = deserved(cards)
    return {
        "owner": OWNER,
        "asked": lent.asked,
        "bound": lent.bound,
        "seconds": round(lent.seconds, 2),
        "made_room": lent.left,
        "shares": {
            name: {"deserved": shares[name], "before": lent.before[name], "after": lent.after[name]} for name in DEPARTMENTS
        },
    }


def text(report: Mapping[str, Any]) -> str:
    """The report on the terminal."""
    pods, latency, audit = report["pods"], report["latency_ms"], report["audit"]
    published = report["published"]
    published_notes = {"allocation": "", "fragmentation": ""}
    if published:
        twin = " for the trace it is modelled on" if report["trace"] == "alibaba-2023" else ""
        for name in published_notes:
            if published[name] is not None:
                published_notes[name] = (
                    f"   (published, FGD{twin} at {published['arrived']} % arrived: {published[name]:.2f} %)"
                )
    lines = [
        f"trace           {report['trace']}: {report['nodes']} nodes, {report['cards']} cards, "
        f"pods ask for {report['arrived']:.2f} % of them; policy {report['policy']}",
        f"pods            {pods['submitted']} submitted, {pods['bound']} bound, {pods['waiting']} waiting",
        *(f"                {count:6} wait: {reason}" for reason, count in report["waiting_reasons"].items()),
        f"submit-to-bound p50 {_ms(latency['p50'])}, p99 {_ms(latency['p99'])}",
        f"speed           {report['pods_per_s']} pods per second, first create to last binding",
        f"allocation      {report['allocation']:.2f} % of all cards{published_notes['allocation']}",
        f"fragmentation   {report['fragmentation']:.2f} % of all cards{published_notes['fragmentation']}",
        f"evictions       {report['evictions']}" + (", before the third department asked" if report.get("departments") else ""),
        *_lent(report.get("departments")),
        f"audit           {audit['checks']} checks, {audit['faults']} faults",
        *(f"                fault: {fault}" for fault in audit["faults_found"][:20]),
        *(f"                note: {note}" for note in audit["notes"][:20]),
    ]
    return "\n".join(lines)


def _lent(part: Mapping[str, Any] | None) -> list[str]:
    """Who had, lent and took back how much."""
    if part is None:
        return []
    owner = part["owner"]
    lines = [
        f"departments     {owner} asks for {part['asked']} cards of its own: {part['bound']} bound after {part['seconds']:.1f} s, "
        f"{part['made_room']} pods of others made room"
    ]
    for name, share in part["shares"].items():
        over = share["before"] - share["deserved"]
        had = f"{over} borrowed" if over > 0 else f"{-over} lent"
        lines.append(
            f"                {name:9} deserves {share['deserved']:5}: {share['before']:5} in use, {had}; {share['after']:5} afterwards"
        )
    return lines


def _free(trace: Trace, nodes: Sequence[AuditNode], own: Sequence[AuditPod]) -> list[FreeNode]:
    cores: dict[str, Counter[CardId]] = defaultdict(Counter)
    cpu: Counter[str] = Counter()
    for pod in own:
        cpu[pod.node] += pod.requests.get("cpu", 0)
        for piece in pod.slices or ():
            cores[pod.node][piece.card] += piece.cores
    models = {node.name: node.model for node in trace.nodes}
    return [
        FreeNode(
            node.allocatable.get("cpu", 0) - cpu[node.name],
            models[node.name],
            _left(len(node.cards), cores[node.name]),
        )
        for node in nodes
        if node.name in models
    ]


def _left(cards: int, held: Counter[CardId]) -> list[int]:
    """Free thousandths of each card, in any order."""
    found = [(ALL_CORES - cores) * 1000 // ALL_CORES for cores in held.values() if cores]
    return found + [1000] * (cards - len(found))


def _reasons(measured: Measured) -> Counter[str]:
    return Counter(kind_of(measured.verdicts.get(measured.job_of.get(name, ""), "no verdict yet")) for name in measured.waiting)


def kind_of(message: str) -> str:
    """A verdict without its numbers, its reasons in alphabetical order: verdicts on the same want differ in how many nodes say what."""
    head, found, reasons = message.partition(" nodes are available: ")
    if not found:
        return re.sub(r"\d+", "N", message)
    listed, _, alone = reasons.partition("; in the way alone: ")
    kinds = " or ".join(sorted(re.sub(r"^\d+ ", "", reason) for reason in listed.rstrip(".").split(", ")))
    if alone:
        kinds += "; alone in the way: " + ", ".join(sorted(re.sub(r" on \d+$", "", reason) for reason in alone.split(", ")))
    return kinds if re.fullmatch(r"0/\d+", head) else f"gang, for its next pod: {kinds}"


def _percentile(ordered: Sequence[float], percent: int) -> float | None:
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 1) if ordered else None


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
