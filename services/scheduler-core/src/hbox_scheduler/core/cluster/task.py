"""Equal requests, once: what the pods of a task ask for, without the pods.

All that placement depends on is in a `Task`; two tasks that ask for the same are the same object, so that masks, scores and reasons can be
kept by it.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from hbox_common.model import CardRequest, NodeTerm, PodGroupTask, Pools, PreferredTerm, Resources, Toleration
from hbox_common.model.devices import asks_rdma
from hbox_common.model.nodezones import ask_of
from hbox_common.model.numa import PodAsk

from .columns import Amount, Columns
from .hostports import Ports, ports_of

_Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Compared by identity: `Tasks` hands out one object for equal requests."""

    requests: Resources
    amount: Amount
    cards: CardRequest | None
    node_selector: tuple[tuple[str, str], ...]
    affinity: tuple[NodeTerm, ...] | None
    preferred: tuple[PreferredTerm, ...]
    tolerations: tuple[Toleration, ...]
    ports: Ports = ()
    volumes: tuple[tuple[NodeTerm, ...], ...] = ()
    pools: Pools | None = None  #: that its queue may use; None: any
    pool: str | None = None  #: the one that is tried, as counted (`model.counted_as`); None: any of them
    namespace: str = ""  #: whose quotas limit its cards; empty where none do
    offline: bool = False  #: whether it is offline work (`hbox_common.model.offline`)
    aligned: PodAsk | None = None  #: what kubelets align of it; None: nothing
    rdma: bool = False  #: whether its cards are to have RDMA adapters beside them
    passes: int = 0  #: bits of the reservations that it may pass: nodes set aside for them are open to it


@lru_cache(maxsize=4096)
def passing(task: Task, passes: int) -> Task:
    """The task, allowed on nodes that are set aside for these reservations. One object for equal ones."""
    return replace(task, passes=passes)


@lru_cache(maxsize=4096)
def in_one_pool(task: Task, pool: str) -> Task:
    """The task, on nodes of this pool alone. pool: as counted (`model.counted_as`)."""
    return replace(task, pool=pool)


class Tasks:
    """Interns task signatures; the least recently seen ones are forgotten beyond `keep`."""

    def __init__(self, columns: Columns, keep: int = 50_000) -> None:
        self._columns = columns
        self._known: OrderedDict[_Key, Task] = OrderedDict()
        self._keep = keep

    def anew(self) -> None:
        """Columns of resources are others than before: what was resolved by them is not handed out any more."""
        self._known.clear()

    def of(
        self,
        spec: PodGroupTask,
        pools: Pools | None = None,
        namespace: str = "",
        *,
        offline: bool = False,
        fabric: bool = False,
    ) -> Task:
        """fabric: whether its gang wishes to be near each other in the fabric."""
        cards = spec.cards if spec.cards is not None and spec.cards.count > 0 else None
        space = namespace if cards is not None else ""
        key: _Key = (
            tuple(sorted(spec.requests.items())),
            cards,
            tuple(sorted(spec.node_selector.items())),
            spec.affinity,
            spec.preferred,
            spec.tolerations,
            spec.volumes,
            pools,
            space,
            offline,
            spec.guaranteed,
            fabric,
            tuple([tuple(one.items()) for one in spec.containers]),
            tuple([tuple(one.items()) for one in spec.init_containers]),
        )
        task = self._known.get(key)
        if task is not None:
            self._known.move_to_end(key)
            return task
        task = Task(
            requests=spec.requests,
            amount=self._columns.amount(spec.requests),
            cards=cards,
            node_selector=tuple(sorted(spec.node_selector.items())),
            affinity=spec.affinity,
            preferred=spec.preferred,
            tolerations=spec.tolerations,
            ports=ports_of(spec.requests),
            volumes=spec.volumes,
            pools=pools,
            namespace=space,
            offline=offline,
            aligned=ask_of(spec),
            rdma=cards is not None and (fabric or asks_rdma(spec.requests)),
        )
        self._known[key] = task
        if len(self._known) > self._keep:
            self._known.popitem(last=False)
        return task
