"""What is written into a pod, what is wrong with a Queue or PodGroup, and how an API server is answered. Pure."""

from .mutation import Mutation, Outcome, Rules, mutate
from .namespaces import NO_DEFAULTS, NamespaceDefaults, defaults_of
from .review import Request, Ruling, Verdict, completes, let_by, opened, review, ruled
from .validation import GroupAsked, Judgement, QueueAsked, judge_group, judge_queue

__all__ = [
    "NO_DEFAULTS",
    "GroupAsked",
    "Judgement",
    "Mutation",
    "NamespaceDefaults",
    "Outcome",
    "QueueAsked",
    "Request",
    "Rules",
    "Ruling",
    "Verdict",
    "completes",
    "defaults_of",
    "judge_group",
    "judge_queue",
    "let_by",
    "mutate",
    "opened",
    "review",
    "ruled",
]
