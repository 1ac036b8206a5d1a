"""The kubelets of all nodes: bound pods get their cards from the node's device plugins (`deviceplugin`), run, finish after `hbox.io/run-seconds`,
and stop when deleted.

One object does it for the whole cluster: a listener notes what is due, a heap orders it, a task does it. Pods on nodes that do not exist wait.
Writes go to the store directly, as a kubelet's status updates would over HTTP, but a hundred times cheaper.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import Callable
from enum import IntEnum

from hbox_sandbox.api.cluster import Cluster
from hbox_sandbox.api.errors import Json
from hbox_sandbox.api.pods import set_condition
from hbox_sandbox.api.resources import NODES, PODS
from hbox_sandbox.api.store import Event, EventType, Version
from hbox_sandbox.api.writes import Deletion, Target, change, delete

from .deviceplugin import DevicePlugins, asks_for_cards
from .topology import Topologies

RUN_SECONDS = "hbox.io/run-seconds"
_BATCH = 100


class Step(IntEnum):
    ADMIT = 0
    START = 1
    FINISH = 2
    STOP = 3


class Kubelets:
    """`time_scale`: emulated seconds per real second, so a pod of 60 run-seconds takes one second at 60. `start_s`, `stop_s`: real seconds
    from binding to Running, and from a deletion to its end (at most the grace period). A pod that asks for cards is admitted, and its plugins called, as soon
    as it is bound: kubelet's first act, long before its containers run."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        time_scale: float = 1.0,
        start_s: float = 0.05,
        stop_s: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._scale = time_scale
        self._start_s = start_s
        self._stop_s = stop_s
        self._clock = clock
        self.plugins = DevicePlugins(cluster)
        self.topologies = Topologies(cluster)
        self._due: list[tuple[float, Step, str, str]] = []
        """Heap of (when on the clock, step, pod key, pod uid)."""
        self._nodeless: dict[str, dict[str, Step]] = {}
        """By the name of a node that does not exist: pods (uid and key) and what they wait for."""
        self._wake = asyncio.Event()
        cluster.store.listeners.append(self._note)

    def _note(self, storage: str, event: Event) -> None:
        if storage == NODES.storage and event.type is EventType.ADDED:
            for place, step in self._nodeless.pop(event.version.name, {}).items():
                uid, _, key = place.partition(" ")
                self._schedule(step, 0.0, key, uid)
        if storage != PODS.storage or event.type is EventType.DELETED:
            return
        pod, before = event.version, event.previous
        if not pod.fields["spec.nodeName"]:
            return
        if pod.deleting and (before is None or not before.deleting):
            self._schedule(Step.STOP, self._stop_s, pod.key, pod.uid)
        elif (before is None or not before.fields["spec.nodeName"]) and pod.fields["status.phase"] == "Pending":
            if asks_for_cards(pod) or pod.fields["spec.nodeName"] in self.topologies.of:
                self._schedule(Step.ADMIT, 0.0, pod.key, pod.uid)
            else:
                self._schedule(Step.START, self._start_s, pod.key, pod.uid)

    def _schedule(self, step: Step, after_s: float, key: str, uid: str) -> None:
        entry = (self._clock() + after_s, step, key, uid)
        heapq.heappush(self._due, entry)
        if self._due[0] is entry:
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.work()
            self._wake.clear()
            wait_s = self._due[0][0] - self._clock() if self._due else None
            if wait_s is not None and wait_s <= 0:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def work(self) -> None:
        """Take up to a hundred steps that are due."""
        now = self._clock()
        for _ in range(_BATCH):
            if not self._due or self._due[0][0] > now:
                return
            _, step, key, uid = heapq.heappop(self._due)
            pod = self._cluster.store.get(PODS.storage, key)
            if pod is None or pod.uid != uid:
                continue
            node = pod.fields["spec.nodeName"]
            if self._cluster.store.get(NODES.storage, node) is None:
                self._nodeless.setdefault(node, {})[f"{uid} {key}"] = step
                continue
            self._take(step, pod)

    def _take(self, step: Step, pod: Version) -> None:
        if step is Step.STOP:
            if pod.fields["status.phase"] not in ("Succeeded", "Failed"):
                pod = change(self._cluster, PODS, pod, self._stop)
            delete(self._cluster, Target(PODS, pod.namespace, pod.name), Deletion(grace_s=0, uid=pod.uid))
        elif step is Step.ADMIT and not pod.deleting and pod.fields["status.phase"] == "Pending":
            if (unaligned := self.topologies.admit(pod)) is not None:
                change(self._cluster, PODS, pod, lambda body: self._refuse(body, unaligned.message, unaligned.reason))
                return
            if refusal := self.plugins.admit(pod):
                pod = self._cluster.store.get(PODS.storage, pod.key) or pod
                change(self._cluster, PODS, pod, lambda body: self._refuse(body, refusal))
            else:
                self._schedule(Step.START, self._start_s, pod.key, pod.uid)
        elif step is Step.START and not pod.deleting and pod.fields["status.phase"] == "Pending":
            running = change(self._cluster, PODS, pod, self._start)
            seconds = _run_seconds(running.load())
            if seconds is not None:
                self._schedule(Step.FINISH, seconds / self._scale, pod.key, pod.uid)
        elif step is Step.FINISH and not pod.deleting and pod.fields["status.phase"] == "Running":
            change(self._cluster, PODS, pod, self._finish)

    def _start(self, pod: Json) -> None:
        now = self._cluster.now()
        pod["status"]["phase"] = "Running"
        pod["status"]["startTime"] = now
        for kind in ("Initialized", "ContainersReady", "Ready"):
            set_condition(pod, _condition(kind, "True", now))
        state = {"running": {"startedAt": now}}
        pod["status"]["containerStatuses"] = [
            _container(each, state, ready=True) for each in pod["spec"].get("containers") or ()
        ]

    def _refuse(self, pod: Json, why: str, reason: str = "UnexpectedAdmissionError") -> None:
        """The pod is not admitted: by default as by a kubelet whose device plugin fails."""
        pod["status"] |= {
            "phase": "Failed",
            "reason": reason,
            "message": f"Pod was rejected: {why}",
            "startTime": self._cluster.now(),
        }

    def _finish(self, pod: Json) -> None:
        now = self._cluster.now()
        pod["status"]["phase"] = "Succeeded"
        for kind in ("ContainersReady", "Ready"):
            set_condition(pod, _condition(kind, "False", now) | {"reason": "PodCompleted"})
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": pod["status"].get("startTime"), "finishedAt": now}
        state = {"terminated": ended}
        pod["status"]["containerStatuses"] = [
            _container(each, state, ready=False) for each in pod["spec"].get("containers") or ()
        ]

    def _stop(self, pod: Json) -> None:
        """Set the terminal phase of a pod whose processes a signal ended, before the pod is deleted, so that watches see it."""
        now = self._cluster.now()
        pod.setdefault("status", {})["phase"] = "Failed"
        for kind in ("ContainersReady", "Ready"):
            set_condition(pod, _condition(kind, "False", now) | {"reason": "PodFailed"})


def _condition(kind: str, status: str, now: str) -> Json:
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": now}


def _container(container: Json, state: Json, *, ready: bool) -> Json:
    return {
        "name": container.get("name", ""),
        "image": container.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }


def _run_seconds(pod: Json) -> float | None:
    """The annotation's value; None (run for ever) where it is absent or no finite, non-negative number."""
    text = (pod["metadata"].get("annotations") or {}).get(RUN_SECONDS)
    try:
        seconds = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
