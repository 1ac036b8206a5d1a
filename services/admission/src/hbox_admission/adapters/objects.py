"""Queues and PodGroups of requests as the core's values."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from hbox_common.errors import InvalidRequest
from hbox_common.kube import PodGroup, Queue
from hbox_common.kube.definitions import POD_GROUP, QUEUE
from hbox_common.kube.podgroups import rules_of
from hbox_common.kube.queues import queue_of
from hbox_common.kube.unknownfields import SpecFields
from hbox_common.model import QueueName
from hbox_common.model.bounds import is_name, sanitized

from ..core.validation import GroupRequest, QueueRequest

T = TypeVar("T", Queue, PodGroup)

_QUEUE_FIELDS, _GROUP_FIELDS = SpecFields(QUEUE), SpecFields(POD_GROUP)
#: Maximum characters of a quantity in a message.
_QUANTITY = 32


def queue_request(content: Mapping[str, Any]) -> QueueRequest:
    """Raises InvalidRequest for what is no Queue."""
    found = _read(content, Queue, _QUEUE_FIELDS)
    name = QueueName(found.metadata.name)
    parent = found.spec.parent if is_name(found.spec.parent) else ""
    try:
        queue = queue_of(found)
    except InvalidRequest as e:
        return QueueRequest(name, parent, fault=f"spec: {e}", unknown_fields=found.unknown_fields)
    spec = found.spec
    amounts = {"guarantee": spec.guarantee.resource, "deserved": spec.deserved, "capability": spec.capability}
    written = {share: {key: sanitized(str(one), _QUANTITY) for key, one in by.items()} for share, by in amounts.items()}
    return QueueRequest(name, parent, queue, written=written, unknown_fields=queue.unknown_fields)


def group_request(content: Mapping[str, Any]) -> GroupRequest:
    """Raises InvalidRequest for what is no PodGroup."""
    found = _read(content, PodGroup, _GROUP_FIELDS)
    rules = rules_of(found)
    return GroupRequest(
        namespace=found.metadata.namespace,
        queue=rules.queue,
        priority_class=rules.priority_class,
        fault=rules.problem,
        min_member=rules.min_member,
        min_task_member=rules.min_task_member,
        unknown_fields=found.unknown_fields,
        owned=any(one.controller for one in found.metadata.owner_references),
    )


def _read(content: Mapping[str, Any], type_: type[T], fields: SpecFields) -> T:
    # A new object has no uid before it is stored, and no name if it has generateName.
    metadata = {"name": "", "uid": "", **(content.get("metadata") or {})}
    try:
        found = msgspec.convert({**content, "metadata": metadata}, type_)
    except msgspec.ValidationError as e:
        raise InvalidRequest(f"this is no {type_.__name__}: {sanitized(str(e), 200)}") from e
    return fields.note(found, msgspec.json.encode(content))
