"""Two panels in one SVG: cards in use over time, and how many jobs waited how long."""

from collections.abc import Sequence
from math import log10
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 960, 300, 60, 40, 70
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2")
POINTS = 600


def picture(title: str, curves: Sequence[tuple[str, list[tuple[float, float]], list[float]]]) -> str:
    """`curves`: name, (hours, share of cards given away), and waiting in seconds, ascending."""
    height = 2 * HEIGHT + GAP + TOP + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    for place, (name, _, _) in enumerate(curves):
        x = WIDTH - 150 * (len(curves) - place)
        lines.append(f'<rect x="{x}" y="13" width="12" height="3" fill="{COLOURS[place % len(COLOURS)]}"/>')
        lines.append(f'<text x="{x + 17}" y="20">{escape(name)}</text>')
    hours = max(curve[1][-1][0] for curve in curves) or 1.0
    lines += _frame(TOP, "cards in use, %", [(share, f"{100 * share:.0f}") for share in (0, 0.25, 0.5, 0.75, 1.0)])
    lines += _marks(TOP, [(part, f"{hours * part / 24:.1f} d") for part in (0, 0.25, 0.5, 0.75, 1.0)])
    below = TOP + HEIGHT + GAP
    decades = range(1, 7)
    lines += _frame(
        below, "jobs that waited no longer, %", [(share, f"{100 * share:.0f}") for share in (0, 0.25, 0.5, 0.75, 1.0)]
    )
    lines += _marks(below, [(_log(10.0**d), f"1e{d} s") for d in decades])
    for place, (_, used, waits) in enumerate(curves):
        colour = COLOURS[place % len(COLOURS)]
        lines.append(_line([(at / hours, share) for at, share in _thin(used)], TOP, colour))
        order = _thin(list(enumerate(waits, start=1)))
        lines.append(_line([(_log(wait), rank / len(waits)) for rank, wait in order], below, colour))
    return "\n".join([*lines, "</svg>", ""])


def _log(seconds: float) -> float:
    """1 s to 10,000,000 s, as 0 to 1."""
    return min(max(log10(max(seconds, 1.0)) / 7, 0.0), 1.0)


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    step = max(1, len(points) // POINTS)
    return [*points[::step], points[-1]]


def _x(part: float) -> float:
    return LEFT + part * (WIDTH - LEFT - 20)


def _line(points: list[tuple[float, float]], top: int, colour: str) -> str:
    drawn = " ".join(f"{_x(x):.1f},{top + HEIGHT * (1 - y):.1f}" for x, y in points)
    return f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _frame(top: int, what: str, marks: list[tuple[float, str]]) -> list[str]:
    lines = [f'<text x="{LEFT}" y="{top - 6}" fill="#777">{what}</text>']
    for part, text in marks:
        y = top + HEIGHT * (1 - part)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#777">{text}</text>')
    return lines


def _marks(top: int, marks: list[tuple[float, str]]) -> list[str]:
    return [
        f'<text x="{_x(part):.1f}" y="{top + HEIGHT + 18}" text-anchor="middle" fill="#777">{text}</text>'
        for part, text in marks
    ]
