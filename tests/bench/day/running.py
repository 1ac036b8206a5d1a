"""A day through the running platform: all services on an emulated cluster whose clock is SCALE times as fast (`hbox up --time-scale`).

The driver has the role of users and job controllers: it creates each job's pods at the trace's time, and recreates an evicted job with the work since its
last checkpoint. Everything else is the platform's. Measurements are from outside: a pod has its node when the driver's watch shows it, and releases it when
the watch shows that the pod ended or is gone. A job's submission is the trace's time, so that delays of API and driver count against the platform.

A second of real time is SCALE seconds here: the 0.2 s from submission to binding are half a minute of the day.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hbox_cli.platform.layout import Layout
from hbox_cli.session import bus_of, receipts_of
from hbox_common.clock import run_faster, wall_s
from hbox_common.errors import NotFound
from hbox_common.events import EvictionReceipt
from hbox_common.kube import PODGROUPS, PODS, QUEUES, Delta, DeltaKind, Informer, KubeClient, Pod
from hbox_common.model import SCHEDULER_NAME
from hbox_common.model.devices.nvidia import GPU
from hbox_sandbox.replay import Creation
from hbox_sandbox.trace import TraceNode, pod_group_manifest

from ..platform import cpu_s
from .outcome import CHECKPOINT_S, SAYS, Outcome
from .work import CARDS, DAY_S, Day, Piece

HBOX = Path(sys.executable).with_name("hbox")
#: Of the clock; 0: no day through the platform.
SCALE = float(os.environ.get("HBOX_DAY_SCALE") or 120)
#: Seconds of the day between its beginning for the driver and its first job.
LEAD_S = 600.0
#: How long after the day what still waits is watched.
AFTER_S = 6 * 3600.0
SPACE = "default"
JOB_LABEL = "day"


@dataclass(slots=True)
class _Run:
    """A job as it is now, with the times of its pods by name."""

    piece: Piece
    left_s: float
    name: str
    placed: dict[str, float] = field(default_factory=dict)
    over: dict[str, float] = field(default_factory=dict)
    evicted: set[str] = field(default_factory=set)  #: told to leave
    made: list[str] = field(default_factory=list)
    broken: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)  #: all that were made are over

    @property
    def pods(self) -> int:
        return self.piece.pods[0]


class _Driver:
    def __init__(self, client: KubeClient, day: Day, *, until_s: float) -> None:
        self._client, self._day, self._until_s = client, day, until_s
        self._creation = Creation(client)
        self._began = 0.0
        self.outcome = Outcome()
        self._runs: dict[str, _Run] = {}
        self._restarts: asyncio.Queue[_Run] = asyncio.Queue()

    async def run(self) -> Outcome:
        for number in range(self._day.nodes):
            await self._creation.node(TraceNode(f"n{number:04}", 96_000, 1 << 20, CARDS, "NVIDIA-A100-SXM4-80GB"))
        for name, cards in self._day.deserved.items():
            body = {"apiVersion": f"{QUEUES.group}/{QUEUES.version}", "kind": "Queue", "metadata": {"name": name}}
            await self._creation.create(QUEUES, body | {"spec": {"deserved": {GPU: str(cards)}}})
        watch = Informer(self._client, PODS, Pod, namespace=SPACE, label_selector=JOB_LABEL)
        self._began = wall_s() + LEAD_S
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch.run(self._observe))
            await asyncio.wait_for(watch.synced.wait(), 60)
            restarting = tasks.create_task(self._restart())
            for piece in self._day.pieces:
                if piece.submit_s > self._until_s:
                    break
                await self._sleep_until(piece.submit_s)
                await self._submit(_Run(piece, piece.duration_s, piece.name))
            await self._sleep_until(self._until_s)
            watching.cancel()
            restarting.cancel()
        self.outcome.until = self._until_s
        for run in self._runs.values():
            self._account(run, self._until_s)
        return self.outcome

    def _now(self) -> float:
        """Seconds since the day began."""
        return wall_s() - self._began

    async def _sleep_until(self, at: float) -> None:
        await asyncio.sleep(max(at - self._now(), 0.0) / SCALE)

    async def _submit(self, run: _Run) -> None:
        self._runs[run.name] = run
        pods, each = run.piece.pods
        if pods > 1 and run.name == run.piece.name:
            await self._creation.create(
                PODGROUPS, pod_group_manifest(run.name, namespace=SPACE, members=pods, queue=run.piece.department)
            )
        for number in range(pods):
            body = _pod(run, f"{run.name}-{number}", each)
            run.made.append(body["metadata"]["name"])
            await self._creation.create(PODS, body)

    async def _observe(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            pod = delta.old if delta.kind is DeltaKind.DELETED else delta.new
            assert pod is not None
            if (run := self._runs.get(pod.metadata.labels[JOB_LABEL])) is None:
                continue
            name, now = pod.metadata.name, self._now()
            if pod.spec.node_name and name not in run.placed:
                run.placed[name] = now
                if len(run.placed) == run.pods:
                    self.outcome.starts.setdefault(run.piece.name, now)
            if pod.status.phase == "Succeeded":
                run.over.setdefault(name, now)
            elif pod.metadata.deletion_timestamp or delta.kind is DeltaKind.DELETED or pod.status.phase == "Failed":
                if not run.broken:
                    run.broken = True
                    self._restarts.put_nowait(run)
                run.evicted.add(name)
                if delta.kind is DeltaKind.DELETED or pod.status.phase == "Failed":
                    run.over.setdefault(name, now)
            if len(run.over) == len(run.made):
                run.gone.set()
            if not run.broken and len(run.over) == run.pods:
                self._account(run, now)
                del self._runs[run.name]

    async def _restart(self) -> None:
        """What was evicted comes back: as a controller of jobs does it, once all of its pods are gone."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._come_back(await self._restarts.get()))

    async def _come_back(self, run: _Run) -> None:
        await asyncio.sleep(0.05)  # what leaves with it is told at about the same time
        for name in run.made:
            if name not in run.evicted:
                await self._delete(name)
        await run.gone.wait()
        self._runs.pop(run.name, None)
        self._account(run, self._now())
        started = max(run.placed.values(), default=None) if len(run.placed) == run.pods else None
        ran = 0.0 if started is None else max(0.0, min(run.over.values()) - started)
        saved = ran // CHECKPOINT_S * CHECKPOINT_S
        for name in run.placed:
            self.outcome.evicted(run.piece.pods[1], started if started is not None else run.over[name], run.over[name])
        again = run.name.rpartition("-x")
        number = int(again[2]) + 1 if again[1] and again[2].isdecimal() else 1
        await self._submit(_Run(run.piece, max(run.left_s - saved, 60.0), f"{again[0] if number > 1 else run.name}-x{number}"))

    async def _delete(self, name: str) -> None:
        try:
            await self._client.json("DELETE", PODS.path(SPACE, name))
        except NotFound:
            pass

    def _account(self, run: _Run, now: float) -> None:
        for name, since in run.placed.items():
            self.outcome.ran(run.piece.pods[1], since, run.over.get(name, now))


def _pod(run: _Run, name: str, cards: int) -> dict[str, Any]:
    piece = run.piece
    notes = {"scheduling.volcano.sh/queue-name": piece.department, "hbox.io/run-seconds": f"{run.left_s:.0f}", **SAYS}
    if run.pods > 1:
        notes["scheduling.k8s.io/group-name"] = piece.name
    resources = {"cpu": str(8 * cards), GPU: str(cards)}
    container = {"name": "main", "image": "pause", "resources": {"requests": resources, "limits": resources}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "labels": {JOB_LABEL: run.name}, "annotations": notes},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "priorityClassName": piece.level,
            "restartPolicy": "Never",
            "containers": [container],
        },
    }


@dataclass(frozen=True, slots=True)
class Lived:
    """What became of the day; what the platform itself says of it: pods evicted by its receipts, faults found by its audit."""

    outcome: Outcome
    receipts: int
    faults: int
    cpu_s: Mapping[str, float]


def lived(day: Day, *, hours: float = 24.0) -> Lived:
    """The day, or its first hours, through a platform of its own."""
    with _up() as state:
        running = json.loads((state / "platform.json").read_text())
        run_faster(running["time_scale"], running["time_scale_since"])
        try:
            until_s = hours * 3600 + (AFTER_S if hours * 3600 >= DAY_S else 0.0)
            outcome = asyncio.run(_drive(state, day, until_s))
        finally:
            run_faster(1.0, 0.0)
        _save(outcome)
        told, cpu = asyncio.run(_receipts(state)), {name: cpu_s(pid) for name, pid in _pids(state).items()}
        faults = _said(state, "audit")["faults"]
    return Lived(outcome, sum(len(one.pods) for one in told), len(faults), cpu)


def _save(outcome: Outcome) -> None:
    """What was seen from outside, in a file of its own: what the platform is asked afterwards may fail."""
    with tempfile.NamedTemporaryFile("w", prefix="hbox-day-", suffix=".json", delete=False) as file:
        json.dump(asdict(outcome), file)
    print(f"what became of the day's jobs is in {file.name}", flush=True)


async def _receipts(state: Path) -> list[EvictionReceipt]:
    async with bus_of(Layout(state).running()) as bus:
        return await receipts_of(bus)


def _pids(state: Path) -> dict[str, int]:
    return dict(json.loads((state / "pids.json").read_text()))


async def _drive(state: Path, day: Day, until_s: float) -> Outcome:
    async with KubeClient.connect(str(state / "kubeconfig"), user_agent="hbox-bench", timeout_s=30) as client:
        return await _Driver(client, day, until_s=until_s).run()


def _said(state: Path, *words: str) -> Any:
    done = subprocess.run(
        [HBOX, "--state", state, "-o", "json", *words], check=False, capture_output=True, text=True, timeout=120
    )
    if not done.stdout:
        raise SystemExit(f"hbox {' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


@contextmanager
def _up() -> Iterator[Path]:
    state = Path(os.environ.get("HBOX_DAY_STATE") or tempfile.mkdtemp(prefix="hbox-day-"))
    words = [str(HBOX), "up", "--state", str(state), "--time-scale", f"{SCALE:g}"]
    up = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert up.stdout is not None
        if not any(line.startswith("ready") for line in up.stdout):
            raise SystemExit(f"hbox up did not get ready; see {state}/logs")
        yield state
    finally:
        up.terminate()
        up.wait(60)
        if not os.environ.get("HBOX_DAY_STATE"):
            shutil.rmtree(state, ignore_errors=True)
