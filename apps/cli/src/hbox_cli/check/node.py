"""`hbox check node NODE`."""

from pathlib import Path

from hbox_common.errors import NotFound
from hbox_common.events import NodeDevicesChanged, NodeNumaChanged, NodeZonesChanged

from ..aio import run
from ..context import Context
from ..exits import Faulty
from ..output import put
from ..platform.layout import Running
from ..session import bus_of
from .findings import Level, NodeFinding
from .machine import compared, findings, of_objects
from .smitopo import SmiTopology, read


def check_node(ctx: Context, running: Running, name: str, topo: Path | None = None) -> None:
    """Print the findings about a node's configuration. `topo`: a file with the output of `nvidia-smi topo -m` on the node. Raises Faulty if a finding is a
    fault, NotFound if neither node-agent nor an object of the cluster describes the node, InvalidRequest if the file has no such table."""
    smi = None if topo is None else read(topo.read_text(errors="replace"))
    found = run(lambda: _read(running, name, smi))
    faults = [one for one in found if one.level is Level.FAULT]
    objects = [{"name": one.name, "level": one.level.name, "message": one.message, "fix": one.fix} for one in found]
    if ctx.output.machine:
        ctx.output.document("NodeCheck", {"name": name, "findings": objects})
    elif not ctx.output.people:
        ctx.output.document("NodeFindingList", {"items": objects})
    else:
        width = max(len(one.name) for one in found)
        for one in found:
            put(f"{one.level:<4} {one.name.ljust(width)}  {one.message}")
            if one.fix and one.level is not Level.OK:
                put(f"     {' ' * width}  fix: {one.fix}")
    if faults:
        raise Faulty(f"{name}: {len(faults)} faults")


async def _read(running: Running, name: str, smi: SmiTopology | None) -> list[NodeFinding]:
    async with bus_of(running) as bus:
        numa = [one.event for one in await bus.last(NodeNumaChanged, [(name,)])]
        reports = [one.event for one in await bus.last(NodeDevicesChanged, [(name,)])]
        objects = [one.event for one in await bus.last(NodeZonesChanged, [(name,)])]
    zones = next((e.zones for e in objects if isinstance(e, NodeZonesChanged) and not e.zones.gone), None)
    by_objects = [] if zones is None else list(of_objects(zones))
    machine = next((e.numa for e in numa if isinstance(e, NodeNumaChanged) and not e.numa.gone), None)
    if machine is None and by_objects:
        return by_objects
    if machine is None:
        raise NotFound(f"no node-agent publishes for node {name}", hint="docs/guides/numa.md shows how to install node-agent")
    found = [*findings(machine, next((e.devices for e in reports if isinstance(e, NodeDevicesChanged)), None)), *by_objects]
    return found if smi is None else [*found, *compared(machine, smi)]
