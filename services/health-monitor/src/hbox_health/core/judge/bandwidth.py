"""Runs of nccl-tests, and pair tests of many nodes: which node is slow."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from hbox_common.health.nccl import Pair

from .finding import Action, Blame, Finding, Scope, Severity
from .rules import Profile

AUTHORITY = "hbox-requirements"

#: A run has to reach this share of what its kind of box reaches.
FLOOR = 0.9
#: A node is slow below both; between the two, or a little below the median, it is tested again.
MADS = 5.0
RETEST = 0.97
#: The bandwidth of smaller messages states little about the links.
LARGE = 1 << 30


def judge_run(run: Mapping[str, Any], profile: Profile) -> Finding:
    """The finding of one run of nccl-tests."""

    def decided(severity: Severity, blame: Blame, action: Action, why: str, *, also: Action | None = None) -> Finding:
        return Finding("node", "nccl", "nccl", severity, blame, Scope.NODE, action, AUTHORITY, why, also=also)

    if run["wrong"] or run.get("out_of_bounds"):
        why = (
            f"{run['wrong'] or run['out_of_bounds']} wrong results: the node corrupts data silently, which is worse than slow."
        )
        return decided(Severity.FATAL_NODE, Blame.HARDWARE, Action.CORDON, why, also=Action.RUN_DIAGNOSTICS)
    if run["avg_busbw"] is None or run["failed"]:
        return decided(Severity.SUSPECT, Blame.UNKNOWN, Action.RETEST, "The run did not end, which states nothing about speed.")
    if run["ranks"] == 1:
        return decided(Severity.NONE, Blame.NONE, Action.NONE, "One rank has no bus bandwidth: no measurement.")
    reached, expected = _reached(run), _expected(run, profile)
    if reached is None or expected is None:
        return decided(Severity.NONE, Blame.NONE, Action.NONE, "The run ended; no bandwidth is known to compare it with.")
    if reached < FLOOR * expected:
        why = f"{reached:g} GB/s, less than {FLOOR:.0%} of the {expected:g} GB/s of this kind of box: a second run confirms or refutes it."
        return decided(Severity.SUSPECT, Blame.UNKNOWN, Action.RETEST, why)
    return decided(Severity.NONE, Blame.NONE, Action.NONE, f"{reached:g} GB/s, as this kind of box reaches.")


def _reached(run: Mapping[str, Any]) -> float | None:
    large = [busbw for size, busbw in run["busbw_at"].items() if size >= LARGE]
    return max(large, default=None)


def _expected(run: Mapping[str, Any], profile: Profile) -> float | None:
    """Known for all-reduce alone: `sum` is its operation, other collectives have none."""
    if run.get("operation") != "sum":
        return None
    nodes = len(run.get("nodes", ()))
    return profile.busbw.get("box" if nodes <= 1 else "pair") if (run["ranks"] or 0) % (profile.cards or 8) == 0 else None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Nodes by how their best pair compares: a pair is as fast as its slower node, so the best of several is the node's own."""

    slow: tuple[str, ...]
    borderline: tuple[str, ...]
    well: int
    median: float
    unmeasured: tuple[str, ...] = ()  #: no pair of theirs ended


def judge_pairs(pairs: Sequence[Pair]) -> Pairs:
    best: dict[str, float] = defaultdict(float)
    for pair in pairs:
        for node in (pair.one, pair.other):
            best[node] = max(best[node], pair.busbw if pair.ok else 0.0)
    measured = {node: busbw for node, busbw in best.items() if busbw > 0}
    unmeasured = tuple(sorted(set(best) - set(measured)))
    if not measured:
        return Pairs((), (), 0, 0.0, unmeasured)
    middle = median(measured.values())
    mad = median(abs(busbw - middle) for busbw in measured.values())
    floor = min(FLOOR * middle, middle - MADS * 1.4826 * mad)
    slow = tuple(sorted(node for node, busbw in measured.items() if busbw < floor))
    borderline = tuple(sorted(node for node, busbw in measured.items() if floor <= busbw < RETEST * middle))
    return Pairs(slow, borderline, len(measured) - len(slow) - len(borderline), middle, unmeasured)


def pair_findings(pairs: Pairs) -> list[Finding]:
    out = [
        Finding(
            "node:" + node,
            "nccl",
            "slow",
            Severity.DEGRADED,
            Blame.HARDWARE,
            Scope.NODE,
            Action.CORDON,
            AUTHORITY,
            f"Slow in its best pair; the median of all nodes is {pairs.median:g} GB/s.",
            also=Action.RETEST,
        )
        for node in pairs.slow
    ]
    return out + [
        Finding(
            "node:" + node,
            "nccl",
            "borderline",
            Severity.SUSPECT,
            Blame.UNKNOWN,
            Scope.NODE,
            Action.RETEST,
            AUTHORITY,
            f"A little slower in its best pair than the median of {pairs.median:g} GB/s.",
        )
        for node in pairs.borderline + pairs.unmeasured
    ]
