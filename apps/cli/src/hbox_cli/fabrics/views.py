"""A fabric as lines and items."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from hbox_common.errors import NotFound
from hbox_topology.core.fabric.graph import FAULTS, Graph, Unit
from hbox_topology.core.fabric.keeper import diff

from .drawing import Box


def tree_item(graph: Graph) -> dict[str, Any]:
    """Everything of a graph but its single ports."""
    return {
        "tiers": graph.tiers,
        "hosts": graph.hosts,
        "switches": len(graph.switches),
        "roots": [{"name": root.name, "pods": list(root.pods)} for root in graph.roots],
        "pods": [{"name": pod.name, "units": list(pod.units), "spines": list(pod.spines)} for pod in graph.pods],
        "units": [
            {
                "name": unit.name,
                "hosts": list(unit.hosts),
                "rails": unit.rails,
                "railOptimised": unit.rail_optimised,
                "leaves": [{"guid": leaf, "name": graph.switches[leaf].name} for leaf in unit.leaves],
            }
            for unit in graph.units
        ],
        "otherHosts": list(graph.others),
        "degradedRails": {host: list(rails) for host, rails in graph.degraded.items()},
        "problems": list(graph.problems),
    }


def tree_lines(graph: Graph, *, hosts: bool = False) -> Iterator[str]:
    units = {unit.name: unit for unit in graph.units}
    pods = {pod.name: pod for pod in graph.pods}
    faults = Counter(finding.unit for finding in graph.findings if finding.kind in FAULTS)
    for root in graph.roots:
        names = [name for pod in root.pods for name in pods[pod].units]
        yield f"{root.name}  {_count(sum(len(units[name].hosts) for name in names), 'host')}, {_count(len(names), 'unit')}"
        for place, pod_name in enumerate(root.pods):
            pod, last = pods[pod_name], place == len(root.pods) - 1
            here = sum(len(units[name].hosts) for name in pod.units)
            spines = f", {_count(len(pod.spines), 'spine')}" if pod.spines else ""
            yield f"{'└' if last else '├'} {pod.name}  {_count(here, 'host')}, {_count(len(pod.units), 'unit')}{spines}"
            for number, name in enumerate(pod.units):
                unit, final = units[name], number == len(pod.units) - 1
                broken = f", {_count(faults[name], 'fault')}" if faults[name] else ""
                bar = " " if last else "│"
                yield f"{bar} {'└' if final else '├'} {name}  {_count(len(unit.hosts), 'host')}, {_leaves(unit)}{broken}"
                if hosts:
                    for host in unit.hosts:
                        rails = graph.degraded.get(host, ())
                        lacking = f"  without rail {', '.join(map(str, rails))}" if rails else ""
                        yield f"{bar} {' ' if final else '│'}   {host}{lacking}"
    if graph.others:
        yield f"in no unit: {', '.join(graph.others[:12])}{' ...' if len(graph.others) > 12 else ''}"
    for problem in graph.problems:
        yield f"left out: {problem}"
    total = sum(finding.kind in FAULTS for finding in graph.findings)
    if total:
        yield f"{_count(total, 'fault')}: hbox topo gaps"


def gap_items(graph: Graph) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{finding.kind}/{finding.host or finding.switch}",
            "kind": str(finding.kind),
            "unit": finding.unit,
            "host": finding.host,
            "hca": finding.hca,
            "rails": list(finding.rails),
            "switch": finding.switch,
            "peer": finding.peer,
            "expected": finding.expected,
            "actual": finding.actual,
            "card": finding.card,
            "message": str(finding),
        }
        for finding in graph.findings
    ]


def graph_boxes(graph: Graph) -> list[Box]:
    pod_of = {name: pod.name for pod in graph.pods for name in pod.units}
    return [
        Box(unit.name, pod_of.get(unit.name, ""), unit.hosts)
        for pod in graph.pods
        for unit in graph.units
        if unit.name in pod.units
    ]


def change_items(before: Graph, after: Graph) -> list[dict[str, Any]]:
    return [
        {"name": f"{one.kind}/{one.subject}", "sign": one.sign, "kind": one.kind, "subject": one.subject, "message": one.text}
        for one in diff(before, after)
    ]


def matrix_rows(graph: Graph, unit: str | None) -> list[list[str]]:
    """Distances of units, the name of each first; or of a unit's hosts what is on each rail, titles first. Raises NotFound."""
    if unit is None:
        return _distances(graph)
    found = next((one for one in graph.units if one.name == unit), None)
    if found is None:
        raise NotFound(f"there is no unit {unit}", hint="`hbox topo tree` names them")
    return _rails(graph, found)


def aligned(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _distances(graph: Graph) -> list[list[str]]:
    pod_of = {name: pod.name for pod in graph.pods for name in pod.units}
    root_of = {name: root.name for root in graph.roots for name in root.pods}
    rows = []
    for one in graph.units:
        row = [one.name]
        for other in graph.units:
            a, b = pod_of[one.name], pod_of[other.name]
            row.append("1" if one is other else "2" if a == b else "3" if root_of[a] == root_of[b] else "-")
        rows.append(row)
    return rows


def _rails(graph: Graph, unit: Unit) -> list[list[str]]:
    at: dict[tuple[str, int], list[str]] = defaultdict(list)
    members = set(unit.hosts)
    for port in graph.ports:
        if port.link.host in members and port.rail:
            state = "" if port.link.up else "!"
            where = "" if port.unit == unit.name else f"@{graph.switches[port.link.switch].name}" if port.link.switch else ""
            at[port.link.host, port.rail].append(f"{port.link.hca or 'up'}{where}{state}")
    numbers = range(1, max((rail for _, rail in at), default=unit.rails) + 1)
    titles = ["HOST", *(f"RAIL-{rail}" for rail in numbers)]
    return [titles, *([host, *("+".join(at[host, rail]) or "-" for rail in numbers)] for host in unit.hosts)]


def _leaves(unit: Unit) -> str:
    shape = "rail-optimised" if unit.rail_optimised else f"{_count(unit.rails, 'link')} a host"
    return f"{_count(len(unit.leaves), 'leaf')} ({shape})"


def _count(number: int, word: str) -> str:
    plural = {"leaf": "leaves"}.get(word, f"{word}s")
    return f"{number} {word if number == 1 else plural}"
