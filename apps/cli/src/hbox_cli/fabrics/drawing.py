"""A fabric as a drawing: pods as columns of units, units as rows of machines, each machine in the colour of the job on it.

SVG by hand, a few kilobytes a thousand machines. Names come from outside: they are escaped, and cut.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from xml.sax.saxutils import escape, quoteattr

CELL, GAP, LABEL, PAD = 14, 3, 15, 12
PER_ROW = 16
FREE, MIXED, EDGE, TEXT, BROKEN = "#f5f7f8", "#546e7a", "#b0bec5", "#263238", "#d50000"
_FREE_EDGE, _BROKEN_EDGE = f' stroke="{EDGE}"', f' stroke="{BROKEN}" stroke-width="2.5"'
SHOWN_JOBS = 40
#: Of a job in the legend: wide enough for 48 characters.
ENTRY = 300


@dataclass(frozen=True, slots=True)
class Box:
    """A unit: its machines in order."""

    name: str
    pod: str
    hosts: Sequence[str]


def drawing(
    title: str, units: Sequence[Box], jobs: Mapping[str, Sequence[str]], *, broken: Mapping[str, Sequence[int]] | None = None
) -> str:
    """SVG. jobs: by machine, those with pods there; broken: rails of machines that are down, slow or at another leaf."""
    return "\n".join(_lines(title, units, jobs, broken or {})) + "\n"


def _lines(
    title: str, units: Sequence[Box], jobs: Mapping[str, Sequence[str]], broken: Mapping[str, Sequence[int]]
) -> Iterator[str]:
    pods = list(dict.fromkeys(unit.pod for unit in units))
    column = PER_ROW * (CELL + GAP) + 3 * PAD
    heights = {pod: 2 * PAD + LABEL + sum(_height(unit) for unit in units if unit.pod == pod) for pod in pods}
    legend = _legend(units, jobs, broken)
    width = max(len(pods) * column + PAD, ENTRY + 2 * PAD)
    across = width // ENTRY
    below = 2 * PAD + LABEL + max(heights.values(), default=0) + PAD
    height = below + -(-len(legend) // across) * (LABEL + 4) + PAD
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
    yield f"<title>{_cut(title)}</title>"
    yield f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    yield _text(PAD, PAD + 10, title, bold=True)
    for place, pod in enumerate(pods):
        x, y = PAD + place * column, 2 * PAD + LABEL
        yield f'<rect x="{x}" y="{y}" width="{column - PAD}" height="{heights[pod]}" rx="6" fill="none" stroke="{EDGE}"/>'
        yield _text(x + PAD, y + PAD + 6, pod, bold=True)
        y += PAD + LABEL
        for unit in (one for one in units if one.pod == pod):
            yield from _unit(x + PAD, y, unit, jobs, broken)
            y += _height(unit)
    for number, (fill, edge, text) in enumerate(legend):
        x, top = PAD + number % across * ENTRY, below + number // across * (LABEL + 4)
        if fill:
            yield f'<rect x="{x}" y="{top}" width="{CELL}" height="{CELL}" rx="2" fill="{fill}"{edge}/>'
        yield _text(x + CELL + 4, top + 11, text)
    yield "</svg>"


def _legend(
    units: Sequence[Box], jobs: Mapping[str, Sequence[str]], broken: Mapping[str, Sequence[int]]
) -> list[tuple[str, str, str]]:
    """Fill, edge and text of each entry: the jobs with most machines first; what else colours mean, where it is in the drawing."""
    hosts = [host for unit in units for host in unit.hosts]
    machines = Counter(job for host in hosts for job in jobs.get(host, ()))
    largest = sorted(machines, key=lambda job: (-machines[job], job))
    entries = [(colour(job), "", f"{job}: {machines[job]}") for job in largest[:SHOWN_JOBS]]
    if len(largest) > SHOWN_JOBS:
        entries.append(("", "", f"and {len(largest) - SHOWN_JOBS} jobs more"))
    entries.append((FREE, _FREE_EDGE, "free"))
    if any(len(jobs.get(host, ())) > 1 for host in hosts):
        entries.append((MIXED, "", "several jobs"))
    if any(broken.get(host) for host in hosts):
        entries.append((FREE, _BROKEN_EDGE, "a rail is down, slow or at another leaf"))
    return entries


def _unit(x: int, y: int, unit: Box, jobs: Mapping[str, Sequence[str]], broken: Mapping[str, Sequence[int]]) -> Iterator[str]:
    free = sum(not jobs.get(host) for host in unit.hosts)
    yield _text(x, y + 10, f"{unit.name}: {free} of {len(unit.hosts)} free")
    for number, host in enumerate(unit.hosts):
        here = jobs.get(host, ())
        left, top = x + number % PER_ROW * (CELL + GAP), y + LABEL + number // PER_ROW * (CELL + GAP)
        fill = FREE if not here else colour(here[0]) if len(here) == 1 else MIXED
        rails = broken.get(host, ())
        edge = _BROKEN_EDGE if rails else "" if here else _FREE_EDGE
        tooltip = f"{host}: {', '.join(here[:5]) or 'free'}" + (f"; without rail {', '.join(map(str, rails))}" if rails else "")
        yield f'<rect x="{left}" y="{top}" width="{CELL}" height="{CELL}" rx="2" fill="{fill}"{edge}><title>{_cut(tooltip, 300)}</title></rect>'


def _height(unit: Box) -> int:
    return LABEL + PAD // 2 + -(-max(len(unit.hosts), 1) // PER_ROW) * (CELL + GAP)


def colour(job: str) -> str:
    """The same for a job in every drawing. None is as red as what is broken."""
    digest = sha256(job.encode()).digest()
    hue = 25 + int.from_bytes(digest[:2], "big") % 310
    return f"hsl({hue},60%,{(42, 56, 70)[digest[2] % 3]}%)"


def _text(x: int, y: int, text: str, *, bold: bool = False) -> str:
    weight = f" font-weight={quoteattr('bold')}" if bold else ""
    return f'<text x="{x}" y="{y}" fill="{TEXT}"{weight}>{_cut(text, 48)}</text>'


def _cut(text: str, most: int = 120) -> str:
    plain = "".join(char if char.isprintable() else "?" for char in text)
    return escape(plain if len(plain) <= most else plain[: most - 1] + "…")
