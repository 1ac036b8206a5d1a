"""The lock of a node that is in allocation: an annotation that one pod has, taken and released against the node as it was read (sources: hami-node-lock)."""

from collections.abc import Sequence
from dataclasses import dataclass

from hbox_common.errors import NotFound

from .objects import KubeObject
from .resources import NODES
from .transport import MERGE_PATCH, KubeClient


@dataclass(frozen=True, slots=True)
class Locked:
    """The locks read from a node: (annotation, value) of each lock that is held."""

    resource_version: str
    locks: tuple[tuple[str, str], ...] = ()

    @property
    def free(self) -> bool:
        return not self.locks


def locks_of(node: KubeObject, names: Sequence[str]) -> Locked:
    """The locks of these names that stand on the node."""
    annotations = node.metadata.annotations
    return Locked(node.metadata.resource_version, tuple((name, annotations[name]) for name in names if name in annotations))


async def read_locks(client: KubeClient, node: str, names: Sequence[str]) -> Locked | None:
    """By a consistent read; None: the node is gone. Raises Unavailable, InvalidRequest."""
    try:
        found = await client.expected("GET", NODES.path(name=node))
    except NotFound:
        return None
    return locks_of(found.decode(KubeObject), names)


async def write_locks(
    client: KubeClient, node: str, names: Sequence[str], value: str | None, *, resource_version: str
) -> Locked | None:
    """Set these locks to `value`, or remove them (None), if the node is still at `resource_version`. None: the node is gone.

    Raises Conflict where it was written meanwhile, Unavailable (with `outcome_unknown`: it may have been done), InvalidRequest.
    """
    body = {"metadata": {"resourceVersion": resource_version, "annotations": dict.fromkeys(names, value)}}
    try:
        answer = await client.expected("PATCH", NODES.path(name=node), body=body, content_type=MERGE_PATCH)
    except NotFound:
        return None
    return locks_of(answer.decode(KubeObject), names)
