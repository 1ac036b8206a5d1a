"""Equal requests, once: what the pods of a task ask for, without the pods.

All that placement depends on is in a `Task`; two tasks that ask for the same are the same object, so that masks, scores and reasons can be
kept by it.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from hbox_common.model import CardRequest, NodeTerm, Pools, PreferredTerm, Resources, Toleration
from hbox_common.model.numa import PodAsk

from .amounts import Amount
from .hostports import Ports

P = ParamSpec("P")
T = TypeVar("T")

#: Results of one function that are kept for one task.
_MOST_OF_TASK = 256


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Task:
    """Compared by identity: `Tasks` returns one object for equal requests while it is referenced."""

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
    rdma: bool = False  #: whether its cards should have RDMA adapters close to them
    spans: bool = False  #: whether it requests cards and is of a gang that may run on several nodes
    passes: int = 0  #: bits of the reservations that it may pass: nodes set aside for them are open to it


def kept_with_task(find: Callable[Concatenate[Task, P], T]) -> Callable[Concatenate[Task, P], T]:
    """Keep the results of a function of a task, and of further hashable positional arguments, while the task is referenced. `functools.lru_cache` would keep
    the task itself: its requests contain names that users invent."""
    known: WeakKeyDictionary[Task, dict[Hashable, T]] = WeakKeyDictionary()

    def kept(task: Task, /, *args: P.args, **kwargs: P.kwargs) -> T:
        assert not kwargs, "results are kept by positional arguments"
        of_task = known.get(task)
        if of_task is None:
            of_task = known[task] = {}
        if args not in of_task:
            if len(of_task) >= _MOST_OF_TASK:
                of_task.clear()
            of_task[args] = find(task, *args, **kwargs)
        return of_task[args]

    kept.__doc__ = find.__doc__
    return kept


@kept_with_task
def passing(task: Task, passes: int) -> Task:
    """The task, allowed on nodes that are set aside for these reservations. One object for equal ones."""
    return replace(task, passes=passes)


@kept_with_task
def in_one_pool(task: Task, pool: str) -> Task:
    """The task, on nodes of this pool alone. pool: as counted (`model.counted_as`)."""
    return replace(task, pool=pool)
