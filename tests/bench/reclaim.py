"""Reclaim on a real control plane: gangs of 8 of one queue use all 80 cards; another queue deserves half of them and requests it.

Run it as `python -m tests.bench reclaim`. A victim ends as soon as kwok, which replaces the kubelets, observes the eviction: the termination of pods is not
measured. Nodes have no HAMi register, because with one the binder would wait for a device plugin before the next binding, and there is none.
"""

import asyncio
import subprocess
import tempfile
from pathlib import Path

from .load import Load
from .platform import HBOX
from .scheduler import report

NODES, CARDS, MEMBERS = 10, 8, 8
GANGS = NODES * CARDS // MEMBERS
LIMIT_S = 3.0


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch:
        state = Path(scratch) / "state"
        words = [str(HBOX), "up", "--api", "assets", "--state", str(state)]
        up = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert up.stdout is not None
            said = []
            for line in up.stdout:
                said.append(line)
                if line.startswith("ready"):
                    break
            else:
                raise SystemExit(f"hbox up did not get ready: {''.join(said)[-500:]}")
            last_bound_s = asyncio.run(_taken_back(state / "kubeconfig"))
        finally:
            up.terminate()
            up.communicate(timeout=60)
    report(
        f"reclaim: {GANGS // 2} gangs of {MEMBERS} take 40 of 80 cards from gangs of {MEMBERS}",
        last_bound_s,
        "s",
        LIMIT_S,
        least=False,
    )


async def _taken_back(kubeconfig: Path) -> float:
    async with Load.connect(kubeconfig) as load:
        await load.nodes(NODES, cards=CARDS)
        for name in ("owner", "borrower"):
            await load.queue(name, deserved=NODES * CARDS // 2)
        await load.gangs(GANGS, members=MEMBERS, queue="borrower")
        await asyncio.sleep(3)  # they run
        return (await load.gangs(GANGS // 2, members=MEMBERS, queue="owner")).last_bound_s
