"""`hbox show JOB`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from hbox_common.errors import HBoxError

from ..context import Context, platform_options
from ..names import JOB_NAME
from ..output import Column, duration, put
from ..times import utc

if TYPE_CHECKING:
    from ..access.cluster import ClusterApi, Object
    from ..workloads.targets import Target

EVENTS_SHOWN = 8

PODS = (
    Column("POD", lambda pod: pod["name"]),
    Column("RANK", lambda pod: pod["rank"]),
    Column("PHASE", lambda pod: pod["phase"]),
    Column("NODE", lambda pod: pod["node"]),
    Column("RESTARTS", lambda pod: pod["restarts"]),
    Column("STARTED", lambda pod: pod["startedAt"]),
    Column("REASON", lambda pod: pod["reason"]),
)


@click.command("show")
@click.argument("job", type=JOB_NAME)
@click.option("-n", "--namespace", help="Namespace of a job that is named without one [of the context].")
@platform_options
def command(ctx: Context, job: str, namespace: str | None) -> None:
    """Show all facts of JOB: its object, queue and priority, state, pods with nodes, and its latest Events. It reads Kubernetes with your rights, so it also
    shows a job that is suspended or has ended.

    \b
    hbox show train-7
    hbox show ml/train-7 -o json
    """
    from ..access.cluster import cluster_of  # noqa: PLC0415  these take 0.2 s to import, which --help does not need
    from ..workloads.following import target_reader  # noqa: PLC0415

    api = cluster_of(ctx)
    target = target_reader(ctx, api, job, namespace)()
    item = _document(target, _listed(ctx, target), _events(api, target))
    if not ctx.output.people:
        ctx.output.document("JobDetails", item)
        return
    put(f"{item['kind']} {item['name']}  {item['state']}  created {item['createdAt']}")
    for title, value in _facts(item):
        put(f"  {title:<11} {value}")
    if item["reason"]:
        put(f"  {'reason':<11} {item['reason']}")
    if item["pods"]:
        ctx.output.rows("Pod", item["pods"], PODS)
    for event in item["events"][-EVENTS_SHOWN:]:
        put(f"{event['at']}  {event['reason']}: {event['message']}")


def _listed(ctx: Context, target: "Target") -> Mapping[str, Any] | None:
    """Its item of `hbox jobs`, where it has one and the platform answers."""
    from ..access import source_of  # noqa: PLC0415

    with suppress(HBoxError):
        return source_of(ctx).job(str((target.live or (target.root,))[0]["metadata"]["name"]) if target.live else target.name)
    return None


def _document(target: "Target", listed: Mapping[str, Any] | None, events: list[dict[str, Any]]) -> dict[str, Any]:
    from ..workloads.following import has_ended, has_failed, members_needed  # noqa: PLC0415
    from ..workloads.suspending import is_suspended  # noqa: PLC0415

    ended, failed = has_ended(target), has_failed(target)
    state = "FAILED" if ended and failed else "SUCCEEDED" if ended else "SUSPENDED" if is_suspended(target) else ""
    metadata = target.root["metadata"]
    return {
        "name": f"{target.namespace}/{target.name}",
        "kind": target.kind.kind,
        "id": metadata.get("uid", ""),
        "state": state or (listed["state"] if listed is not None else "PENDING"),
        "createdAt": _time(metadata.get("creationTimestamp")),
        "queue": listed["queue"] if listed is not None else _queue(target),
        "priority": listed["priority"] if listed is not None else None,
        "cards": listed["cards"] if listed is not None else None,
        "podGroup": target.group["metadata"]["name"] if target.group is not None else "",
        "needed": members_needed(target),
        "waitSeconds": listed.get("waitSeconds", {}) if listed is not None else {},
        "reason": listed["reason"] if listed is not None and not ended else "",
        "traceId": listed.get("traceId", "") if listed is not None else "",
        "pods": [_pod(pod) for pod in target.pods],
        "events": events,
    }


def _facts(item: Mapping[str, Any]) -> list[tuple[str, object]]:
    bound = sum(1 for pod in item["pods"] if pod["node"])
    facts: list[tuple[str, object]] = [
        ("queue", item["queue"] or "of its namespace, else default"),
        ("priority", item["priority"]),
        ("pods", f"{bound} of {len(item['pods'])} on nodes, {item['needed']} needed to start"),
        ("cards", item["cards"]),
        ("PodGroup", item["podGroup"]),
        ("waited", " + ".join(f"{duration(s)} {code}" for code, s in item["waitSeconds"].items())),
        ("trace", item["traceId"]),
    ]
    return [(title, value) for title, value in facts if value not in (None, "")]


def _queue(target: "Target") -> str:
    notes = target.root["metadata"].get("annotations") or {}
    return str((target.root.get("spec") or {}).get("queue") or notes.get("scheduling.volcano.sh/queue-name") or "")


def _pod(pod: "Object") -> dict[str, Any]:
    from ..workloads.following import UNRANKED, rank_of  # noqa: PLC0415
    from ..workloads.targets import phase_of  # noqa: PLC0415

    status = pod.get("status") or {}
    containers: Sequence[Mapping[str, Any]] = status.get("containerStatuses") or ()
    reasons = [status.get("reason", "")]
    reasons += [
        (one.get("state") or {}).get(key, {}).get("reason", "") for one in containers for key in ("waiting", "terminated")
    ]
    return {
        "name": pod["metadata"]["name"],
        "rank": rank_of(pod) if rank_of(pod) < UNRANKED else None,
        "phase": "Terminating" if "deletionTimestamp" in pod["metadata"] else phase_of(pod),
        "node": pod["spec"].get("nodeName", ""),
        "restarts": sum(one.get("restartCount", 0) for one in containers),
        "startedAt": _time(status.get("startTime")),
        "reason": next(filter(None, reasons), ""),
    }


def _events(api: "ClusterApi", target: "Target") -> list[dict[str, Any]]:
    """Of the job's own objects, oldest first; none where the user may not list them."""
    from ..access.cluster import EVENT  # noqa: PLC0415

    objects = [target.root, *([target.group] if target.group is not None else [])]
    found: list[Any] = []
    with suppress(HBoxError):
        for one in objects:
            found += api.listed(EVENT, target.namespace, fieldSelector=f"involvedObject.uid={one['metadata']['uid']}")
    rows = [
        {
            "at": _time(one.get("lastTimestamp") or one.get("eventTime") or one["metadata"].get("creationTimestamp")),
            "type": one.get("type", ""),
            "reason": one.get("reason", ""),
            "message": one.get("message", ""),
        }
        for one in found
    ]
    return sorted(rows, key=lambda row: str(row["at"]))


def _time(text: object) -> str:
    return utc(datetime.fromisoformat(str(text)).timestamp()) if text else ""
