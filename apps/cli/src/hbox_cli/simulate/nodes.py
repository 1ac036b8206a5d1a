"""Node objects into the states that topology-collector would publish of them."""

from dataclasses import replace

from hbox_common import kube
from hbox_common.model import Generation, NodeState
from hbox_topology.adapters.objects import node_facts
from hbox_topology.core.node import read_node

from .documents import Document

_READY = "Ready"


def node_of(document: Document) -> tuple[NodeState, tuple[str, ...]]:
    """The node, and what could not be read of it, in words. One without a Ready condition was written by hand, and counts as ready.

    Raises InvalidRequest.
    """
    node = document.read(kube.Node, namespaced=False)
    facts = node_facts(node)
    if _READY not in facts.conditions:
        facts = replace(facts, conditions={**facts.conditions, _READY: "True"})
    reading = read_node(facts, Generation(1))
    return reading.state, tuple(f"{document.where}: {warning}" for warning in reading.warnings)
