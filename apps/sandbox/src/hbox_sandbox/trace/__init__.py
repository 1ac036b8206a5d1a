"""Days of work: nodes and pods that arrive one after the other, read from published traces or generated from published figures."""

from .alibaba import read_alibaba2023
from .machines import machines
from .manifests import REPLAY_LABEL, node_manifest, pod_group_manifest, pod_manifest
from .model import Trace, TraceNode, TracePod

__all__ = [
    "REPLAY_LABEL",
    "Trace",
    "TraceNode",
    "TracePod",
    "machines",
    "node_manifest",
    "pod_group_manifest",
    "pod_manifest",
    "read_alibaba2023",
]
