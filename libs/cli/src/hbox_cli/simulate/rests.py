"""Nodes of a saved cluster whose device plugins fail pods, as binder would have seen it: by the pods that kubelets failed, one after the other.

Binder forgets a rest after a minute at most, and so does this: of a cluster that was saved longer ago a warning alone is left.
"""

from collections.abc import Iterable

from hbox_common.model import NodeName, NodeRest, rest_s
from hbox_jobs.core.views import PodStatus

from .pods import PodEntry


def rests_of(pods: Iterable[PodEntry]) -> list[NodeRest]:
    """Of each node whose plugin failed the last pod with cards that its kubelet took up, the failures since the last one that began. Times are those of the
    pods' status: `until` may be long ago."""
    tried: dict[NodeName, list[tuple[float, bool, PodEntry]]] = {}
    for pod in pods:
        if pod.view.node and pod.spec.cards is not None and pod.started_at is not None:
            failed = pod.view.status is PodStatus.FAILED and bool(pod.view.not_admitted)
            tried.setdefault(pod.view.node, []).append((pod.started_at, failed, pod))
    rests = []
    for node, found in sorted(tried.items()):
        found.sort(key=lambda one: (one[0], one[2].id))
        failures = 0
        while failures < len(found) and found[-1 - failures][1]:
            failures += 1
        if failures:
            at, _, last = found[-1]
            lasts = rest_s(failures)
            rests.append(NodeRest(node, failures, at + lasts if lasts else 0.0, at, last.id, last.view.not_admitted))
    return rests
