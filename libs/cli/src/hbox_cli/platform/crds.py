"""What the platform needs in a cluster: Volcano's Queue, PodGroup and HyperNode, with the fields that HBox reads, and the queue `default`.

Where Volcano's own definitions are installed they stay as they are: theirs say more than ours.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hbox_common.errors import NotFound
from hbox_common.kube import CRDS, HYPERNODES, PODGROUPS, QUEUES, KubeClient, Resource, apply, wait_established
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


def _column(name: str, kind: str, path: str) -> dict[str, str]:
    """What `kubectl get` shows."""
    return {"name": name, "type": kind, "jsonPath": path}


def _definition(
    kind: str, resource: Resource, short: list[str], *, spec: Any, status: Any, columns: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    group, plural = resource.group, resource.plural
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": {_MANAGED_BY: FIELD_MANAGER}},
        "spec": {
            "group": group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower(), "shortNames": short},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    **({"additionalPrinterColumns": list(columns)} if columns else {}),
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
                }
            ],
        },
    }


_TOPOLOGY: Mapping[str, Any] = _open(
    mode={**_STRING, "enum": ["hard", "soft"]}, highestTierAllowed=_INTEGER, highestTierName=_STRING
)

QUEUE = _definition(
    "Queue",
    QUEUES,
    ["q", "queue-v1beta1"],
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
    status=_open(
        state=_STRING,
        allocated=_AMOUNTS,
        **dict.fromkeys(("pending", "inqueue", "running", "unknown", "completed"), _INTEGER),
    ),
    columns=(
        _column("STATE", "string", ".status.state"),
        _column("PARENT", "string", ".spec.parent"),
        _column("DESERVED", "string", ".spec.deserved.nvidia\\.com/gpu"),
        _column("CARDS", "string", ".status.allocated.nvidia\\.com/gpu"),
        _column("INQUEUE", "integer", ".status.inqueue"),
        _column("RUNNING", "integer", ".status.running"),
        _column("AGE", "date", ".metadata.creationTimestamp"),
    ),
)

POD_GROUP = _definition(
    "PodGroup",
    PODGROUPS,
    ["pg", "podgroup-v1beta1"],
    spec=_open(
        minMember={**_INTEGER, "default": 1},
        minTaskMember={"type": "object", "additionalProperties": _INTEGER},
        queue={**_STRING, "default": DEFAULT_QUEUE},
        priorityClassName=_STRING,
        minResources=_AMOUNTS,
        networkTopology=_TOPOLOGY,
        subGroupPolicy={"type": "array", "items": _open(name=_STRING, networkTopology=_TOPOLOGY)},
    ),
    status=_open(phase=_STRING, running=_INTEGER, succeeded=_INTEGER, failed=_INTEGER),
)


HYPER_NODE = _definition(
    "HyperNode",
    HYPERNODES,
    ["hn"],
    spec=_open(
        tier={**_INTEGER, "minimum": 0},
        tierName=_STRING,
        members={
            "type": "array",
            "items": _open(type={**_STRING, "enum": ["Node", "HyperNode"]}, selector=_open()),
        },
    ),
    status=_open(),
)

_ALL = (QUEUE, POD_GROUP, HYPER_NODE)


async def bring(client: KubeClient, say: Callable[[str], None]) -> None:
    """Applies what is missing, by server-side apply, and says what. Raises Unavailable or InvalidRequest (rights are missing)."""
    for manifest in _ALL:
        name = manifest["metadata"]["name"]
        if await _ours_or_absent(client, CRDS.path(name=name)):
            await apply(client, manifest, field_manager=FIELD_MANAGER)
            say(f"applied CRD {name}")
        else:
            say(f"found CRD {name}, installed by somebody else: left as it is")
    for manifest in _ALL:
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
