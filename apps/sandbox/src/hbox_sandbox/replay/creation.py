"""Objects of a trace, made through the API of a cluster that may be busy, or away for a moment."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from hbox_common.clock import wall_s
from hbox_common.errors import Conflict, HBoxError, Unavailable
from hbox_common.kube import MERGE_PATCH, NODES, KubeClient, Resource
from hbox_common.pacing import backoff_s
from hbox_sandbox.trace import TraceNode, node_manifest

#: A create is tried again this often where the API server does not answer, or asks to come back later.
CREATE_TRIES = 8

T = TypeVar("T")


class Creation:
    """Creates objects; retries each create without an answer."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._rng = random.Random(0)

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """The object as it is then; one of the name that is there already is taken for ours (a retry's, or a former run's node)."""
        meta = body["metadata"]
        namespace = meta.get("namespace")
        made: dict[str, Any]
        for attempt in range(CREATE_TRIES):
            try:
                made = await self._client.json("POST", resource.path(namespace=namespace), body=body)
            except Conflict:
                made = await self._client.json("GET", resource.path(namespace=namespace, name=meta["name"]))
            except Unavailable:
                if attempt == CREATE_TRIES - 1:
                    raise
                await asyncio.sleep(self._rng.uniform(0.5, 1.0) * backoff_s(attempt, base_s=0.1, cap_s=5.0))
                continue
            return made
        raise Unavailable(f"{body['kind']} {meta['name']} was not created in {CREATE_TRIES} tries")

    async def node(self, node: TraceNode) -> None:
        """A node that is ready and takes pods."""
        now = datetime.fromtimestamp(wall_s(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        made = await self.create(NODES, node_manifest(node, now=now))
        if made.get("spec", {}).get("taints"):
            # Admission taints a new node until a controller has looked at it; where none runs it would stay so.
            await self._client.json(
                "PATCH", NODES.path(name=node.name), body={"spec": {"taints": None}}, content_type=MERGE_PATCH
            )


async def side_by_side(work: Callable[[Iterator[T]], Awaitable[None]], items: Iterator[T], *, workers: int) -> None:
    """So many of `work` share the items. Raises what the first of them met."""

    async def one() -> None:
        await work(items)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(workers):
                tasks.create_task(one())
    except BaseExceptionGroup as group:
        # All workers meet the same refusal; one of them is worth telling.
        known = group.subgroup(HBoxError)
        if known is None:
            raise
        error: BaseException = known
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
