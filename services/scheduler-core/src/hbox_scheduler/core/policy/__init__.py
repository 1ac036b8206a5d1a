"""Which plugins judge and score, in which order and with which weights."""

from .default import PolicyName
from .policy import Policy, policy_from, policy_of

__all__ = ["Policy", "PolicyName", "policy_from", "policy_of"]
