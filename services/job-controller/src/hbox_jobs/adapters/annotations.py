"""Annotations of pods and PodGroups, limited to their bounds.

Kubernetes limits only the sum of an object's annotations (256 KiB), and any user may write them. Values that name objects have to be valid names, values for
policies have to be short; other annotations are not published. A value beyond its bound is dropped, and becomes a problem of the pod or PodGroup.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hbox_common.kube.podgroups import name_of, policy_annotations
from hbox_common.model import ClaimId, QueueName
from hbox_common.model.annotations import CLAIM, GROUP_NAME, QUEUE_NAME, TRACEPARENT
from hbox_common.model.bounds import (
    ID_BYTES,
    NAME_BYTES,
    is_plain,
    not_plain,
)
from hbox_common.model.traceids import parse_traceparent

#: The same as GROUP_NAME under Volcano's own group: newer releases write both.
VOLCANO_GROUP_NAME = "scheduling.volcano.sh/group-name"
#: The role of a pod in its Volcano Job.
TASK_SPEC = "volcano.sh/task-spec"


@dataclass(frozen=True, slots=True)
class Written:
    """What a pod's annotations say, without what cannot be."""

    group: str
    role: str
    queue: QueueName
    claim: ClaimId
    annotations: Mapping[str, str]
    problem: str = ""


def written_on(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Written:
    """Of a pod. One whose PodGroup has no possible name is a job of its own, that waits for its user."""
    key = GROUP_NAME if annotations.get(GROUP_NAME) else VOLCANO_GROUP_NAME
    group, problem = name_of(f"annotation {key}", annotations.get(key, ""))
    role = annotations.get(TASK_SPEC, "")
    if not is_plain(role, NAME_BYTES):
        role, problem = "", problem or not_plain(f"annotation {TASK_SPEC}", role, NAME_BYTES)
    named, wrong = name_of(f"annotation {QUEUE_NAME}", annotations.get(QUEUE_NAME) or labels.get(QUEUE_NAME, ""))
    for_policies, unfit = policy_annotations(annotations)
    claim = annotations.get(CLAIM, "")
    return Written(
        group=group,
        role=role,
        queue=QueueName(named),
        claim=ClaimId(claim if is_plain(claim, ID_BYTES) else ""),
        annotations=for_policies,
        problem=problem or wrong or unfit,
    )


def submitter_of(annotations: Mapping[str, str]) -> str:
    """The trace context that the submitter wrote; empty if it is malformed."""
    text = annotations.get(TRACEPARENT, "")
    return text if text and parse_traceparent(text) is not None else ""
