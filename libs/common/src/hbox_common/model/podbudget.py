"""PodDisruptionBudgets: how many of the pods that they select may be evicted now."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodBudget:
    """As last counted by its controller; while the count is of an older generation than the rules, no pod may be evicted."""

    namespace: str
    name: str
    allowed: int  #: disruptions
    healthy: int = 0
    desired: int = 0  #: healthy pods

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
