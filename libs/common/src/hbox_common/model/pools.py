"""Pools of nodes (Volcano and Kubernetes have none): a node's label assigns it to one pool; a queue may use some of them.

label hbox.io/pool   queues that may use the node
------------------   ----------------------------------------------------------------------------
none, or `pooled`    every queue that names no pools, and those that name `pooled`
`public`             every queue
any other            the queues that name it own it: a project's own nodes, an isolated lab. Other queues only
                     while an owner lends it; their work is evicted as soon as an owner needs the nodes

Amounts are by pool (ADR 37): the amounts of a pod on a node of another pool than `pooled` count under separate names, `<resource>@<pool>`, so that usage in
one pool does not affect limits of another. No Kubernetes resource name contains an `@`.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

#: The label of a node, and (in the plural) the annotation of a queue.
POOL = "hbox.io/pool"
POOLS = "hbox.io/pools"

PUBLIC, POOLED = "public", "pooled"

#: What a queue may use besides `public`. Empty: nothing besides.
Pools: TypeAlias = tuple[str, ...]

#: Between a resource and the pool in which it counts.
AT = "@"


def pool_of(labels: Mapping[str, str]) -> str:
    """The pool of a node with these labels."""
    return labels.get(POOL) or POOLED


def may_use(pools: Pools, pool: str) -> bool:
    """Whether a queue with these pools may use nodes of that one."""
    return pool == PUBLIC or pool in pools


def is_exclusive(pool: str) -> bool:
    """Whether the pool has owners: only queues that name it may use it."""
    return pool not in (PUBLIC, POOLED, "")


def in_order(own: Pools, reach: Pools) -> tuple[str, ...]:
    """The pools that a queue may use, in order of preference: its own, `pooled`, `public`, then lent ones. `own`: the pools that it or its ancestors name;
    `reach`: these and the pools lent to it."""
    return (
        *(pool for pool in own if is_exclusive(pool)),
        *((POOLED,) if POOLED in reach else ()),
        PUBLIC,
        *(pool for pool in reach if is_exclusive(pool) and pool not in own),
    )


def counted_as(pool: str) -> str:
    """The pool as claims have it: empty for `pooled`, whose amounts have the names of the resources."""
    return "" if pool == POOLED else pool


@lru_cache(maxsize=4096)
def in_pool(resource: str, pool: str) -> str:
    """The name under which queues count a resource on nodes of this pool."""
    return f"{resource}{AT}{pool}" if counted_as(pool) else resource


def amounts_in(pool: str, amounts: Mapping[str, int]) -> dict[str, int]:
    """Amounts of resources as they count in this pool."""
    return {in_pool(name, pool): units for name, units in amounts.items()}


@lru_cache(maxsize=4096)
def by_pool(name: str) -> tuple[str, str]:
    """The resource and the pool (empty: `pooled`) in a name of a queue's amounts."""
    resource, _, pool = name.partition(AT)
    return resource, pool


def pools_named(names: Iterable[str]) -> list[str]:
    """The pools among names of amounts, each once, `pooled` as an empty name."""
    return list(dict.fromkeys(by_pool(name)[1] for name in names))


def of_pool(pool: str, amounts: Mapping[str, int]) -> dict[str, int]:
    """What counts in this pool, by resource: the reverse of `amounts_in`."""
    wanted = counted_as(pool)
    return {resource: units for name, units in amounts.items() for resource, there in (by_pool(name),) if there == wanted}


def in_all_pools(amounts: Mapping[str, int]) -> dict[str, int]:
    """By resource, all pools together."""
    sums: dict[str, int] = {}
    for name, units in amounts.items():
        resource, _ = by_pool(name)
        sums[resource] = sums.get(resource, 0) + units
    return sums
