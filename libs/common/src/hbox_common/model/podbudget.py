"""PodDisruptionBudgets: how many of the pods that they select may be evicted now."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodBudget:
    """As its controller has counted it last; nobody may go while that is of an older version than its rules."""

    namespace: str
    name: str
    allowed: int  #: disruptions
    healthy: int = 0
    desired: int = 0  #: healthy pods

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
