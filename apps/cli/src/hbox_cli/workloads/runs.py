"""Manifests of `hbox run`: an Indexed Job whose pods are one gang, and a headless Service by which its pods find each other. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS
from hbox_common.model.annotations import QUEUE_NAME, WALLTIME

GROUP_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
#: By which `run` sets the port of torchrun's and of other launchers' rendezvous.
RENDEZVOUS_PORT = 29500
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
#: Of a Job: its pods are named NAME-INDEX-xxxxx, within 63 characters.
_NAME_CHARACTERS = 52


@dataclass(frozen=True, slots=True)
class Run:
    """What the user asked for. `cards`: of each pod."""

    name: str
    command: Sequence[str]
    image: str
    card_resource: str
    pods: int = 1
    cards: int = 0
    queue: str = ""
    priority_class: str = ""
    cpu: str = ""
    memory: str = ""
    model: str = ""
    walltime: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    held: bool = False
    interactive: bool = False


def job_of(run: Run) -> dict[str, Any]:
    """The Job. An eviction by the scheduler is no failure of it. Raises InvalidRequest."""
    if not _NAME.fullmatch(run.name) or len(run.name) > _NAME_CHARACTERS:
        raise InvalidRequest(
            f"--name {run.name!r}: at most {_NAME_CHARACTERS} lower-case letters, digits and hyphens, a letter or digit at each end"
        )
    annotations = {GROUP_MIN_MEMBER: str(run.pods), **({QUEUE_NAME: run.queue} if run.queue else {})}
    pod_notes = {QUEUE_NAME: run.queue} if run.queue else {}
    if run.walltime:
        pod_notes[WALLTIME] = run.walltime
    if run.model:
        pod_notes[_models_annotation(run.card_resource)] = run.model
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": run.name, "annotations": annotations},
        "spec": {
            "completionMode": "Indexed",
            "completions": run.pods,
            "parallelism": run.pods,
            "suspend": run.held,
            "backoffLimit": 0,
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": {
                "metadata": {"annotations": pod_notes} if pod_notes else {},
                "spec": _pod_spec(run),
            },
        },
    }


def _models_annotation(card_resource: str) -> str:
    vendor = VENDORS.of({card_resource: 1})
    if vendor is None or not vendor.models_annotation:
        raise InvalidRequest(
            f"--model: no annotation chooses the model of {card_resource}", hint="use a queue or node pool of the model"
        )
    return vendor.models_annotation


def _pod_spec(run: Run) -> dict[str, Any]:
    limits = {run.card_resource: str(run.cards)} if run.cards else {}
    requests = {key: value for key, value in (("cpu", run.cpu), ("memory", run.memory)) if value}
    env = dict(run.env)
    if run.pods > 1:
        env = {"MASTER_ADDR": f"{run.name}-0.{run.name}", "MASTER_PORT": str(RENDEZVOUS_PORT), "NNODES": str(run.pods), **env}
    container: dict[str, Any] = {
        "name": "main",
        "image": run.image,
        "command": list(run.command),
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"requests": {**requests, **limits}, "limits": limits},
    }
    if run.interactive:
        container |= {"stdin": True, "tty": True}
    return {
        "schedulerName": "hbox",
        "restartPolicy": "Never",
        **({"subdomain": run.name} if run.pods > 1 else {}),
        **({"priorityClassName": run.priority_class} if run.priority_class else {}),
        "containers": [container],
    }


def service_of(run: Run, owner: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """The names of the pods, also before they are ready; None for a single pod. `owner`: the Job as created, with which it is deleted."""
    if run.pods == 1:
        return None
    reference = {}
    if owner is not None:
        named = {"apiVersion": "batch/v1", "kind": "Job", "name": run.name, "uid": owner["metadata"]["uid"]}
        reference = {"ownerReferences": [named]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": run.name, **reference},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": run.name},
            "ports": [{"name": "rendezvous", "port": RENDEZVOUS_PORT}],
        },
    }
