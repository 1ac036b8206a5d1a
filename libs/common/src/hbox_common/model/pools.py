"""Pools of nodes (Volcano and Kubernetes know none): a node is of one, by its label; a queue may use some.

label hbox.io/pool   who may use the node
------------------   ----------------------------------------------------------------------------
none, or `pooled`    every queue but those that name pools, and those that name `pooled`
`public`             every queue
any other            the queues that name it, and nobody else: a project's own nodes, an isolated lab
"""

from collections.abc import Mapping
from typing import TypeAlias

#: The label of a node, and (in the plural) the annotation of a queue.
POOL = "hbox.io/pool"
POOLS = "hbox.io/pools"

PUBLIC, POOLED = "public", "pooled"

#: What a queue may use besides `public`. Empty: nothing besides.
Pools: TypeAlias = tuple[str, ...]


def pool_of(labels: Mapping[str, str]) -> str:
    """The pool of a node with these labels."""
    return labels.get(POOL) or POOLED


def may_use(pools: Pools, pool: str) -> bool:
    """Whether a queue with these pools may use nodes of that one."""
    return pool == PUBLIC or pool in pools
