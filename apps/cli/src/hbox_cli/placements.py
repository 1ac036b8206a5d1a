"""Output that explains the placements of pods."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from .output import put

PODS_SHOWN = 8


def lines_of(decisions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Lines about the decisions that scheduler-core sent, by plan and node."""
    lines: list[str] = []
    for decision in decisions:
        at = datetime.fromtimestamp(decision["at"], UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        pods = sum(len(on["pods"]) for on in decision["nodes"])
        lines += [
            f"  plan {decision['plan']}  {at}  {pods} pods on {len(decision['nodes'])} nodes",
            f"    {decision['policy']}",
        ]
        if decision["made_room"]:
            lines.append(f"    {decision['victims']} pods were evicted for it, by plan {decision['made_room']}")
        for on in decision["nodes"]:
            more = f" and {len(on['pods']) - PODS_SHOWN} more" if len(on["pods"]) > PODS_SHOWN else ""
            lines.append(f"    {on['node']}: {', '.join(on['pods'][:PODS_SHOWN])}{more}")
            if on["chosen"] is not None:
                lines.append(f"      score      {_scored(on['chosen'])}")
            if on["runner_up"] is not None:
                lines.append(f"      runner-up  {on['runner_up']['node']}, {_scored(on['runner_up'])}")
            lines.append(f"                 {on['why']}")
    return lines


def show(decisions: Iterable[Mapping[str, Any]]) -> None:
    put(*lines_of(decisions))


def _scored(scored: Mapping[str, Any]) -> str:
    terms = ", ".join(f"{plugin} {score:g}" for plugin, score in scored["terms"].items())
    return f"{scored['total']:g}: {terms}" if terms else "no plugin has an opinion"
