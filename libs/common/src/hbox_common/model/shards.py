"""Shards: several schedulers in parallel, each with its own jobs, all proposing plans to one ledger (as KAI's SchedulingShard, Gödel's shards).

`HBOX_SHARDS`             shard of a job                                                 nodes of a shard
------------------------  -------------------------------------------------------------  -------------------------
empty                     one shard, `0`, has all                                        all
`3`                       by a digest of the queue: `0`, `1`, `2`                        all
`main=*;lab=lab-a,lab-b`  by the pool (`pools`): the one that its pods name, else the    those of its pools
                          first that its queue may use; `*`: all pools not listed

A job belongs to one shard at any time, and every service with the same setting computes the same one. By pool, two shards never compete for a node. By digest
they may: the ledger accepts the first plan and rejects the other. All jobs of a queue whose pods name no pools belong to one shard, so that their order holds.

A scheduler's id contains its shard and the term of its lease (`@lab.7.<instance>-<nonce>`); it is part of every proposal and of the ledger's records. An id
without them belongs to shard `0` and has no term.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self
from zlib import crc32

from hbox_common.errors import InvalidRequest

from .ids import SchedulerId
from .job import Job
from .pools import POOL, PUBLIC, Pools

#: The shard of all jobs where there is one.
ONE_SHARD = "0"

#: Pools that no shard names.
REST = "*"

MOST_SHARDS = 64

#: Suffix of a standby process's name, behind the name of the leader that it replaces.
STANDBY = "standby"

#: It is part of names of leases and Deployments, and a token of subjects.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_COUNT = re.compile(r"[0-9]{1,4}")
_OF_ID = re.compile(rf"@({_NAME.pattern})\.([0-9]{{1,15}})\.")
#: A label's value.
_POOL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

HINT = "write a number, as 2, or pools by shard with one that has the rest, as main=*;lab=lab-a,lab-b"


@dataclass(frozen=True, slots=True)
class Shards:
    """Made by `parse`. `by_pool`: the shard of each pool that is named; empty where jobs go by their queues. `rest`: of all others."""

    names: tuple[str, ...] = (ONE_SHARD,)
    by_pool: Mapping[str, str] = field(default_factory=dict)
    rest: str = ONE_SHARD

    ONE: ClassVar["Shards"]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `HBOX_SHARDS`. Raises InvalidRequest."""
        text = text.strip()
        if not text:
            return cls()
        if _COUNT.fullmatch(text):
            count = int(text)
            if not 1 <= count <= MOST_SHARDS:
                raise InvalidRequest(f"{count} shards: 1 to {MOST_SHARDS} are possible", hint=HINT)
            return cls(tuple(map(str, range(count))))
        pools: dict[str, str] = {}
        names: dict[str, None] = {}
        for part in filter(None, map(str.strip, text.split(";"))):
            name, equals, listed = (each.strip() for each in part.partition("="))
            if not equals or not _NAME.fullmatch(name) or name.endswith(STANDBY):
                raise InvalidRequest(
                    f"{part!r} is no shard: its name has up to 32 lower-case letters, digits and '-', does not end in {STANDBY}, and has = before its pools",
                    hint=HINT,
                )
            if name in names:
                raise InvalidRequest(f"duplicate shard {name}", hint="join its pools with commas")
            names[name] = None
            for pool in map(str.strip, listed.split(",")):
                if pool != REST and not _POOL.fullmatch(pool):
                    raise InvalidRequest(f"shard {name}: {pool!r} is no pool", hint=HINT)
                if pool in pools:
                    raise InvalidRequest(f"pool {pool} is of shards {pools[pool]} and {name}", hint="a pool is of one shard")
                pools[pool] = name
        if REST not in pools:
            raise InvalidRequest("no shard has the pools that none names", hint=HINT)
        if len(names) > MOST_SHARDS:
            raise InvalidRequest(f"{len(names)} shards: 1 to {MOST_SHARDS} are possible", hint=HINT)
        rest = pools.pop(REST)
        return cls(tuple(names), pools, rest)

    @property
    def several(self) -> bool:
        """Whether there is more than the one that has all."""
        return self != Shards.ONE

    @property
    def pooled(self) -> bool:
        """Whether jobs go by pools, and each shard knows nodes of its own pools alone."""
        return bool(self.by_pool) or (len(self.names) == 1 and self.names[0] != ONE_SHARD)

    def of_pool(self, pool: str) -> str:
        """The shard of nodes of this pool, where `pooled`."""
        return self.by_pool.get(pool, self.rest)

    def has_node(self, shard: str, pool: str) -> bool:
        """Whether schedulers of the shard place pods on nodes of this pool."""
        return not self.pooled or self.of_pool(pool) == shard

    def of(self, job: Job, pools: Pools = (PUBLIC,)) -> str:
        """The shard of a job. `pools`: that its queue may use, in their order (`pools.in_order`)."""
        if self.pooled:
            return self.of_pool(named_pool(job) or next(iter(pools), PUBLIC))
        if len(self.names) == 1:
            return self.names[0]
        return self.names[crc32(job.queue.encode("utf-8", "surrogatepass")) % len(self.names)]

    def describe(self, shard: str) -> str:
        """What the shard has, for people."""
        if not self.pooled:
            return "all nodes" if len(self.names) == 1 else f"queues by digest, {len(self.names)} shards, all nodes"
        named = sorted(pool for pool, whose in self.by_pool.items() if whose == shard)
        return f"pools {', '.join([*named, *(['all others'] if shard == self.rest else [])])}"


Shards.ONE = Shards()


def named_pool(job: Job) -> str:
    """The pool that all pods of the job that wait name by their nodeSelector; empty where they do not agree."""
    named = {task.node_selector.get(POOL, "") for task in job.tasks}
    return named.pop() if len(named) == 1 else ""


def scheduler_id(instance: str, shard: str = "", term: int = 0) -> SchedulerId:
    """`instance`: what no other process is called, nor was. `shard`: empty where there is one. `term`: of its lease; 0 = it holds none."""
    return SchedulerId(f"@{shard}.{term}.{instance}" if shard else instance)


def shard_of(scheduler: SchedulerId) -> str:
    """The shard for which a scheduler plans."""
    return _named(scheduler)[0]


def term_of(scheduler: SchedulerId) -> int:
    """Which leader of its shard it is: the higher, the later; 0 = it was not elected."""
    return _named(scheduler)[1]


def _named(scheduler: SchedulerId) -> tuple[str, int]:
    found = _OF_ID.match(scheduler)
    return (found[1], int(found[3])) if found is not None else (ONE_SHARD, 0)


def lease_of(service: str, shard: str) -> str:
    """Name of the lease for leading a shard; `shard`: empty if there is only one."""
    return f"{service}-{shard}" if shard else service
