"""`hbox set job`: changes of a job that was submitted."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from hbox_common.errors import Conflict, InvalidRequest

from ..context import Context, platform_options
from ..names import JOB_NAME
from ..workloads.changes import dry_run_option

if TYPE_CHECKING:
    from ..workloads.changes import Change
    from ..workloads.targets import Target

KEYS = ("queue", "nodes", "min", "gpus", "priority-class", "topology")
#: Of `topology`, by PodGroups.
_MODES = {"required": "hard", "preferred": "soft", "none": None}
#: Fields that the API server sets, which a Job that is created again leaves out.
_SERVER_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name")


@click.group("set")
def command() -> None:
    """Change a job that was submitted."""


@command.command("job")
@click.argument("job", type=JOB_NAME)
@click.argument("values", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("-n", "--namespace", help="Namespace of a job that is named without one [of the context].")
@dry_run_option
@platform_options
def job(ctx: Context, job: str, values: tuple[str, ...], namespace: str | None, dry_run: str | None) -> None:
    """Change a pending JOB: queue, nodes (pods), min (pods that start it), gpus (cards per pod), priority-class, topology (required, preferred or none).

    \b
    hbox set job train-7 queue=research
    hbox set job train-7 nodes=11
    hbox set job train-7 gpus=4 --dry-run
    hbox set job podgroup/train-7 topology=preferred

    PodGroups take queue, min, priority-class and topology. Jobs (batch/v1) take queue, nodes and min; Kubernetes does not let their pod templates change, so
    gpus and priority-class delete a Job that has no pod on a node and create it again, at the end of its queue. A job with pods on nodes keeps its queue.
    """
    from ..access.cluster import cluster_of  # noqa: PLC0415  these take 0.2 s to import, which --help does not need
    from ..workloads.changes import carry_out  # noqa: PLC0415
    from ..workloads.following import has_ended, target_reader  # noqa: PLC0415

    wanted = _values(values)
    api = cluster_of(ctx)
    target = target_reader(ctx, api, job, namespace)()
    if has_ended(target):
        raise Conflict(f"{target.title} has ended", hint="submit it again")
    if target.bound and set(wanted) - {"min"}:
        raise Conflict(
            f"{target.title} has {len(target.bound)} pods on nodes: only a pending job can be changed",
            hint=f"hbox suspend {target.namespace}/{target.name}, then set, then resume",
        )
    carry_out(api, _changes(target, wanted), dry_run)


def _values(values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or key not in KEYS or not value:
            raise InvalidRequest(f"{text!r}: write it as KEY=VALUE", hint=f"keys: {', '.join(KEYS)}")
        found[key] = value
    return found


def _changes(target: "Target", wanted: Mapping[str, str]) -> "list[Change]":
    from ..access.cluster import JOB, POD_GROUP  # noqa: PLC0415
    from ..workloads.changes import Change  # noqa: PLC0415

    done = f"{target.title}: {', '.join(f'{key} {value}' for key, value in wanted.items())}"
    if target.kind is JOB and target.group is None:
        if {"topology"} & wanted.keys():
            raise InvalidRequest(
                f"{target.title}: a Job has no topology of its own",
                hint="put its pods into a PodGroup with spec.networkTopology",
            )
        if {"gpus", "priority-class"} & wanted.keys():
            return _made_again(target, wanted, done)
        return [Change("patch", JOB, target.namespace, target.name, done, _job_patch(wanted))]
    group = target.root if target.kind is POD_GROUP else target.group
    if group is None:
        raise InvalidRequest(
            f"{target.title}: `hbox set job` changes Jobs and PodGroups",
            hint=f"kubectl -n {target.namespace} edit {target.kind.resource} {target.name}",
        )
    if unknown := {"nodes", "gpus"} & wanted.keys():
        raise InvalidRequest(
            f"{target.title}: {', '.join(sorted(unknown))} cannot be changed: its pods exist",
            hint="submit it again with other numbers",
        )
    name = str(group["metadata"]["name"])
    return [Change("patch", POD_GROUP, target.namespace, name, done, _group_patch(wanted))]


def _job_patch(wanted: Mapping[str, str]) -> dict[str, Any]:
    from ..workloads.runs import GROUP_MIN_MEMBER  # noqa: PLC0415

    notes: dict[str, str] = {}
    spec: dict[str, int] = {}
    if queue := wanted.get("queue"):
        notes["scheduling.volcano.sh/queue-name"] = queue
    if (nodes := wanted.get("nodes")) is not None:
        spec = {"parallelism": _number("nodes", nodes), "completions": _number("nodes", nodes)}
        notes[GROUP_MIN_MEMBER] = nodes
    if (least := wanted.get("min")) is not None:
        notes[GROUP_MIN_MEMBER] = str(_number("min", least))
    return {**({"metadata": {"annotations": notes}} if notes else {}), **({"spec": spec} if spec else {})}


def _group_patch(wanted: Mapping[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if queue := wanted.get("queue"):
        spec["queue"] = queue
    if least := wanted.get("min"):
        spec["minMember"] = _number("min", least)
    if (name := wanted.get("priority-class")) is not None:
        spec["priorityClassName"] = name
    if (mode := wanted.get("topology")) is not None:
        if mode not in _MODES:
            raise InvalidRequest(f"topology={mode}: unknown", hint=f"one of {', '.join(_MODES)}")
        spec["networkTopology"] = None if _MODES[mode] is None else {"mode": _MODES[mode]}
    return {"spec": spec}


def _made_again(target: "Target", wanted: Mapping[str, str], done: str) -> "list[Change]":
    """The Job without what the API server added, and with the wanted fields."""
    from copy import deepcopy  # noqa: PLC0415

    from ..access.cluster import JOB  # noqa: PLC0415
    from ..workloads.changes import Change  # noqa: PLC0415

    old = target.root["metadata"]
    spec = deepcopy(dict(target.root["spec"]))
    spec.pop("selector", None)
    template = spec["template"]
    for name in _SERVER_LABELS:
        (template.get("metadata") or {}).get("labels", {}).pop(name, None)
    if gpus := wanted.get("gpus"):
        _set_cards(target, template["spec"], _number("gpus", gpus))
    if priority_class := wanted.get("priority-class"):
        template["spec"]["priorityClassName"] = priority_class
        template["spec"].pop("priority", None)
    more = _job_patch({key: value for key, value in wanted.items() if key in ("queue", "nodes", "min")})
    notes = {**(old.get("annotations") or {}), **more.get("metadata", {}).get("annotations", {})}
    labels = {key: value for key, value in (old.get("labels") or {}).items() if key not in _SERVER_LABELS}
    metadata = {"name": target.name, "namespace": target.namespace, "annotations": notes, "labels": labels}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {**spec, **more.get("spec", {})}}
    uid = {"preconditions": {"uid": old["uid"]}}
    return [
        Change("delete", JOB, target.namespace, target.name, f"{target.title} deleted, to be created again", uid),
        Change("create", JOB, target.namespace, target.name, done, body),
    ]


def _set_cards(target: "Target", spec: dict[str, Any], cards: int) -> None:
    from hbox_common.model import VENDORS  # noqa: PLC0415

    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        for name in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}:
            if VENDORS.asked({name: 1}):
                for part in ("limits", "requests"):
                    if name in (resources.get(part) or {}) or part == "limits":
                        resources.setdefault(part, {})[name] = str(cards)
                return
    raise InvalidRequest(f"{target.title} requests no cards", hint="submit it again with cards")


def _number(key: str, text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 100_000:
        raise InvalidRequest(f"{key}={text}: has to be a whole number from 1 on")
    return int(text)
