"""What is written into a pod, and how an API server is answered. Pure."""

from .mutation import Mutation, Outcome, Rules, mutate
from .review import Verdict, review

__all__ = ["Mutation", "Outcome", "Rules", "Verdict", "mutate", "review"]
