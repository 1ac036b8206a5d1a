"""The fabric of 10,240 cards: reading it from UFM page by page, detecting and publishing a change, and computing the scheduler's domains.

Wall-clock time includes the emulated UFM, a process on the same cores; processor time is the collector's alone and does not depend on other load.
"""

import asyncio
import multiprocessing
import random
import resource
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from hbox_common.events import FabricChanged, encode
from hbox_common.model import NodeName
from hbox_sandbox.fabric import FabricPlan, UfmServer
from hbox_sandbox.fabric.plan import disturbed
from hbox_scheduler.core.cluster.fabrics import Fabrics
from hbox_scheduler.core.topology.tree import tree_of
from hbox_topology.adapters.fabricsfile import UfmSpec
from hbox_topology.adapters.ufm import UfmSource
from hbox_topology.core.fabric.build import build
from hbox_topology.core.fabric.domains import domains_of

from .scheduler import report

#: Five pods of eight units of 32 machines with eight rails, each rail with 16 spines of its own, cores above: about 61,000 rows of ports.
PLAN = FabricPlan(pods=5, units=8, hosts=(32,), spines=16, planes=True, uplinks=2, cores=16, host_name="gpu-{:04}")
POLL_S = 1.0
#: Changes of some cables that follow each other.
CHANGES = 3


def _serve(end: Connection) -> None:
    """A UFM in a process of its own, so that its memory and time are not ours."""

    async def run() -> None:
        dice = random.Random(1)
        async with UfmServer(PLAN.snapshot()) as ufm:
            ufm.warm()
            end.send((ufm.url, ufm.token))
            while (word := await asyncio.to_thread(end.recv)) != "end":
                if word == "change":
                    ufm.snapshot = disturbed(ufm.snapshot, dice, swapped=0.001)
                    ufm.warm()
                end.send("done")

    asyncio.run(run())


def _read(end: Connection, url: str, token: str) -> None:
    """Like the collector: read, build, domains, the message; then poll until a change is there, so often."""

    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "token").write_text(token)
            source = UfmSource(UfmSpec(url=url, credentials=Path(folder), poll_s=POLL_S))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for what in range(1 + CHANGES):
                started, used = time.perf_counter(), time.process_time()
                reading = await source.read()
                while reading.snapshot is None:
                    await asyncio.sleep(POLL_S / 10)
                    started, used = time.perf_counter(), time.process_time()
                    reading = await source.read()
                read = time.perf_counter() - started
                graph = build(reading.snapshot)
                built = time.perf_counter() - started - read
                domains, _ = domains_of(graph, [host for unit in graph.units for host in unit.hosts])
                assert encode(FabricChanged(fabric="compute", hypernodes=domains, version=what))
                whole = time.perf_counter() - started
                mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                units, gaps = len(graph.units), len(graph.findings)
                end.send((what, read, built, whole, time.process_time() - used, mib, before / 1024, units, gaps, len(domains)))
                await asyncio.to_thread(end.recv)
            await source.close()

    asyncio.run(run())


def columns_ms(runs: int = 20) -> float:
    """Milliseconds of processor time from a message of domains to the tree that gangs are placed by, the worst of `runs`."""
    graph = build(PLAN.snapshot())
    nodes = [host for unit in graph.units for host in unit.hosts]
    domains, _ = domains_of(graph, nodes)
    rows = {NodeName(name): row for row, name in enumerate(nodes)}
    fabrics, worst = Fabrics(), 0.0
    for _ in range(runs):
        started = time.process_time()
        tree = tree_of(fabrics.put("compute", domains), rows, len(rows))
        assert len(tree.names) == len(domains) + 1
        worst = max(worst, 1000 * (time.process_time() - started))
    return worst


def main() -> None:
    context = multiprocessing.get_context("spawn")
    ufm_end, there = context.Pipe()
    ufm = context.Process(target=_serve, args=(there,))
    ufm.start()
    url, token = ufm_end.recv()
    end, there = context.Pipe()
    reader = context.Process(target=_read, args=(there, url, token))
    reader.start()
    noticed, changing, changed = 0.0, 0.0, 0.0
    for what in range(1 + CHANGES):
        number, read, built, whole, used, mib, bare, units, gaps, domains = end.recv()
        assert number == what
        assert units == PLAN.pods * PLAN.units
        if what == 0:
            report("10,240 cards from UFM's pages: full read to domains, by the clock", whole, "s", 5, least=False)
            report("  the same: processor time of the collector", used, "s", 5, least=False)
            report("  resident memory of the reader at most", mib, "MiB", 500, least=False)
            told = f"{read:.2f} {built:.2f} s; bare process {bare:.0f} MiB; {domains} domains"
            print(f"{'  reading, building the tree':66} {told}")
        else:
            noticed, changing = max(noticed, time.perf_counter() - changed), max(changing, used)
        if what < CHANGES:
            ufm_end.send("change")
            ufm_end.recv()
            changed = time.perf_counter()
        end.send("go on")
    name = f"  {CHANGES} changes, the worst: from UFM's counters to the message, by the clock"
    report(name, noticed, "s", POLL_S + 5, least=False)
    report("  the same: processor time of the collector, of one poll", changing, "s", POLL_S, least=False)
    print(f"{'  gaps found in the end':66} {gaps}")
    ufm_end.send("end")
    ufm.join(10)
    reader.join(10)
    report("  the scheduler's domains of 1,280 nodes, processor, worst of 20", columns_ms(), "ms", 50, least=False)


if __name__ == "__main__":
    main()
