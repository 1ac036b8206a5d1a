"""Run times of pods as learned by a scheduler, published for other schedulers and its successors."""

from dataclasses import dataclass

from .ids import QueueName


@dataclass(frozen=True, slots=True)
class RanFor:
    """The last run times (seconds) of the pods of one namespace in one queue; if `namespace` is empty, of all namespaces of a queue; if both are, of all pods.
    `overruns`: the ratios of run time to walltime, at least 1, of pods with a walltime. Both in the order in which the pods ended."""

    queue: QueueName
    namespace: str
    ran: tuple[float, ...]
    overruns: tuple[float, ...] = ()
