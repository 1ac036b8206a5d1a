"""`hbox explain FIELD`: what the fields of jobs, queues and PodGroups mean, without a cluster."""

from collections.abc import Mapping
from typing import Any

import click

from hbox_common.errors import NotFound

from ..context import Context, command_options
from ..output import Column, put

#: Of a job, whatever its kind: where it is written, and what it does.
JOB = {
    "queue": (
        "annotation or label scheduling.volcano.sh/queue-name; PodGroup spec.queue",
        "Queue of the job [that of its namespace, else default].",
    ),
    "scheduler": (
        "spec.schedulerName of the pods: hbox",
        "Lets HBox place the pods; the label hbox.io/scheduler of a namespace sets it.",
    ),
    "min": (
        "PodGroup spec.minMember; annotation scheduling.volcano.sh/group-min-member",
        "Pods that start together. Without it, the kind of the workload decides (`hbox kinds ls`).",
    ),
    "cards": ("resources.limits nvidia.com/gpu", "Cards per container; other makers' names: `hbox sizes`."),
    "memory-of-cards": (
        "resources.limits nvidia.com/gpumem, nvidia.com/gpumem-percentage",
        "Memory of each card, in MiB or percent.",
    ),
    "cores-of-cards": ("resources.limits nvidia.com/gpucores", "Compute of each card, in percent."),
    "model": ("annotation nvidia.com/use-gputype", "Models of cards that the pod may use, separated by commas."),
    "priority": ("spec.priorityClassName", "PriorityClass: jobs of a queue are tried by priority, then by age."),
    "preemptible": ("annotation volcano.sh/preemptable", "Whether other jobs may evict its pods, whatever its queue's rules."),
    "topology": (
        "PodGroup spec.networkTopology; annotation hbox.io/network-topology",
        "mode hard: the pods share a unit of the fabric up to highestTierAllowed; soft: if one has room. The annotation takes none, bestEffort, singleSwitch.",
    ),
    "walltime": ("annotation hbox.io/walltime", "Longest run time, as 2h30m: makes start estimates and back-filling possible."),
    "min-run-time": ("annotation hbox.io/min-run-time", "Time that a pod runs before it may be evicted."),
    "checkpoint": (
        "annotations hbox.io/checkpointed-at, hbox.io/checkpoint-interval",
        "Pods with a recent checkpoint are evicted first.",
    ),
    "on-sick-hardware": (
        "annotation hbox.io/on-sick-hardware",
        "restart, checkpoint, shrink or ignore, if its hardware fails.",
    ),
    "suspend": ("spec.suspend of its controller", "Ends its pods and keeps the job: `hbox suspend`."),
}


@click.command("explain")
@click.argument("field", default="job")
@command_options
def command(ctx: Context, field: str) -> None:
    """Explain FIELD: job, job.NAME, or a path in queue, podgroup or hypernode, such as queue.spec.guarantee. It needs no cluster.

    \b
    hbox explain job
    hbox explain job.topology
    hbox explain podgroup.spec.networkTopology
    """
    kind, _, rest = field.partition(".")
    rest = rest.removeprefix("spec.") if kind == "job" else rest
    if kind == "job":
        _job(ctx, rest)
    else:
        _defined(ctx, kind.lower(), rest)


def _job(ctx: Context, name: str) -> None:
    if name and name not in JOB:
        raise NotFound(f"a job has no field {name}", hint=f"fields: {', '.join(JOB)}")
    rows = [{"name": key, "written": written, "text": text} for key, (written, text) in JOB.items() if name in ("", key)]
    if name and ctx.output.people:
        put(f"job.{name}", f"  written as  {rows[0]['written']}", f"  meaning     {rows[0]['text']}")
        return
    columns = (
        Column("FIELD", lambda r: f"job.{r['name']}"),
        Column("WRITTEN AS", lambda r: r["written"]),
        Column("MEANING", lambda r: r["text"]),
    )
    ctx.output.rows("Field", rows, columns)


def _defined(ctx: Context, kind: str, path: str) -> None:
    """A path in the definition of a kind."""
    from hbox_common.kube.definitions import HYPER_NODE, POD_GROUP, QUEUE  # noqa: PLC0415  0.2 s, which `job` does not need

    kinds = {"queue": QUEUE, "podgroup": POD_GROUP, "hypernode": HYPER_NODE}
    if kind not in kinds:
        raise NotFound(f"hbox explains no kind {kind}", hint=f"one of job, {', '.join(kinds)}; others: kubectl explain {kind}")
    schema: Mapping[str, Any] = kinds[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    walked = kind
    for part in filter(None, path.split(".")):
        below = _fields(schema)
        if part not in below:
            raise NotFound(f"{walked} has no field {part}", hint=f"fields: {', '.join(below) or 'none'}")
        schema, walked = below[part], f"{walked}.{part}"
    rows = [{"name": name, "type": _type(one), "text": one.get("description", "")} for name, one in _fields(schema).items()]
    if ctx.output.people:
        put(f"{walked}  {_type(schema)}" + (f"  one of {', '.join(map(str, schema['enum']))}" if "enum" in schema else ""))
        if schema.get("description"):
            put(f"  {schema['description']}")
    if rows or not ctx.output.people:
        columns = (
            Column("FIELD", lambda r: r["name"]),
            Column("TYPE", lambda r: r["type"]),
            Column("MEANING", lambda r: r["text"]),
        )
        ctx.output.rows("Field", rows, columns)


def _fields(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of an object, or of the items of a list."""
    found: Mapping[str, Any] = (schema.get("items") or schema).get("properties") or {}
    return found


def _type(schema: Mapping[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {})}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "object"))
