"""The platform in processes of its own, started as a user starts it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hbox_common.kube import (
    HYPERNODES,
    NAMESPACES,
    NODES,
    PODDISRUPTIONBUDGETS,
    PODGROUPS,
    PODS,
    PRIORITYCLASSES,
    QUEUES,
    RESOURCEQUOTAS,
    KubeClient,
)
from hbox_common.model import parse_slices

from .. import forked, waiting

HBOX = [sys.executable, "-m", "hbox_cli"]
#: How much longer everything may take where other tests, each with a platform, share the cores. No figure of ours is a bar: `make bench` has those.
SLOWER = 3.0 if "PYTEST_XDIST_WORKER" in os.environ else 1.0
READY_S = 60.0
STOP_S = 40.0 * SLOWER


def until(condition: Callable[[], Any], *, timeout_s: float, what: str) -> Any:
    """What `condition` returns as soon as that is true; `timeout_s` for a machine that does nothing else."""
    timeout_s *= SLOWER
    deadline = time.monotonic() + timeout_s
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.05)


def hbox(*words: str, timeout_s: float = 60, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process whose imports are done; with what only a new process heeds in `env`, it is started as a user starts it."""
    if not _heeded_anew(env):
        return forked.run(*words, timeout_s=timeout_s * SLOWER, env=os.environ | (env or {}))
    return subprocess.run(
        [*HBOX, *words], capture_output=True, text=True, timeout=timeout_s * SLOWER, check=False, env=os.environ | (env or {})
    )


def _heeded_anew(env: Mapping[str, str] | None) -> bool:
    return any(name.startswith(("LD_", "PYTHON")) for name in env or {})


def processes_of(folder: Path) -> list[str]:
    """Command lines of the processes that know `folder`, by their arguments, their environment or where their output goes."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes()
            known = words + (entry / "environ").read_bytes()
            known += b" ".join(os.fsencode(fd.readlink()) for fd in (entry / "fd").iterdir() if fd.name in ("1", "2"))
        except OSError:
            continue
        if words and os.fsencode(folder) in known:
            found.append(f"{entry.name} {words.replace(bytes(1), b' ').decode(errors='replace')}")
    return found


class Up:
    """A running `hbox up`: forked from a process that has its imports, or begun anew as a user's. On a real control plane, and with what only a new process
    heeds in its environment, it is always the latter."""

    def __init__(self, state: Path, *words: str, env: Mapping[str, str] | None = None, anew: bool = False) -> None:
        self.state = state
        self.out, self.err = state.with_suffix(".out"), state.with_suffix(".err")
        words = ("up", "--state", str(state), *([] if "--levels" in words else ["--no-levels"]), *words)
        anew |= not {"--api", "--kubeconfig"}.isdisjoint(words) or _heeded_anew(env)
        environment = os.environ | dict(env or {})
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process: subprocess.Popen[bytes] | forked.Started = (
                subprocess.Popen([*HBOX, *words], stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment)
                if anew
                else forked.start(*words, env=environment, out=self.out, err=self.err)
            )
        try:
            until(self._ready, timeout_s=READY_S, what="hbox up")
        except BaseException:
            self.kill()
            raise

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.err.read_text()
        return any(line.startswith("ready") for line in self.out.read_text().splitlines())

    def pids(self) -> dict[str, int]:
        pids: dict[str, int] = json.loads((self.state / "pids.json").read_text())
        return pids

    def hbox(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command about this platform, in a process whose imports are done."""
        return forked.run("--state", str(self.state), *words, timeout_s=60 * SLOWER, env=os.environ)

    def json(self, *words: str) -> Any:
        done = self.hbox("-o", "json", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def stop(self, sig: int = signal.SIGINT) -> int:
        self.process.send_signal(sig)
        return self.process.wait(STOP_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(STOP_S)


def queue(running: Up, *words: str) -> str:
    """What the command says. The ledger hears of a queue a moment later than Kubernetes."""

    def done() -> str:
        said = running.hbox("queue", *words)
        return f"{said.stdout}{said.stderr}" if said.returncode == 0 else ""

    return str(until(done, timeout_s=20, what=" ".join(words)))


async def placed(client: KubeClient, space: str, prefix: str = "") -> dict[str, str]:
    """Node of each pod that has one, has not ended and is not leaving, by name."""
    return {
        one["metadata"]["name"]: one["spec"]["nodeName"]
        for one in (await client.json("GET", PODS.path(space)))["items"]
        if one["metadata"]["name"].startswith(prefix)
        and one["spec"].get("nodeName")
        and one.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        and "deletionTimestamp" not in one["metadata"]
    }


async def emptied(running: Up, client: KubeClient, space: str) -> None:
    """Nothing of a namespace is left, and the scheduler has every card back: what a test leaves behind, whole or failed, is not the next one's."""
    for kind in (PODS, PODGROUPS):
        for one in (await client.json("GET", kind.path(space)))["items"]:
            path = kind.path(space, one["metadata"]["name"])
            await client.json("DELETE", path, body={"gracePeriodSeconds": 0}, expect=(200, 202, 404))

    async def all_idle() -> bool:
        said = await asyncio.to_thread(running.json, "defrag")
        return bool(said["idleCards"] == said["cards"])

    await waiting.until(all_idle, "every card idle", timeout_s=60 * SLOWER)


def own_policy() -> str:
    """What `hbox policy show` prints."""
    done = forked.run("policy", "show", timeout_s=60 * SLOWER, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def simulate_cycle(folder: Path, items: Sequence[Mapping[str, Any]], *, policy: str = "") -> Any:
    """What `hbox simulate cycle` says of a cluster of these objects, under HBox's own policy or this one. It is saved in `folder`."""
    cluster = folder / "cluster.json"
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    words = []
    if policy:
        (folder / "policy.yaml").write_text(policy)
        words = ["--policy", str(folder / "policy.yaml")]
    done = forked.run("-o", "ndjson", "simulate", "cycle", *words, str(cluster), timeout_s=60 * SLOWER, env=os.environ)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


#: What docs/guides/simulate-cycle.md says to save of a cluster.
SAVED = (NODES, PODS, PODGROUPS, QUEUES, HYPERNODES, PRIORITYCLASSES, PODDISRUPTIONBUDGETS, RESOURCEQUOTAS, NAMESPACES)


async def saved(client: KubeClient) -> list[dict[str, Any]]:
    """The cluster's objects, as `kubectl get -A -o json` has them."""
    lists = [await client.json("GET", resource.path()) for resource in SAVED]
    return [
        {**one, "apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        for found in lists
        for one in found["items"]
    ]


async def foretold(client: KubeClient, folder: Path, *more: Mapping[str, Any], policy: str = "") -> Counter[str]:
    """What `hbox simulate cycle` says of the cluster as it is and these objects too: who would be evicted, by their names up to the first hyphen."""
    said = simulate_cycle(folder, [*await saved(client), *more], policy=policy)
    return Counter(one["pod"].partition("/")[2].partition("-")[0] for one in said["evictions"])


@contextmanager
def up(state: Path, *words: str, env: Mapping[str, str] | None = None, anew: bool = False) -> Iterator[Up]:
    """`env`: added to ours; `anew`: as a user starts it."""
    platform = Up(state, *words, env=env, anew=anew)
    try:
        yield platform
    finally:
        platform.kill()


def given_of(cards: str) -> str:
    """The annotation `hbox.io/cards` without card ids, after a check that these are distinct: `cores:memory_mib`, with `:part:slots` if either is set."""
    slices = parse_slices(cards)
    ids = {s.card for s in slices}
    assert len(ids) == len(slices)
    assert all(card.startswith(("gpu:", "mig:")) for card in ids), cards
    return ",".join(text.removeprefix(f"{s.card}:") for text, s in zip(cards.split(","), slices, strict=True))
