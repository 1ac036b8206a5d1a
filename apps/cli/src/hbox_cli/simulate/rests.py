"""Nodes of a saved cluster whose kubelets refuse pods: job-controller's rules, applied to the pods in the order in which kubelets started them.

Pods of a cluster that another scheduler ran have no claims of HBox; their refusals count as well. A rest ends after a minute at most. If the
cluster was saved longer ago, only a warning remains.
"""

from collections.abc import Iterable
from dataclasses import replace

from hbox_common.model import ClaimId, NodeRest
from hbox_jobs.core.refusals import Refusals

from .pods import PodEntry

_FOREIGN = ClaimId("foreign")


def rests_of(pods: Iterable[PodEntry]) -> list[NodeRest]:
    """The rest of each node that refused pods. Times are those of the pods' status, so `until` may be in the past."""
    refusals = Refusals()
    tried = [(pod.started_at, pod.id, pod) for pod in pods if pod.view.node and pod.started_at is not None]
    for at, _, pod in sorted(tried, key=lambda one: one[:2]):
        refusals.pod(None, replace(pod.view, kubelet_at=at, claim=pod.view.claim or _FOREIGN), at)
    return refusals.take()
