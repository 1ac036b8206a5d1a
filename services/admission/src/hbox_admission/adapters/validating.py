"""`/validate`: requests about Queues and PodGroups."""

from collections.abc import Mapping
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model import Queue, QueueName

from ..core import Judgement, Request, Verdict, allowed, judge_group, judge_queue, validation_response
from .objects import group_request, queue_request

GROUP = "scheduling.volcano.sh"
#: Webhooks are asked about no other operations.
_OPERATIONS = ("CREATE", "UPDATE")


def validated(request: Request, queues: Mapping[QueueName, Queue] | None) -> Verdict:
    """`queues`: those that exist; None = not known. Raises InvalidRequest if the request lacks the object, or has one of another kind."""
    kind = (request.kind.group, request.kind.kind)
    if kind not in ((GROUP, "Queue"), (GROUP, "PodGroup")) or request.sub_resource or request.operation not in _OPERATIONS:
        return allowed(request)
    if request.object is None:
        raise InvalidRequest("request.object is not there", hint="it has to contain the object to create or change")
    new, old = request.object, request.old_object if request.operation == "UPDATE" else None
    if _deleting(new) or (old is not None and _same(old, new)):
        return validation_response(request, Judgement())
    judged = _judged(request, new, queues)
    return validation_response(request, judged if old is None else judged.since(_judged(request, old, queues)))


def _judged(request: Request, content: Mapping[str, Any], queues: Mapping[QueueName, Queue] | None) -> Judgement:
    if request.kind.kind == "Queue":
        return judge_queue(queue_request(content), queues)
    return judge_group(group_request(content), queues)


def _deleting(content: Mapping[str, Any]) -> bool:
    return bool((content.get("metadata") or {}).get("deletionTimestamp"))


def _same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether nothing that is judged changes: controllers write finalizers and status of objects that have faults."""
    return bool(old.get("spec") == new.get("spec") and _annotations(old) == _annotations(new))


def _annotations(content: Mapping[str, Any]) -> Any:
    return (content.get("metadata") or {}).get("annotations") or {}
