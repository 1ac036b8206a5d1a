"""Jobs on a running platform, and scheduler-core's explanations of those that wait."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from hbox_cli.platform.layout import Layout
from hbox_cli.session import bus_of
from hbox_common.events.explain import ExplainAnswer, ExplainRequest, endpoint_of
from hbox_common.kube import PODGROUPS, PODS, KubeClient
from hbox_common.model import JobId
from hbox_common.model.explanation import Explanation

from ..waiting import until
from .platform_world import Up

SPACE, GPU = "default", "nvidia.com/gpu"


def pod(name: str, limits: Mapping[str, str], *, annotations: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"} | dict(limits), "limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "annotations": dict(annotations or {})},
        "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }


async def gang(client: KubeClient, name: str, pods: int, cards: int = 8, **spec: Any) -> None:
    """Create a PodGroup with this spec and its pods, of `cards` cards each."""
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name, "namespace": SPACE}}
    await client.json("POST", PODGROUPS.path(SPACE), body={**body, "spec": {"minMember": pods, **spec}})
    member = {"scheduling.k8s.io/group-name": name}
    for number in range(pods):
        await client.json("POST", PODS.path(SPACE), body=pod(f"{name}-{number}", {GPU: str(cards)}, annotations=member))


async def explained(running: Up, name: str, what: str, holds: Callable[[Explanation], bool]) -> Explanation:
    """The explanation of the job as soon as `holds` is true of it. `what`: that in words."""

    def ids_of() -> list[str]:
        return [item["id"] for item in running.json("jobs")["items"] if item["name"] == f"{SPACE}/{name}"]

    async with bus_of(Layout(running.state).running()) as bus:

        async def found() -> Explanation | None:
            if not (ids := await asyncio.to_thread(ids_of)):
                return None
            request = ExplainRequest(job=JobId(ids[0]))
            answer = await bus.call("scheduler-core", endpoint_of("explain", ""), request, ExplainAnswer, timeout_s=10)
            return answer.explanation if answer.explanation is not None and holds(answer.explanation) else None

        explanation: Explanation = await until(found, f"{name} has {what}", timeout_s=60)
        return explanation
