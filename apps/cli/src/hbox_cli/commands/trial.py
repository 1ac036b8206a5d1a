"""`hbox trial`: whether the platform places work, as a user sees it: a gang of pods that say `schedulerName: hbox`."""

import asyncio
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from hbox_common.errors import HBoxError, NotFound
from hbox_common.model import DEFAULT_QUEUE, SCHEDULER_NAME, VENDORS

from ..aio import run
from ..context import Context, command_options
from ..output import notify

POLL_S = 0.5
CLEAN_S = 30.0
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@click.command("trial")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Kubeconfig of the cluster [the pod's service account].",
)
@click.option("-n", "--namespace", help="Namespace of the gang [the pod's own, else default].")
@click.option("--queue", default=DEFAULT_QUEUE, show_default=True, help="Queue of the gang.")
@click.option("--members", type=click.IntRange(1, 64), default=2, show_default=True, help="Pods of the gang.")
@click.option("--cards", type=click.IntRange(0, 16), default=0, show_default=True, help="Cards per pod.")
@click.option("--resource", default=VENDORS.default.cards, show_default=True, help="Resource name of the cards.")
@click.option(
    "--image",
    envvar="HBOX_TRIAL_IMAGE",
    default="busybox:1.36",
    show_default=True,
    help="Container image with the command `sleep`.",
)
@click.option("--pull-secret", "pull_secrets", multiple=True, metavar="NAME", help="Secret for pulling the image.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=120.0, show_default=True, help="Seconds to wait.")
@click.option("--keep", is_flag=True, help="Keep the gang and its pods.")
@click.option(
    "--owner", default="", metavar="DEPLOYMENT", help="Deployment to set as the owner of the pod in which this command runs."
)
@command_options
def command(
    _: Context,
    *,
    kubeconfig: Path | None,
    namespace: str | None,
    queue: str,
    members: int,
    cards: int,
    resource: str,
    image: str,
    pull_secrets: tuple[str, ...],
    timeout_s: float,
    keep: bool,
    owner: str,
) -> None:
    """Submit a gang (a PodGroup and its pods), wait until all its pods run, and delete it.

    \b
    hbox trial --kubeconfig ~/.kube/config
    hbox trial --kubeconfig ~/.kube/config --members 4 --cards 8 --queue vision

    Exit status 124 if the gang does not run in time; the command then prints the reasons of its pods.
    """
    where = namespace or (NAMESPACE_FILE.read_text().strip() if kubeconfig is None and NAMESPACE_FILE.exists() else "default")
    name = f"hbox-trial-{secrets.token_hex(3)}"
    limits = {"cpu": "10m", "memory": "16Mi"} | ({resource: str(cards)} if cards else {})
    gang = _gang(name, queue=queue, members=members)
    pods = [_pod(f"{name}-{i}", gang=name, image=image, pull_secrets=pull_secrets, limits=limits) for i in range(members)]
    run(lambda: _try(str(kubeconfig) if kubeconfig else None, where, gang, pods, timeout_s=timeout_s, keep=keep, owner=owner))


def _gang(name: str, *, queue: str, members: int) -> dict[str, Any]:
    spec = {"minMember": members, "queue": queue}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "labels": {"hbox.io/trial": name}},
        "spec": spec,
    }


def _pod(name: str, *, gang: str, image: str, pull_secrets: Sequence[str], limits: Mapping[str, str]) -> dict[str, Any]:
    """It runs where pod security is `restricted`."""
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"],
        "resources": {"requests": dict(limits), "limits": dict(limits)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/part-of": "hbox", "hbox.io/trial": gang},
            "annotations": {"scheduling.k8s.io/group-name": gang},
        },
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "imagePullSecrets": [{"name": secret} for secret in pull_secrets],
            "containers": [container],
        },
    }


async def _try(
    kubeconfig: str | None,
    namespace: str,
    gang: Mapping[str, Any],
    pods: list[dict[str, Any]],
    *,
    timeout_s: float,
    keep: bool,
    owner: str,
) -> None:
    from hbox_common.kube import PODGROUPS, PODS, KubeClient  # noqa: PLC0415

    name = gang["metadata"]["name"]
    began = time.monotonic()
    async with KubeClient.connect(kubeconfig, user_agent="hbox trial") as client:
        if owner:
            await _own(client, namespace, owner=owner, pod=os.environ.get("HOSTNAME", ""))
        try:
            await client.json("POST", PODGROUPS.path(namespace), body=gang)
            for pod in pods:
                await client.json("POST", PODS.path(namespace), body=pod)
            notify(f"submitted gang {namespace}/{name} of {len(pods)} pods to queue {gang['spec']['queue']}")
            selector = {"labelSelector": f"hbox.io/trial={name}"}
            while True:
                found = (await client.json("GET", PODS.path(namespace), params=selector))["items"]
                running = [pod for pod in found if (pod.get("status") or {}).get("phase") == "Running"]
                if len(running) == len(pods):
                    break
                if time.monotonic() - began > timeout_s:
                    raise TimeoutError(f"{len(running)} of {len(pods)} pods run after {timeout_s:g} s; {_reason(found)}")
                await asyncio.sleep(POLL_S)
            nodes = sorted({pod["spec"]["nodeName"] for pod in running})
            print(f"gang {namespace}/{name} runs after {time.monotonic() - began:.1f} s on {', '.join(nodes)}")
        finally:
            if not keep:
                await asyncio.shield(_clear(client, namespace, name, [pod["metadata"]["name"] for pod in pods]))


async def _own(client: Any, namespace: str, *, owner: str, pod: str) -> None:
    """Sets the Deployment `owner` as the owner of the pod in which this command runs, so that `helm uninstall` deletes the pod. Best effort."""
    from hbox_common.kube import MERGE_PATCH, PODS, Resource  # noqa: PLC0415

    deployments = Resource("apps", "v1", "deployments", namespaced=True)
    try:
        found = await client.json("GET", deployments.path(namespace, owner))
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "uid": found["metadata"]["uid"]}
        body = {"metadata": {"ownerReferences": [reference]}}
        await client.json("PATCH", PODS.path(namespace, pod), body=body, content_type=MERGE_PATCH)
    except HBoxError as e:
        notify(f"`helm uninstall` will not delete pod {pod}: {e}")


def _reason(pods: list[dict[str, Any]]) -> str:
    """The reason that the first pod that does not run reports: why the pod waits, or why its container does."""
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("phase") == "Running":
            continue
        for container in status.get("containerStatuses") or ():
            waiting = (container.get("state") or {}).get("waiting")
            if waiting:
                return f"{pod['metadata']['name']}: {waiting.get('reason')}: {waiting.get('message', '')}"
        for condition in status.get("conditions") or ():
            if condition.get("status") == "False" and condition.get("message"):
                return f"{pod['metadata']['name']}: {condition['message']}"
    return "no pod has a reason: does job-controller run?"


async def _clear(client: Any, namespace: str, gang: str, pods: list[str]) -> None:
    """Best effort, each by itself: what failed before is the news, not this."""
    from hbox_common.kube import PODGROUPS, PODS  # noqa: PLC0415

    why = ""
    try:
        async with asyncio.timeout(CLEAN_S):
            for path in (PODGROUPS.path(namespace, gang), *(PODS.path(namespace, pod) for pod in pods)):
                try:
                    await client.json("DELETE", path, expect=(200, 202))
                except NotFound:
                    continue
                except HBoxError as e:
                    why = why or str(e)
    except TimeoutError:
        why = why or f"the API server did not delete all of it within {CLEAN_S:g} s"
    except asyncio.CancelledError:
        why = "interrupted"
        raise
    finally:
        if why:
            notify(
                f"gang {namespace}/{gang} is left behind: {why}; kubectl delete -n {namespace} podgroup,pod -l hbox.io/trial={gang}"
            )
