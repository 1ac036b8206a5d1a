"""Writes the domains of measured fabrics as HyperNode objects, for other schedulers and for users.

HBox's objects carry a label. Others are never changed: if a HyperNode of another owner has the name of a domain, it stays, and the domain is skipped with a
warning. HBox itself does not read its objects back.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound
from hbox_common.kube import HYPERNODES, KubeClient
from hbox_common.model import HyperNode

from .. import metrics
from ..core.fabric.domains import hypernode_object

log = logging.getLogger(__name__)

#: Label of HyperNodes that we write for others to read: no source of ours.
EXPORTED = "hbox.io/exported"
#: Seconds after which changes by other clients are reverted.
EVERY_S = 60.0
RETRY_S = 5.0
#: Lines in the log at a time.
WARNINGS = 20


class HyperNodeExport:
    """`fabrics`: those whose domains are written. Nothing is deleted before all of them were received."""

    def __init__(self, client: KubeClient, fabrics: frozenset[str]) -> None:
        self._client, self._fabrics = client, fabrics
        self._domains: dict[str, tuple[HyperNode, ...]] = {}  #: by fabric
        self._wake = asyncio.Event()
        self._warned: frozenset[str] = frozenset()
        self._complaint = ""

    def put(self, fabric: str, domains: Sequence[HyperNode]) -> None:
        """All domains of a fabric, from now on."""
        self._domains[fabric] = tuple(domains)
        self._wake.set()

    async def run(self) -> NoReturn:
        """Until cancelled. What is written stays when it ends: a restart is no reason to take domains away from others."""
        while True:
            if not self._domains:
                await self._wake.wait()
            self._wake.clear()
            try:
                await self.reconcile()
                self._complaint, wait = "", EVERY_S
            except HBoxError as e:
                if str(e) != self._complaint:
                    log.warning("HyperNodes cannot be written: %s", e)
                self._complaint, wait = str(e), RETRY_S
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def reconcile(self) -> None:
        """Write the objects that differ. Raises the API server's errors."""
        listed = await self._client.json("GET", HYPERNODES.path(), params={"limit": "10000"})
        there: dict[str, Mapping[str, Any]] = {one["metadata"]["name"]: one for one in listed["items"]}
        wanted = {one.name: hypernode_object(one, {EXPORTED: "true"}) for of in self._domains.values() for one in of}
        theirs = {name for name in wanted if name in there and not _is_ours(there[name])}
        complaints = {
            name: f"HyperNode {name} has another owner: topology-collector does not write the domain of that name"
            for name in theirs
        }
        refused: InvalidRequest | None = None
        for name, body in wanted.items():
            if name in theirs:
                continue
            try:
                if name not in there:
                    await self._create(body)
                elif there[name].get("spec") != body["spec"]:
                    await self._replace(there[name], body)
            except InvalidRequest as e:  # as by Volcano's admission, for which names of members have 63 characters at most
                refused = e
                complaints[name] = f"HyperNode {name} is refused, and left out: {e}"
        self._warn(complaints)
        if refused is not None and len(complaints) == len(wanted):
            raise refused  # not because of one of them
        for name, one in there.items() if self._fabrics <= self._domains.keys() else ():
            if name not in wanted and _is_ours(one):
                await self._delete(one)
        metrics.EXPORTED.set(len(wanted) - len(complaints))

    async def _create(self, body: Mapping[str, Any]) -> None:
        try:
            await self._client.json("POST", HYPERNODES.path(), body=body)
        except Conflict:
            self._wake.set()  # another client created it first: read its owner

    async def _replace(self, there: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        """On condition that it still is what was read: ours."""
        metadata = {**body["metadata"], "resourceVersion": there["metadata"]["resourceVersion"]}
        try:
            await self._client.json("PUT", HYPERNODES.path(name=metadata["name"]), body={**body, "metadata": metadata})
        except (Conflict, NotFound):
            self._wake.set()

    async def _delete(self, there: Mapping[str, Any]) -> None:
        metadata = there["metadata"]
        condition = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        try:
            await self._client.json("DELETE", HYPERNODES.path(name=metadata["name"]), body={"preconditions": condition})
        except NotFound:
            pass  # as it should be
        except Conflict:
            self._wake.set()

    def _warn(self, complaints: Mapping[str, str]) -> None:
        """Each once, while it is so."""
        for name in sorted(complaints.keys() - self._warned)[:WARNINGS]:
            log.warning(complaints[name])
        self._warned = frozenset(complaints)


def _is_ours(one: Mapping[str, Any]) -> bool:
    return EXPORTED in (one["metadata"].get("labels") or {})
