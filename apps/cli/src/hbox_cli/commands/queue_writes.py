"""What `hbox queue` writes to Kubernetes."""

from collections.abc import Mapping
from typing import Any

from ..access import running_of
from ..context import Context


async def write(ctx: Context, method: str, name: str, body: Mapping[str, Any]) -> None:
    """POST a new Queue, or PATCH one, in which null takes a field out."""
    from hbox_common.kube import JSON, MERGE_PATCH, QUEUES, KubeClient  # noqa: PLC0415  looking needs no Kubernetes

    new = method == "POST"
    if new:
        kind = {"apiVersion": f"{QUEUES.group}/{QUEUES.version}", "kind": "Queue"}
        body = {**kind, **body, "metadata": {"name": name, **body.get("metadata", {})}}
    async with KubeClient.connect(running_of(ctx).kubeconfig or None, user_agent="hbox") as client:
        path = QUEUES.path() if new else QUEUES.path(name=name)
        await client.json(method, path, body=body, content_type=JSON if new else MERGE_PATCH)


async def write_state(ctx: Context, name: str, state: str) -> None:
    """Volcano's states are a status: they are asked for there too."""
    from hbox_common.kube import QUEUES, KubeClient, patch_status  # noqa: PLC0415

    async with KubeClient.connect(running_of(ctx).kubeconfig or None, user_agent="hbox") as client:
        await patch_status(client, QUEUES, namespace=None, name=name, status={"state": state})
