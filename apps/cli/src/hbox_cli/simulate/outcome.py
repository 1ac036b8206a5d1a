"""What came of a file, as data: one JSON object a file.

Keys are those that tools for saved clusters agree on: `bindings`, `evictions`, `nominations`, `podGroups`, `pending`, and with --explain
`filters`, `scores` and `domainScores`. Pods and PodGroups are named `namespace/name`.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from hbox_scheduler.core.simulate.cycles import Report

from .cluster_file import SavedCluster

Row: TypeAlias = dict[str, Any]


def row_of(file: str, saved: SavedCluster, report: Report, *, explain: bool) -> Row:
    """The outcome of a simulation."""
    cluster = saved.cluster
    names: dict[str, str] = {gang.id: f"{gang.namespace}/{gang.name}" for gang in cluster.gangs}
    row = _empty(file)
    row["bindings"] = [{"pod": b.member.id, "node": b.node, "devices": list(b.devices)} for b in report.bindings]
    row["evictions"] = [
        {"pod": e.member.id, "node": e.node, "for": names.get(e.preemptor, e.preemptor), "reason": e.reason}
        for e in report.evictions
    ]
    row["nominations"] = [{"pod": pod, "node": node} for pod, node in report.nominations.items()]
    row["podGroups"] = {names[group]: {"phase": str(report.phases[group])} for group in saved.groups if group in report.phases}
    problems = {member.id: gang.problem for gang in cluster.gangs if gang.problem for member in gang.members}
    row["pending"] = {
        pod: {
            "message": problems.get(pod, why.message),
            "reasons": dict(why.reasons),
            **({} if why.cards is None else {"cards": why.cards.document()}),
        }
        for pod, why in report.pending.items()
    }
    if explain:
        row["filters"] = report.filters
        row["scores"] = report.scores
        row["domainScores"] = {_named(key, names): scores for key, scores in report.domain_scores.items()}
    if warnings := [*saved.warnings, *report.warnings]:
        row["warnings"] = warnings
    return row


def _named(key: str, names: Mapping[str, str]) -> str:
    """A gang's id, or that and the name of a sub-gang behind it, with the gang's name in place of its id."""
    gang, slash, sub_gang = key.rpartition("/")
    if key in names or gang not in names:
        return names.get(key, key)
    return f"{names[gang]}{slash}{sub_gang}"


def failed(file: str, error: str) -> Row:
    """The row of a file that could not be simulated."""
    return {**_empty(file), "error": error}


def waiting(row: Mapping[str, Any]) -> dict[str, list[str]]:
    """Pods that wait and have no promise, by why; in order."""
    promised = {nomination["pod"] for nomination in row["nominations"]}
    found: dict[str, list[str]] = {}
    for pod, why in row["pending"].items():
        if pod not in promised:
            found.setdefault(why["message"], []).append(pod)
    return found


def _empty(file: str) -> Row:
    return {"file": file, "error": None, "bindings": [], "evictions": [], "nominations": [], "podGroups": {}, "pending": {}}
