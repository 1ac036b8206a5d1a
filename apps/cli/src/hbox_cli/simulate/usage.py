"""What nodes really use: NodeMetrics of a file, as metrics-server serves them, in percent of what is allocatable there (as `kubectl top nodes`)."""

from collections.abc import Sequence

from hbox_common import kube
from hbox_common.model import NodeName, NodeState, NodeUsage, usage_of
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.plugins.usage import FRESH_S

from .amounts import requests
from .documents import Document
from .times import seconds


def usages_of(documents: Sequence[Document], nodes: Sequence[NodeState], *, now: float) -> list[NodeUsage]:
    """Those of nodes that the file does not have are passed over. `now`: when they were measured where that is not written.

    Raises InvalidRequest.
    """
    known = {node.name: node.allocatable for node in nodes}
    found: list[NodeUsage] = []
    for document in documents:
        metrics = document.read(kube.NodeMetrics, namespaced=False)
        name = NodeName(metrics.metadata.name)
        used = requests(document, "usage", metrics.usage)
        if (allocatable := known.get(name)) is not None:
            at = seconds(document, metrics.timestamp, "timestamp") or now
            found.append(usage_of(name, used, allocatable, at=at))
    return found


def doubts(conf: Conf, usage: Sequence[NodeUsage], *, now: float) -> list[str]:
    """Why the plugin `usage`, where the policy has it, has nothing to go by, in words."""
    if not any(plugin.name == "usage" for plugin in conf.plugins):
        return []
    if not usage:
        return ["plugin usage: the file has no NodeMetrics, so no node is over a threshold (kubectl get nodes.metrics.k8s.io)"]
    stale = sum(now - one.at > FRESH_S for one in usage)
    if not stale:
        return []
    return [
        f"plugin usage: NodeMetrics of {stale} nodes are older than {FRESH_S / 60:g} minutes and are ignored (--now sets the current time)"
    ]
