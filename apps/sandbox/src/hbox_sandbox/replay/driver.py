"""Creates a trace's nodes and pods through the cluster's API, and measures from outside when each pod is bound.

The measurement uses no data of the platform: a pod is submitted when its create call begins, and bound when the driver's own watch shows its
node. The platform reports the pending pods (`verdicts`). The replay ends when every pod has a node or a verdict and nothing has changed for
`quiet_s`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from hbox_common.clock import Clock, monotonic_s
from hbox_common.errors import Unavailable
from hbox_common.kube import NAMESPACES, PODGROUPS, PODS, Delta, DeltaKind, Informer, KubeClient, Pod
from hbox_sandbox.trace import REPLAY_LABEL, Trace, TraceNode, TracePod, pod_group_manifest, pod_manifest

from .creation import Creation, side_by_side


@dataclass(frozen=True, slots=True)
class Options:
    namespace: str = "replay"
    queues: tuple[str, ...] = ("default",)  #: jobs go to them in turn
    prefix: str = ""  #: before the names of pods and gangs, so that a trace can be replayed twice
    rate: float = 0.0  #: pods per second; 0 = as fast as the API takes them
    concurrency: int = 32
    quiet_s: float = 3.0  #: nothing moves for so long: it is over
    wait_s: float = 120.0  #: nothing moves for so long though some have no verdict: it is over too


@dataclass(frozen=True, slots=True)
class Progress:
    stage: str  #: nodes | pods | settling
    done: int
    total: int
    bound: int
    elapsed_s: float


@dataclass(slots=True)
class Measured:
    """What the driver saw. Times are of one monotonic clock, in seconds."""

    created_at: dict[str, float] = field(default_factory=dict)  #: by pod's name
    bound_at: dict[str, float] = field(default_factory=dict)
    job_of: dict[str, str] = field(default_factory=dict)  #: uid of its PodGroup, else its own
    deleted: set[str] = field(default_factory=set)
    verdicts: Mapping[str, str] = field(default_factory=dict)  #: of jobs that wait, by uid, at the end
    settled: bool = False  #: False: the time was up before every pod had a node or a verdict

    @property
    def waiting(self) -> list[str]:
        return [name for name in self.created_at if name not in self.bound_at and name not in self.deleted]

    def latencies_ms(self) -> list[float]:
        """Submit to bound, sorted."""
        return sorted(1000 * (at - self.created_at[name]) for name, at in self.bound_at.items() if name in self.created_at)

    def pods_per_s(self) -> float:
        """Bound pods over the time from the first create to the last binding."""
        if not self.bound_at:
            return 0.0
        return len(self.bound_at) / max(1e-9, max(self.bound_at.values()) - min(self.created_at.values()))


class Replay:
    """One replay. `verdicts` answers why jobs wait, by uid; `nodes_known` returns when the platform knows all nodes named."""

    def __init__(
        self,
        client: KubeClient,
        trace: Trace,
        options: Options,
        *,
        verdicts: Callable[[], Awaitable[Mapping[str, str]]],
        nodes_known: Callable[[set[str]], Awaitable[None]],
        progress: Callable[[Progress], None],
        clock: Clock = monotonic_s,
    ) -> None:
        self._client, self._trace, self._options = client, trace, options
        self._verdicts, self._nodes_known, self._progress, self._clock = verdicts, nodes_known, progress, clock
        self._seen = Measured()
        self._began = self._moved_at = 0.0
        self._creation = Creation(client)
        self._submitted = 0  #: jobs

    async def run(self) -> Measured:
        """Raises HBoxError where the API refuses an object, or cannot be reached."""
        self._began = self._clock()
        await self._creation.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._options.namespace}}
        )
        await self._make_nodes()
        watch = Informer(self._client, PODS, Pod, namespace=self._options.namespace, label_selector=f"{REPLAY_LABEL}=true")
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch.run(self._observe))
            await asyncio.wait_for(watch.synced.wait(), 60)
            await self._make_pods()
            await self._settle()
            watching.cancel()
        return self._seen

    async def _make_nodes(self) -> None:
        total = len(self._trace.nodes)
        done = 0

        async def make(nodes: Iterator[TraceNode]) -> None:
            nonlocal done
            for node in nodes:
                await self._creation.node(node)
                done += 1
                self._report("nodes", done, total)

        await side_by_side(make, iter(self._trace.nodes), workers=self._options.concurrency)
        await self._nodes_known({node.name for node in self._trace.nodes})

    async def _make_pods(self) -> None:
        units = [list(unit) for _, unit in groupby(self._trace.pods, key=lambda pod: pod.gang or pod)]
        total = len(self._trace.pods)
        start = self._clock()
        sent = 0

        async def make(units: Iterator[list[TracePod]]) -> None:
            nonlocal sent
            for unit in units:
                due = start + sent / self._options.rate if self._options.rate else 0.0
                sent += len(unit)
                if (ahead := due - self._clock()) > 0:
                    await asyncio.sleep(ahead)
                await self._submit(unit)
                self._report("pods", len(self._seen.created_at), total)

        await side_by_side(make, iter(units), workers=self._options.concurrency)

    async def _submit(self, unit: Sequence[TracePod]) -> None:
        options = self._options
        job = ""
        queue = options.queues[self._submitted % len(options.queues)]
        self._submitted += 1
        if unit[0].gang:
            group = pod_group_manifest(
                options.prefix + unit[0].gang, namespace=options.namespace, members=len(unit), queue=queue
            )
            job = (await self._creation.create(PODGROUPS, group))["metadata"]["uid"]
        for pod in unit:
            body = pod_manifest(pod, namespace=options.namespace, prefix=options.prefix, queue=queue)
            name = body["metadata"]["name"]
            self._seen.created_at[name] = self._clock()
            made = await self._creation.create(PODS, body)
            self._seen.job_of[name] = job or made["metadata"]["uid"]

    async def _observe(self, deltas: Sequence[Delta[Pod]]) -> None:
        now = self._clock()
        for delta in deltas:
            if delta.kind is DeltaKind.DELETED:
                if delta.old is not None and delta.old.metadata.name in self._seen.created_at:
                    self._seen.deleted.add(delta.old.metadata.name)
                    self._moved_at = now
            elif delta.new is not None and delta.new.spec.node_name:
                name = delta.new.metadata.name
                if name in self._seen.created_at and name not in self._seen.bound_at:
                    self._seen.bound_at[name] = now
                    self._moved_at = now

    async def _settle(self) -> None:
        self._moved_at = self._clock()
        total = len(self._seen.created_at)
        while waiting := self._seen.waiting:
            self._report("settling", total - len(waiting), total)
            still_s = self._clock() - self._moved_at
            if still_s >= self._options.quiet_s:
                try:
                    self._seen.verdicts = await self._verdicts()
                except Unavailable:
                    # A killed service restarts; the next attempt reads its verdicts.
                    self._seen.verdicts = {}
                still_s = self._clock() - self._moved_at
                if still_s >= self._options.quiet_s and all(self._seen.job_of[name] in self._seen.verdicts for name in waiting):
                    break
            if still_s >= self._options.wait_s:
                return
            await asyncio.sleep(0.25 if still_s < self._options.quiet_s else 1.0)
        self._seen.settled = True
        self._report("settling", total - len(self._seen.waiting), total)

    def _report(self, stage: str, done: int, total: int) -> None:
        self._progress(Progress(stage, done, total, len(self._seen.bound_at), self._clock() - self._began))
