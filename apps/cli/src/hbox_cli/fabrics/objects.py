"""A fabric as HyperNode objects."""

from collections.abc import Iterator, Sequence
from typing import Any

from hbox_topology.core.fabric.domains import domains_of, hypernode_object
from hbox_topology.core.fabric.graph import Graph


def hypernode_objects(graph: Graph) -> list[dict[str, Any]]:
    """Machines are taken for nodes of the same name."""
    domains, _ = domains_of(graph, (host for unit in graph.units for host in unit.hosts))
    return [hypernode_object(one) for one in domains]


def documents(objects: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lines of YAML."""
    import yaml  # noqa: PLC0415  a third of a cold start, for those who ask for it

    for one in objects:
        yield "---"
        yield from yaml.safe_dump(one, sort_keys=False).splitlines()
