"""A share comes back on a real control plane: 80 cards, all held by gangs of 8 of one queue, half of which another queue deserves and asks for.

Run it as `python -m tests.bench reclaim`. Who is evicted leaves as soon as kwok, in the kubelets' place, has seen it: what a pod takes to end is not measured.
Nodes are without HAMi's register: on those that have one, binder waits for a device plugin before it binds the next pod there, and here is none.
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
