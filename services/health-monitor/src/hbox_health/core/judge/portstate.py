"""The state of one port as its node's agent reports it: down, slower than the node's other ports, or with growing error counters."""

from collections.abc import Mapping

from hbox_common.health.report import Fact

from .finding import Action, Blame, Finding, Scope, Severity
from .rails import COUNTS, RATES

REQUIREMENTS = "hbox-requirements"


def judge_port(fact: Fact) -> list[Finding]:
    def finding(code: str, action: Action, why: str) -> Finding:
        return Finding(fact.entity, "port", code, Severity.DEGRADED, Blame.HARDWARE, Scope.RAIL, action, REQUIREMENTS, why)

    value = fact.value
    state = "MISSING" if value.get("missing") else str(value.get("state", "")).upper()
    if state and "ACTIVE" not in state:
        return [finding("down", Action.ISOLATE_RAIL, f"the port is {state.partition(':')[2].strip() or state}")]
    found = []
    gbps, best = value.get("gbps"), value.get("best_gbps")
    if isinstance(gbps, int | float) and isinstance(best, int | float) and gbps < best:
        found.append(finding("slow", Action.ISOLATE_RAIL, f"the port has {gbps:g} Gb/s, others of the node have {best:g}"))
    if grown := _grown(fact):
        found.append(finding("errors", Action.TICKET, "; ".join(grown)))
    return found


def _grown(fact: Fact) -> list[str]:
    """Counters that grew by more than those of a well port do."""
    growth, seconds = fact.value.get("growth"), fact.value.get("growth_s")
    if not isinstance(growth, Mapping) or not isinstance(seconds, int | float) or seconds <= 0:
        return []
    found = []
    for name, more in growth.items():
        if not isinstance(more, int | float):
            continue
        if name in RATES and more / seconds > RATES[name]:
            found.append(f"{name}: {more / seconds:.3g} a second")
        elif name in COUNTS and more > COUNTS[name]:
            found.append(f"{name}: {more:g} more in {seconds:g} s")
    return found
