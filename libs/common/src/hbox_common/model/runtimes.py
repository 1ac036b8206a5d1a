"""How long pods ran: what a scheduler learned of it, as others and its successors are told."""

from dataclasses import dataclass

from .ids import QueueName


@dataclass(frozen=True, slots=True)
class RanFor:
    """The last run times (seconds) of the pods of one namespace in one queue; of all namespaces of a queue where `namespace` is empty, of all pods where both
    are. `overruns`: how many times their walltimes those ran that had one, 1 or more. Both in the order in which the pods ended."""

    queue: QueueName
    namespace: str
    ran: tuple[float, ...]
    overruns: tuple[float, ...] = ()
