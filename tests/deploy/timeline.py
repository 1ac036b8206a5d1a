"""What becomes of HBox's pods and of its leases meanwhile, moment by moment: why nobody was bound for so long."""

from __future__ import annotations

from collections.abc import Sequence

from hbox_common.clock import monotonic_s
from hbox_common.kube import LEASES, PODS, Informer, KubeClient, LeaseRecord, Pod
from hbox_common.kube.reflector import Delta

from .cluster import NAMESPACE


class Timeline:
    """Times are monotonic."""

    def __init__(self) -> None:
        self._said: list[tuple[float, str]] = []

    async def watch_pods(self, client: KubeClient) -> None:
        await Informer(client, PODS, Pod, namespace=NAMESPACE).run(self._on_pods)

    async def watch_leases(self, client: KubeClient) -> None:
        await Informer(client, LEASES, LeaseRecord, namespace=NAMESPACE).run(self._on_leases)

    def between(self, begin: float, end: float) -> list[str]:
        """What was seen in that time, a line each."""
        return [f"{at - begin:+6.1f} s  {what}" for at, what in self._said if begin <= at <= end]

    async def _on_pods(self, deltas: Sequence[Delta[Pod]]) -> None:
        now = monotonic_s()
        for delta in deltas:
            before, after = (None if pod is None else _state(pod) for pod in (delta.old, delta.new))
            if before != after:
                pod = delta.new or delta.old
                assert pod is not None
                self._said.append((now, f"{pod.metadata.name}: {after or 'gone'}"))

    async def _on_leases(self, deltas: Sequence[Delta[LeaseRecord]]) -> None:
        now = monotonic_s()
        for delta in deltas:
            before, after = (None if lease is None else lease.spec.holder_identity for lease in (delta.old, delta.new))
            if delta.new is not None and before != after:
                self._said.append((now, f"lease {delta.new.metadata.name}: {after or 'let go'}"))


def _state(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp:
        return "is ended"
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)
    return "ready" if ready else "runs" if pod.status.phase == "Running" else "made"
