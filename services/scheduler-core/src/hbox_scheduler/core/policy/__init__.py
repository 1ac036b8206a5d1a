"""Which plugins judge and score, in which order and with which weights."""

from .policy import Policy, PolicyName, policy_of

__all__ = ["Policy", "PolicyName", "policy_of"]
