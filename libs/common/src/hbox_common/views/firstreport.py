"""Output about nodes that wait for a first report of node-agent. Pure."""

from typing import Any

from hbox_common.model import NodeState


def report_item(node: NodeState, now: float) -> dict[str, Any] | None:
    """Whether the node waits for the report, and for how many seconds at most; None for nodes that need none. `now`: seconds since the epoch."""
    if not (text := report_text(node, now)):
        return None
    state = "missing" if node.report_missing else "waiting"
    return {"state": state, "waitsSeconds": round(max(0.0, node.report_due - now), 1) if node.report_due else 0.0, "text": text}


def report_text(node: NodeState, now: float) -> str:
    """What the lack of a report means for the node; empty for nodes that need none."""
    if node.report_missing:
        return (
            "node-agent has not reported the policy and NUMA nodes of its kubelet; HBox does not know which pods that refuses"
        )
    if node.report_due:
        least = f"waits up to {max(1, round(node.report_due - now))}s for node-agent's first report"
        return f"KubeletPolicyNotKnown: {least}; until then it takes no pods with devices, exclusive CPUs or aligned memory"
    return ""
