"""What the platform needs in a cluster: Volcano's Queue and PodGroup, with the fields that HBox reads, and the queue `default`.

Where Volcano's own definitions are installed they stay as they are: theirs say more than ours.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from hbox_common.errors import NotFound
from hbox_common.kube import CRDS, QUEUES, KubeClient, apply, wait_established
from hbox_common.model import DEFAULT_QUEUE

FIELD_MANAGER = "hbox"
_MANAGED_BY = "app.kubernetes.io/managed-by"

_STRING: Mapping[str, Any] = {"type": "string"}
_INTEGER: Mapping[str, Any] = {"type": "integer", "format": "int32"}
_AMOUNTS: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
}


def _open(**properties: Any) -> dict[str, Any]:
    """An object with these fields, others kept: manifests written for Volcano lose nothing."""
    return {"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": True}


def _definition(kind: str, plural: str, short: list[str], *, namespaced: bool, spec: Any, status: Any) -> dict[str, Any]:
    group = QUEUES.group
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": {_MANAGED_BY: FIELD_MANAGER}},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower(), "shortNames": short},
            "versions": [
                {
                    "name": QUEUES.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
                }
            ],
        },
    }


QUEUE = _definition(
    "Queue",
    "queues",
    ["q", "queue-v1beta1"],
    namespaced=False,
    spec=_open(
        weight={**_INTEGER, "minimum": 1, "maximum": 65535, "default": 1},
        capability=_AMOUNTS,
        deserved=_AMOUNTS,
        guarantee=_open(resource=_AMOUNTS),
        reclaimable={"type": "boolean"},
        priority=_INTEGER,
        parent=_STRING,
        type=_STRING,
    ),
    status=_open(state=_STRING, allocated=_AMOUNTS),
)

POD_GROUP = _definition(
    "PodGroup",
    "podgroups",
    ["pg", "podgroup-v1beta1"],
    namespaced=True,
    spec=_open(
        minMember={**_INTEGER, "default": 1},
        minTaskMember={"type": "object", "additionalProperties": _INTEGER},
        queue={**_STRING, "default": DEFAULT_QUEUE},
        priorityClassName=_STRING,
        minResources=_AMOUNTS,
    ),
    status=_open(phase=_STRING, running=_INTEGER, succeeded=_INTEGER, failed=_INTEGER),
)


async def bring(client: KubeClient, say: Callable[[str], None]) -> None:
    """Applies what is missing, by server-side apply, and says what. Raises Unavailable or InvalidRequest (rights are missing)."""
    for manifest in (QUEUE, POD_GROUP):
        name = manifest["metadata"]["name"]
        if await _ours_or_absent(client, CRDS.path(name=name)):
            await apply(client, manifest, field_manager=FIELD_MANAGER)
            say(f"applied CRD {name}")
        else:
            say(f"found CRD {name}, installed by somebody else: left as it is")
    for manifest in (QUEUE, POD_GROUP):
        await wait_established(client, manifest["metadata"]["name"])
    path = QUEUES.path(name=DEFAULT_QUEUE)
    try:
        await client.json("GET", path)
    except NotFound:
        queue = {
            "apiVersion": f"{QUEUES.group}/{QUEUES.version}",
            "kind": "Queue",
            "metadata": {"name": DEFAULT_QUEUE},
            "spec": {"weight": 1},
        }
        await _apply_fresh(client, queue)
        say(f"applied queue {DEFAULT_QUEUE}")


async def _ours_or_absent(client: KubeClient, path: str) -> bool:
    try:
        found = await client.json("GET", path)
    except NotFound:
        return True
    return bool((found["metadata"].get("labels") or {}).get(_MANAGED_BY) == FIELD_MANAGER)


async def _apply_fresh(client: KubeClient, manifest: Mapping[str, Any]) -> None:
    """An API server's discovery shows a new kind a moment after the definition is established."""
    for _ in range(40):
        try:
            await apply(client, manifest, field_manager=FIELD_MANAGER)
        except NotFound:
            await asyncio.sleep(0.1)
        else:
            return
    await apply(client, manifest, field_manager=FIELD_MANAGER)
