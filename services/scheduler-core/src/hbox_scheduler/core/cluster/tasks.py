"""Interning of tasks: one object for equal requests while it is referenced."""

from typing import TypeAlias
from weakref import WeakValueDictionary

from hbox_common.model import PodGroupTask, Pools
from hbox_common.model.devices import asks_rdma
from hbox_common.model.nodezones import ask_of

from .columns import Columns
from .hostports import ports_of
from .task import Task

_Key: TypeAlias = tuple[object, ...]


class Tasks:
    """Interns task signatures. References are weak, since the size of a signature is bounded only by the pod's, and users control their number by creating and
    deleting pods."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._known: WeakValueDictionary[_Key, Task] = WeakValueDictionary()

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
        gang: bool = False,
    ) -> Task:
        """fabric: whether its gang wishes to be near each other in the fabric; gang: whether it is of a gang of two or more."""
        cards = spec.cards if spec.cards is not None and spec.cards.count > 0 else None
        space = namespace if cards is not None else ""
        spans = gang and cards is not None
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
            spans,
            tuple([tuple(one.items()) for one in spec.containers]),
            tuple([tuple(one.items()) for one in spec.init_containers]),
        )
        task = self._known.get(key)
        if task is not None:
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
            spans=spans,
        )
        self._known[key] = task
        return task
