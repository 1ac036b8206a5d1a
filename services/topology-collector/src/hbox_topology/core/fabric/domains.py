"""Domains of nodes by tier, as the scheduler takes them: from a graph, from labels of nodes, and NVLink domains below either."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hbox_common.model import VENDORS, HyperNode, NodeName

from .graph import Graph
from .names import host_of, natural

#: Names of tiers.
NVLINK, LEAF_GROUP, POD, FABRIC = "nvlink", "leafgroup", "pod", "fabric"
#: Label of nodes whose cards are linked beyond the node, by its vendor's feature discovery: <ClusterUUID>.<CliqueID>.
CLIQUE = next(vendor.clique_label for vendor in VENDORS if vendor.clique_label)
#: Machines without a common NVLink fabric have no cluster.
NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
#: Label of a domain: GUIDs of its switches, by which its name is found again after a restart.
SWITCHES = "hbox.io/switches"
MAX_LABEL_SWITCHES = 3000
_NOT_NAME = re.compile(r"[^a-z0-9]+")

Labels = Mapping[str, Mapping[str, str]]  #: of nodes, by name


def domains_of(graph: Graph, nodes: Iterable[str], *, prefix: str = "") -> tuple[tuple[HyperNode, ...], tuple[str, ...]]:
    """Units as tier 1, pods where a root has several, roots; and problems. Machines that are no nodes are left out, and what has none.

    A machine is a node by its name without domain, in lower case; a name that two nodes have is nobody's.
    """
    known, problems = _by_host(nodes)
    out: list[HyperNode] = []
    units: dict[str, str] = {}
    for unit in graph.units:
        members = tuple(NodeName(known[host]) for host in unit.hosts if host in known)
        if members:
            units[unit.name] = prefix + unit.name
            out.append(HyperNode(prefix + unit.name, 1, LEAF_GROUP, nodes=members, labels=_switches(unit.leaves)))
    layered = len(graph.pods) > len(graph.roots)
    pods: dict[str, tuple[str, ...]] = {}
    for pod in graph.pods:
        children = tuple(units[name] for name in pod.units if name in units)
        if children:
            pods[pod.name] = (prefix + pod.name,) if layered else children
            if layered:
                out.append(HyperNode(prefix + pod.name, 2, POD, children=children, labels=_switches(pod.spines)))
    for root in graph.roots:
        below = tuple(child for name in root.pods for child in pods.get(name, ()))
        if below:
            out.append(HyperNode(prefix + root.name, 3 if layered else 2, FABRIC, children=below))
    return tuple(out), problems


def _switches(guids: Sequence[str]) -> dict[str, str]:
    return {SWITCHES: ",".join(guids[:MAX_LABEL_SWITCHES])} if guids else {}


def _by_host(nodes: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    found: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        found[host_of(node)].append(node)
    twice = sorted(host for host, names in found.items() if len(names) > 1)
    problems = tuple(
        f"nodes {' and '.join(sorted(found[host])[:2])} have one name without domain: in no domain" for host in twice
    )
    return {host: names[0] for host, names in found.items() if len(names) == 1}, problems[:20]


def domains_of_labels(labels: Labels, keys: Sequence[str]) -> tuple[HyperNode, ...]:
    """Domains of nodes with equal labels. `keys`: from the widest to the narrowest, which is tier 1; a node without one of them ends at the tier above it.

    A tier is called by its label, as Kueue and KAI name levels. Equal values in different domains above are different domains.
    """
    members: dict[tuple[str, ...], list[NodeName]] = defaultdict(list)
    children: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
    for node in sorted(labels, key=natural):
        path: list[str] = []
        for key in keys:
            value = labels[node].get(key, "")
            if not value:
                break
            path.append(value)
            if len(path) > 1:
                children[tuple(path[:-1])][_domain_name(keys[: len(path)], path)] = None
            else:
                children.setdefault(tuple(path), {})
        if path:
            members[tuple(path)].append(NodeName(node))
    paths = sorted({tuple(path[:length]) for path in members for length in range(1, len(path) + 1)}, key=lambda p: (-len(p), p))
    return tuple(
        HyperNode(
            _domain_name(keys[: len(path)], path),
            len(keys) - len(path) + 1,
            keys[len(path) - 1],
            nodes=tuple(members.get(path, ())),
            children=tuple(children.get(path, ())),
        )
        for path in paths
    )


def _domain_name(keys: Sequence[str], path: Sequence[str]) -> str:
    plain = _NOT_NAME.sub("-", path[-1].lower()).strip("-")[:40].strip("-") or "domain"
    digest = hashlib.sha256("\0".join((*keys, *path)).encode()).hexdigest()[:8]
    return f"{plain}-{digest}"


def with_nvlink(domains: Sequence[HyperNode], labels: Labels) -> tuple[HyperNode, ...]:
    """The same with NVLink domains as a tier below all others; as it is where no node is in one."""
    cliques: dict[str, list[NodeName]] = defaultdict(list)
    for node in sorted(labels, key=natural):
        clique = labels[node].get(CLIQUE, "")
        if clique and not clique.startswith(NO_CLUSTER):
            cliques[clique].append(NodeName(node))
    if not cliques:
        return tuple(domains)
    low = min((one.tier for one in domains), default=2)
    below = [
        HyperNode(_domain_name((CLIQUE,), (clique,)), low, NVLINK, nodes=tuple(nodes)) for clique, nodes in cliques.items()
    ]
    return (*sorted(below, key=lambda one: one.name), *(replace(one, tier=one.tier + 1) for one in domains))


def hypernode_object(domain: HyperNode, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """As an object of topology.volcano.sh."""
    members = [("Node", str(name)) for name in domain.nodes] + [("HyperNode", name) for name in domain.children]
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": domain.name, **({"labels": dict(labels)} if labels else {})},
        "spec": {
            "tier": domain.tier,
            "tierName": domain.tier_name,
            "members": [{"type": kind, "selector": {"exactMatch": {"name": name}}} for kind, name in members],
        },
    }
