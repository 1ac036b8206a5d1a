"""Nodes of a saved cluster whose kubelets refuse pods, as job-controller would have seen it: by its pods, in the order in which kubelets took them up.

A rest ends after a minute at most, and so does this: of a cluster that was saved longer ago a warning alone is left.
"""

from collections.abc import Iterable
from dataclasses import replace

from hbox_common.model import NodeRest
from hbox_jobs.core.refusals import Refusals

from .pods import PodEntry


def rests_of(pods: Iterable[PodEntry]) -> list[NodeRest]:
    """Of each node that refused pods. Times are those of the pods' status: `until` may be long ago."""
    refusals = Refusals()
    tried = [(pod.started_at, pod.id, pod) for pod in pods if pod.view.node and pod.started_at is not None]
    for at, _, pod in sorted(tried, key=lambda one: one[:2]):
        refusals.pod(None, replace(pod.view, kubelet_at=at), at)
    return refusals.take()
