"""Closing a node for new pods, and opening again only what we closed ourselves."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from hbox_common.errors import Conflict, InvalidRequest, NotFound, Unavailable
from hbox_common.model.annotations import CORDON_REASON, CORDONED_BY

from .objects import KubeObject, Metadata, Node
from .resources import NODES
from .transport import MERGE_PATCH, KubeClient

_TRIES = 4  #: kubelets write node status all the time, which moves the resourceVersion under us


class CordonOutcome(StrEnum):
    DONE = "done"  #: the node is as asked for
    NOT_OURS = "not-ours"  #: another client cordoned it: left unchanged
    GONE = "gone"
    REJECTED = "rejected"
    UNKNOWN = "unknown"  #: call again


class _ManagedFields(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    fields_v1: dict[str, Any] = msgspec.field(default={}, name="fieldsV1")

    def has(self, *path: str) -> bool:
        found: Any = self.fields_v1
        for name in path:
            found = found.get(f"f:{name}") if isinstance(found, dict) else None
        return found is not None


class _Metadata(Metadata, frozen=True, gc=False):
    managed_fields: tuple[_ManagedFields, ...] = ()


class _Node(Node, frozen=True, gc=False):
    """With who wrote which of its fields."""

    metadata: _Metadata

    @property
    def cordoned_by(self) -> str:
        """The service that set `spec.unschedulable`, from HBox's mark; empty if another client has set the field since.

        Both fields are written at once, so the same client manages both. After `kubectl uncordon` and `kubectl cordon` kubectl manages `spec.unschedulable`,
        while the mark of the earlier cordon may remain if no service was running to remove it.
        """
        by = self.metadata.annotations.get(CORDONED_BY, "")
        closing = [one for one in self.metadata.managed_fields if one.has("spec", "unschedulable")]
        if not self.spec.unschedulable or not closing:
            return by
        return by if any(one.has("metadata", "annotations", CORDONED_BY) for one in closing) else ""


@dataclass(frozen=True, slots=True)
class CordonResult:
    outcome: CordonOutcome
    message: str = ""


async def cordon(client: KubeClient, *, node: str, reason: str, owner: str) -> CordonResult:
    """Sets `spec.unschedulable` and writes who did it and why; renews the reason where `owner` did it before.

    Raises nothing but Bug.
    """
    return await _change(client, node, owner, reason=reason)


async def uncordon(client: KubeClient, *, node: str, owner: str) -> CordonResult:
    """Takes back what `owner` cordoned. Raises nothing but Bug."""
    return await _change(client, node, owner, reason=None)


async def _change(client: KubeClient, name: str, owner: str, *, reason: str | None) -> CordonResult:
    path = NODES.path(name=name)
    message = ""
    try:
        for _ in range(_TRIES):
            node = (await client.expected("GET", path)).decode(_Node)
            patch = _patch(node, owner, reason)
            if isinstance(patch, CordonResult):
                return patch
            try:
                (await client.expected("PATCH", path, body=patch, content_type=MERGE_PATCH)).decode(KubeObject)
            except Conflict as e:
                message = str(e)
                continue
            return CordonResult(CordonOutcome.DONE if "spec" in patch else CordonOutcome.NOT_OURS)
    except NotFound as e:
        return CordonResult(CordonOutcome.GONE, str(e))
    except Unavailable as e:
        return CordonResult(CordonOutcome.UNKNOWN, str(e))
    except InvalidRequest as e:
        return CordonResult(CordonOutcome.REJECTED, str(e))
    return CordonResult(CordonOutcome.UNKNOWN, message)


def _patch(node: _Node, owner: str, reason: str | None) -> dict[str, object] | CordonResult:
    """The merge patch, bound to the node as it was read, or what there is to say without one."""
    closed = node.spec.unschedulable
    by = node.metadata.annotations.get(CORDONED_BY, "")
    without_marks = {"resourceVersion": node.metadata.resource_version, "annotations": {CORDONED_BY: None, CORDON_REASON: None}}
    if closed and by == owner != node.cordoned_by:
        return {"metadata": without_marks}
    if closed and by != owner:
        return CordonResult(CordonOutcome.NOT_OURS, f"cordoned by {by or 'hand'}")
    if reason is None:
        if not closed and by != owner:
            return CordonResult(CordonOutcome.DONE)
        return {"metadata": without_marks, "spec": {"unschedulable": None}}
    if closed and node.metadata.annotations.get(CORDON_REASON) == reason:
        return CordonResult(CordonOutcome.DONE)
    return {
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "annotations": {CORDONED_BY: owner, CORDON_REASON: reason},
        },
        "spec": {"unschedulable": True},
    }
