"""What is written into a pod, what is wrong with a Queue or PodGroup, and how an API server is answered. Pure."""

from .mutation import Mutation, Outcome, Rules, mutate
from .namespaces import NO_DEFAULTS, NamespaceDefaults, defaults_of
from .review import (
    Request,
    ValidationOutcome,
    Verdict,
    allowed,
    namespace_of_new_pod,
    parse_review,
    review,
    validation_response,
)
from .validation import GroupRequest, Judgement, QueueRequest, judge_group, judge_queue

__all__ = [
    "NO_DEFAULTS",
    "GroupRequest",
    "Judgement",
    "Mutation",
    "NamespaceDefaults",
    "Outcome",
    "QueueRequest",
    "Request",
    "Rules",
    "ValidationOutcome",
    "Verdict",
    "allowed",
    "defaults_of",
    "judge_group",
    "judge_queue",
    "mutate",
    "namespace_of_new_pod",
    "parse_review",
    "review",
    "validation_response",
]
