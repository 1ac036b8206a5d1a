"""What nodes really use: NodeMetrics of a file, as metrics-server serves them, in percent of what is allocatable there (as `kubectl top nodes`)."""

from collections.abc import Mapping, Sequence

from hbox_common.model import NodeName, NodeState
from hbox_common.model.resources import CPU, MEMORY
from hbox_scheduler.core.plugins.usage import FRESH_S
from hbox_scheduler.core.policy.conf import Conf
from hbox_scheduler.core.session import NodeUsage

from . import kinds
from .amounts import requests
from .documents import Document
from .times import seconds


def usages_of(documents: Sequence[Document], nodes: Sequence[NodeState], *, now: float) -> dict[NodeName, NodeUsage]:
    """By node; those of nodes that the file does not have are passed over. `now`: when they were measured where that is not written.

    Raises InvalidRequest.
    """
    known = {node.name: node.allocatable for node in nodes}
    found: dict[NodeName, NodeUsage] = {}
    for document in documents:
        metrics = document.read(kinds.NodeMetrics, namespaced=False)
        name = NodeName(metrics.metadata.name)
        used = requests(document, "usage", metrics.usage)
        if (allocatable := known.get(name)) is not None:
            cpu, memory = (100.0 * used.get(what, 0) / max(allocatable.get(what, 0), 1) for what in (CPU, MEMORY))
            found[name] = NodeUsage(cpu, memory, at=seconds(document, metrics.timestamp, "timestamp") or now)
    return found


def doubts(conf: Conf, usage: Mapping[NodeName, NodeUsage], *, now: float) -> list[str]:
    """Why the plugin `usage`, where the policy has it, has nothing to go by, in words."""
    if not any(plugin.name == "usage" for plugin in conf.plugins):
        return []
    if not usage:
        return ["plugin usage: the file has no NodeMetrics, so no node is over a threshold (kubectl get nodes.metrics.k8s.io)"]
    stale = sum(now - one.at > FRESH_S for one in usage.values())
    if not stale:
        return []
    return [
        f"plugin usage: NodeMetrics of {stale} nodes are older than {FRESH_S / 60:g} minutes and do not count (--now says when it is)"
    ]
