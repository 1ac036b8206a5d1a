"""Pools of nodes (Volcano and Kubernetes know none): a node is of one, by its label; a queue may use some.

label hbox.io/pool   who may use the node
------------------   ----------------------------------------------------------------------------
none, or `pooled`    every queue but those that name pools, and those that name `pooled`
`public`             every queue
any other            the queues that name it own it: a project's own nodes, an isolated lab. Others only while
                     an owner lends it, and they leave as soon as an owner asks

Amounts are by pool (ADR 37): what a pod holds on a node of another pool than `pooled` counts under names of its own, `<resource>@<pool>`, so that no limit
or line of one pool is touched by what is used in another. No resource of Kubernetes has an `@` in its name.
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
    """The pools that a queue may use, in the order in which its work goes there: its own, `pooled`, `public`, then what others lend. `own`: that it, or the
    queues above it, name; `reach`: these, and those that are lent to it."""
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
    """The resource and the pool (empty: `pooled`) that a name in a queue's amounts stands for."""
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
