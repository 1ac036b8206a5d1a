"""A taint that one owner keeps on a node: put, put back, taken away; all others stay as they are."""

from typing import Any

import msgspec

from hbox_common.errors import Conflict, NotFound, Unavailable

from .objects import KubeObject
from .resources import NODES
from .transport import MERGE_PATCH, KubeClient

_TRIES = 4  #: kubelets write node status all the time, which moves the resourceVersion under us


class _Spec(msgspec.Struct):
    taints: list[dict[str, Any]] | None = None  #: with all that others write of theirs


class _Node(KubeObject, frozen=True, gc=False):
    spec: _Spec = msgspec.field(default_factory=_Spec)


async def keep_taint(client: KubeClient, *, node: str, key: str, value: str | None, effect: str) -> bool:
    """Set the taint with this key and effect to this value; None removes it. Returns whether a write was needed; False if the node is deleted.

    The write is conditional on the resourceVersion read, so that concurrent changes of taints are never lost. Raises Unavailable if the caller should retry,
    InvalidRequest if the API server will never accept it.
    """
    path = NODES.path(name=node)
    for _ in range(_TRIES):
        try:
            found = (await client.expected("GET", path)).decode(_Node)
        except NotFound:
            return False
        taints = found.spec.taints or []
        wanted = with_taint(taints, key=key, value=value, effect=effect)
        if wanted == taints:
            return False
        body = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": {"taints": wanted or None}}
        try:
            (await client.expected("PATCH", path, body=body, content_type=MERGE_PATCH)).decode(KubeObject)
        except NotFound:
            return False
        except Conflict:
            continue
        return True
    raise Unavailable(f"node {node} was written again and again meanwhile")


def with_taint(taints: list[dict[str, Any]], *, key: str, value: str | None, effect: str) -> list[dict[str, Any]]:
    """The taints with the one of this key and effect replaced in its position, or appended."""
    ours = [one for one in taints if one.get("key") == key and one.get("effect") == effect]
    if value is not None and [one.get("value", "") for one in ours] == [value]:
        return taints
    others = [one for one in taints if one not in ours]
    return others if value is None else [*others, {"key": key, "value": value, "effect": effect}]
