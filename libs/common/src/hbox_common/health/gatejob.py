"""The operator's Job of the validation gate: health-monitor decides that it has to run on a node, the binder creates it and publishes how it ended.

The manifest is untrusted text of a file: `manifest_of` checks it where it is read, and `rendered` sets what HBox decides where the Job is created. The name of
a Job follows from the decision's id, so that the API server refuses a second one of it as long as the first one exists.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from hbox_common.errors import InvalidRequest
from hbox_common.model.devices import VENDORS
from hbox_common.yamltext import content_of

Json: TypeAlias = dict[str, Any]

#: Of a manifest, as JSON. It is part of a message, and of each incident's memory only by name.
MOST_BYTES = 32 * 1024
#: Longest time of one attempt.
MOST_DEADLINE_S = 24 * 3600
#: A finished Job stays for a day, so that its log can be read.
KEPT_S = 24 * 3600
#: Fields of a pod that decide where it runs: HBox sets the node.
_PLACING = ("nodeName", "nodeSelector", "affinity", "topologySpreadConstraints", "schedulingGates")


class JobOutcome(StrEnum):
    STARTED = "started"  #: the API server has it
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = (
        "refused"  #: the API server does not accept it, or the binder may not create it: nothing is known about the hardware
    )


@dataclass(frozen=True, slots=True)
class GateJob:
    """One attempt. It is deleted, if it still runs, once it is not decided any more."""

    incident: str
    attempt: int  #: of all Jobs for the incident, from 1
    entity: str  #: gpu:UUID | node
    cards: tuple[str, ...]  #: UUIDs of the cards that it is about
    manifest: str  #: JSON of the operator's Job
    deadline_s: int  #: after which Kubernetes ends it

    @property
    def id(self) -> str:
        return f"{self.incident}.job.{self.attempt}"

    @property
    def name(self) -> str:
        """Of the Job: valid in Kubernetes, whatever the incident's id contains."""
        return f"hbox-gate-{hashlib.sha256(self.id.encode()).hexdigest()[:24]}"


def manifest_of(text: str | bytes) -> str:
    """The manifest as JSON. Raises InvalidRequest, which names what is wrong."""
    manifest = content_of(text)
    if not isinstance(manifest, dict) or (manifest.get("apiVersion"), manifest.get("kind")) != ("batch/v1", "Job"):
        raise InvalidRequest("a Job of batch/v1 is expected")
    spec = _mapping(manifest, "spec")
    pod = _mapping(_mapping(spec, "template"), "spec", "spec.template.spec")
    for name in ("parallelism", "completions"):
        if spec.get(name, 1) != 1:
            raise InvalidRequest(f"spec.{name}: one pod on one node is expected")
    deadline = spec.get("activeDeadlineSeconds", 1)
    if isinstance(deadline, bool) or not isinstance(deadline, int) or not 1 <= deadline <= MOST_DEADLINE_S:
        raise InvalidRequest(f"spec.activeDeadlineSeconds: a whole number from 1 to {MOST_DEADLINE_S} is expected")
    if found := [name for name in _PLACING if pod.get(name)]:
        raise InvalidRequest(f"spec.template.spec.{found[0]}: HBox sets the node")
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers:
        raise InvalidRequest("spec.template.spec.containers: a container is expected")
    for number, container in enumerate(containers):
        if not isinstance(container, dict) or not isinstance(container.get("image"), str) or not container["image"]:
            raise InvalidRequest(f"spec.template.spec.containers[{number}]: an image is expected")
    first = pod.get("initContainers") or []
    if not isinstance(first, list):
        raise InvalidRequest("spec.template.spec.initContainers: a list is expected")
    for container in (*containers, *first):
        if not isinstance(container, dict) or not isinstance(container.get("env") or [], list):
            raise InvalidRequest("spec.template.spec: containers are mappings, and their env is a list")
    try:
        written = json.dumps(manifest, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as e:
        raise InvalidRequest(f"is no JSON: {e}") from None
    if len(written.encode()) > MOST_BYTES:
        raise InvalidRequest(f"has {len(written.encode())} bytes, at most {MOST_BYTES} are taken")
    return written


def deadline_of(manifest: str, default_s: float) -> int:
    """Seconds of one attempt: the manifest's own, or the default."""
    return int(json.loads(manifest)["spec"].get("activeDeadlineSeconds") or max(1, min(default_s, MOST_DEADLINE_S)))


def rendered(job: GateJob, *, node: str, namespace: str) -> Json:
    """The Job to create: once, on this node past its cordon and taints, by no scheduler. Raises InvalidRequest, as `manifest_of`."""
    manifest: Json = json.loads(manifest_of(job.manifest))
    given = manifest.get("metadata") if isinstance(manifest.get("metadata"), dict) else {}
    marks = {"hbox.io/incident": job.incident, "hbox.io/entity": job.entity, "hbox.io/node": node}
    spec = manifest["spec"]
    spec |= {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 0,
        "activeDeadlineSeconds": job.deadline_s,
        "ttlSecondsAfterFinished": KEPT_S,
        "suspend": False,
    }
    for name in ("selector", "manualSelector", "completionMode", "podFailurePolicy", "podReplacementPolicy", "managedBy"):
        spec.pop(name, None)
    template = spec["template"]
    template["metadata"] = _marked(template.get("metadata"), marks)
    pod = template["spec"]
    pod |= {"nodeName": node, "restartPolicy": "Never", "schedulerName": "default-scheduler"}
    pod["tolerations"] = [{"operator": "Exists"}]
    for container in (*pod["containers"], *(pod.get("initContainers") or ())):
        _add_env(container, job, node)
    metadata = {"name": job.name, "namespace": namespace} | _marked(given, marks)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _marked(metadata: Any, marks: Mapping[str, str]) -> Json:
    """Labels and annotations of the operator, and HBox's."""
    given = metadata if isinstance(metadata, dict) else {}
    labels, annotations = (value if isinstance(value := given.get(name), dict) else {} for name in ("labels", "annotations"))
    return {"labels": {**labels, "app.kubernetes.io/managed-by": "hbox"}, "annotations": {**annotations, **marks}}


def _add_env(container: Json, job: GateJob, node: str) -> None:
    """What the program is about. A container without cards of a device plugin gets those of the incident by NVIDIA's runtime: the kubelet would choose any."""
    env = [one for one in container.get("env") or [] if isinstance(one, dict)]
    values = {
        "HBOX_NODE": node,
        "HBOX_ENTITY": job.entity,
        "HBOX_CARDS": ",".join(job.cards),
        "HBOX_INCIDENT": job.incident,
        "HBOX_ATTEMPT": str(job.attempt),
    }
    if job.cards and not _asks_for_devices(container) and not any(one.get("name") == _VISIBLE for one in env):
        values[_VISIBLE] = ",".join(job.cards)
    container["env"] = [one for one in env if one.get("name") not in values] + [
        {"name": name, "value": value} for name, value in values.items()
    ]


_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_MIG = re.compile(r"nvidia\.com/mig-.+")


def _asks_for_devices(container: Json) -> bool:
    resources = container.get("resources")
    limits = resources.get("limits") if isinstance(resources, dict) else None
    return isinstance(limits, dict) and any(str(name) in VENDORS or _MIG.fullmatch(str(name)) for name in limits)


def _mapping(of: Json, name: str, shown: str = "") -> Json:
    value = of.get(name)
    if not isinstance(value, dict):
        raise InvalidRequest(f"{shown or name}: a mapping is expected")
    return value
