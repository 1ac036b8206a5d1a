"""`python -m tests.e2e.trace_picture docs/pictures` draws the traces of a gang and of a bare pod, as they came from a running platform."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

from .collector import Seen, collector
from .platform_world import until, up
from .traced_jobs import BARE, started, submit

WIDTH, LEFT, RIGHT, ROW, TOP = 960, 210, 150, 26, 58
COLOURS = {"job-controller": "#4e79a7", "scheduler-core": "#f28e2b", "quota-ledger": "#59a14f", "binder": "#b07aa1"}
#: Milliseconds between lines of the scale: the first that gives no more than twelve.
STEPS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def picture(spans: list[Seen]) -> str:
    """An SVG: a row a span, in order of their starts, with times in milliseconds from the root's."""
    root = next(s for s in spans if not s.parent)
    whole_ms = 1000 * (max(s.end for s in spans) - root.start) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / whole_ms
    pods = max(int(s.attributes.get("members", 0)) for s in spans)
    height = TOP + ROW * len(spans) + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="20" font-size="14">job {escape(str(root.attributes["name"]))}, {pods} pods: '
        f"trace {root.trace}</text>",
    ]
    step = next((ms for ms in STEPS_MS if whole_ms / ms <= 12), STEPS_MS[-1])
    for ms in range(0, int(whole_ms) + 1, step):
        x = LEFT + ms * scale
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 8}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.1f}" y="{TOP - 14}" text-anchor="middle" fill="#777" font-size="11">{ms} ms</text>')
    for row, span in enumerate(spans):
        y = TOP + ROW * row
        x, width = LEFT + 1000 * (span.start - root.start) * scale, max(2.0, 1000 * (span.end - span.start) * scale)
        lines.append(f'<text x="12" y="{y + 14}">{span.name} <tspan fill="#777">{span.service}</tspan></text>')
        lines.append(
            f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{ROW - 10}" rx="2" fill="{COLOURS[span.service]}"/>'
        )
        told = f"{1000 * (span.end - span.start):.1f} ms" + _count(span)
        lines.append(f'<text x="{x + width + 5:.1f}" y="{y + 14}" font-size="11">{told}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _count(span: Seen) -> str:
    for what in ("placements", "binds", "calls"):
        if int(span.attributes.get(what, 1)) > 1:
            return f", {span.attributes[what]} {what}"
    return ""


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, collector() as got:
        os.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": got.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        state = Path(scratch) / "state"
        with up(state) as running:
            asyncio.run(submit(state / "kubeconfig"))
            until(lambda: len(started(got)) >= BARE + 1, timeout_s=30, what="traces of all jobs")
            running.stop()
        for name, job in (("trace-of-a-gang", "gang"), ("trace-of-a-pod", "bare-0")):
            (folder / f"{name}.svg").write_text(picture(started(got)[job]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
