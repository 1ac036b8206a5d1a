"""An outcome as text: bindings, evictions with the job that gets the place, and pending jobs with reasons."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .outcome import Row, waiting

PODS_SHOWN = 6


def lines_of(row: Row, *, explain: bool = False) -> Iterator[str]:
    """The lines of one file's outcome, a heading first."""
    yield f"{row['file']}: {_summary(row)}"
    if row["bindings"]:
        yield from _block("bound", ([b["pod"], b["node"], " ".join(b["devices"])] for b in row["bindings"]))
    if row["evictions"]:
        yield from _block("evicted", (_eviction(e) for e in row["evictions"]))
    if row["nominations"]:
        yield from _block("promised, once others have left", ([n["pod"], n["node"]] for n in row["nominations"]))
    groups = waiting(row)
    if groups:
        yield "  waiting"
        for why, pods in groups.items():
            yield f"    {_few(pods)}"
            yield f"      {why}"
    if explain:
        yield from _explained(row)
    for warning in row.get("warnings", ()):
        yield f"  warning: {warning}"


def pod_rows(row: Row) -> Iterator[dict[str, Any]]:
    """One item for each decision about a pod of the file: bound, evicted, promised or waiting; one item with the error of a file that was not simulated."""

    def item(pod: str, outcome: str, **known: str) -> dict[str, Any]:
        return {
            "file": row["file"],
            "name": pod,
            "outcome": outcome,
            "node": "",
            "devices": "",
            "for": "",
            "reason": "",
            **known,
        }

    if row["error"]:
        yield item("", "error", reason=row["error"])
    for one in row["bindings"]:
        yield item(one["pod"], "bound", node=one["node"], devices="; ".join(one["devices"]))
    for one in row["evictions"]:
        yield item(one["pod"], "evicted", **{key: one[key] for key in ("node", "for", "reason")})
    for one in row["nominations"]:
        yield item(one["pod"], "promised", node=one["node"])
    for why, pods in waiting(row).items():
        for pod in pods:
            yield item(pod, "waiting", reason=why)


def _summary(row: Row) -> str:
    if row["error"]:
        return f"not simulated: {row['error']}"
    counts = (
        (len(row["bindings"]), "bound"),
        (len(row["evictions"]), "evicted"),
        (len(row["nominations"]), "promised"),
        (sum(len(pods) for pods in waiting(row).values()), "waiting"),
    )
    parts = [f"{count} {word}" for count, word in counts if count]
    return ", ".join(parts) if parts else "nothing to do"


def _eviction(eviction: Mapping[str, Any]) -> list[str]:
    return [
        eviction["pod"],
        f"from {eviction['node']}",
        f"for {eviction['for']}" if eviction["for"] else "",
        eviction["reason"],
    ]


def _few(pods: Sequence[str]) -> str:
    shown = ", ".join(pods[:PODS_SHOWN])
    return shown if len(pods) <= PODS_SHOWN else f"{shown} and {len(pods) - PODS_SHOWN} more"


def _explained(row: Row) -> Iterator[str]:
    """Node by node, what the filters say and the plugins give; equal pods once."""
    for pods, filters, scores in _uniform(row):
        plugins = [name for name in scores if name != "total"]
        header = ["NODE", "FILTER", *(name.upper() for name in plugins), "TOTAL"]
        cells = [
            [node, "fits" if label is None else label]
            + [f"{scores[name].get(node, 0.0):.6g}" if label is None else "" for name in (*plugins, "total") if name in scores]
            for node, label in filters.items()
        ]
        yield from _block(f"{_few(pods)}: nodes before the first decision", [header, *cells])
    scored = row.get("domainScores", {})
    for sub_group, domains in scored.items():
        if not sub_group and len(scored) > 1:
            continue  # the same as that of the only gang, under the name that needs none
        cells = [[name, f"{score:.6g}"] for name, score in domains.items()]
        yield from _block(f"HyperNodes for {sub_group or 'all pods'}", [["HYPERNODE", "SCORE"], *cells])


def _uniform(row: Row) -> list[tuple[list[str], Mapping[str, str | None], Mapping[str, Mapping[str, float]]]]:
    found: list[tuple[list[str], Mapping[str, str | None], Mapping[str, Mapping[str, float]]]] = []
    for pod, filters in row.get("filters", {}).items():
        scores = row.get("scores", {}).get(pod, {})
        same = next((one for one in found if one[1] == filters and one[2] == scores), None)
        if same is None:
            found.append(([pod], filters, scores))
        else:
            same[0].append(pod)
    return found


def _block(title: str, rows: Iterable[Sequence[str]]) -> Iterator[str]:
    cells = [list(row) for row in rows]
    width = max(map(len, cells), default=0)
    cells = [row + [""] * (width - len(row)) for row in cells]
    widths = [max(len(row[column]) for row in cells) for column in range(width)]
    yield f"  {title}"
    for row in cells:
        yield "    " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
