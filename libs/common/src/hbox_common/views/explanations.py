"""Explanations of pending jobs as items, and back: `hbox why -o json` prints such an item, and the HTTP API serves it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from hbox_common.errors import InvalidRequest
from hbox_common.model import JobId, NodeName, QueueName
from hbox_common.model.explanation import (
    Change,
    ChangeKind,
    Explanation,
    NodeCounts,
    Outcome,
    Owner,
    Stage,
    StageResult,
    StartEstimate,
)
from hbox_common.reasons import blocked

Item = dict[str, Any]
_T = TypeVar("_T")


def explanation_item(found: Explanation, job: Mapping[str, Any] = {}) -> Item:
    """The item of an explanation. `text`: what is in the way, in English. `job`: the job's item, which has the waiting by code that schedulers do not know."""
    start = found.start
    return {
        "job": found.job,
        "name": found.name,
        "queue": found.queue,
        "verdict": found.outcome.value,
        "code": found.code,
        "owner": found.owner.value,
        "text": blocked(found),
        "need": dict(found.need),
        "have": dict(found.have),
        "since": found.since,
        "at": found.at,
        **({"revision": found.revision} if found.revision else {}),
        "position": found.position,
        "queued": found.queued,
        "facts": _plain(found.facts),
        "stages": [{"stage": one.stage.value, "code": one.code, "facts": _plain(one.facts)} for one in found.stages],
        "nodes": {
            "total": found.nodes.total,
            "fitting": found.nodes.fitting,
            "first": dict(found.nodes.first),
            "only": dict(found.nodes.only),
            "names": {code: list(names) for code, names in found.nodes.names.items()},
        },
        "changes": [_change_item(one) for one in found.changes],
        "start": None
        if start is None
        else {"p50Seconds": start.p50_s, "p90Seconds": start.p90_s, "method": start.method, "driver": start.driver},
        "attribution": dict(job.get("waitSeconds") or found.attribution),
    }


def explanation_of(item: Mapping[str, Any]) -> Explanation:
    """The explanation of an item. Stages, changes and fields that are unknown here, of a newer service, are left out. Raises InvalidRequest."""
    try:
        nodes, start = item.get("nodes") or {}, item.get("start")
        return Explanation(
            job=JobId(item["job"]),
            name=str(item["name"]),
            queue=QueueName(item["queue"]),
            outcome=Outcome(item["verdict"]),
            code=str(item["code"]),
            owner=Owner(item["owner"]),
            at=float(item["at"]),
            revision=int(item.get("revision") or 0),
            since=float(item.get("since") or 0.0),
            facts=item.get("facts") or {},
            need=item.get("need") or {},
            have=item.get("have") or {},
            position=int(item.get("position") or 0),
            queued=int(item.get("queued") or 0),
            stages=_known(_stage_of(one) for one in item.get("stages") or ()),
            nodes=NodeCounts(
                total=int(nodes.get("total", 0)),
                fitting=int(nodes.get("fitting", 0)),
                first=nodes.get("first") or {},
                only=nodes.get("only") or {},
                names={code: tuple(map(NodeName, names)) for code, names in (nodes.get("names") or {}).items()},
            ),
            changes=_known(_change_of(one) for one in item.get("changes") or ()),
            start=None
            if start is None
            else StartEstimate(
                float(start["p50Seconds"]), float(start["p90Seconds"]), str(start["method"]), str(start.get("driver", ""))
            ),
            attribution=item.get("attribution") or {},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise InvalidRequest(
            f"the explanation cannot be read: {e!r}", hint="compare the versions of hbox and of the services"
        ) from e


def _plain(facts: Mapping[str, Any]) -> Item:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}


def _change_item(change: Change) -> Item:
    return {
        "kind": change.kind.value,
        "owner": change.owner.value,
        "facts": _plain(change.facts),
        "command": change.command,
        "also": [_change_item(one) for one in change.also],
    }


def _change_of(item: Mapping[str, Any]) -> Change | None:
    if item["kind"] not in set(ChangeKind) or item["owner"] not in set(Owner):
        return None
    also = [_change_of(one) for one in item.get("also") or ()]
    if None in also:
        return None
    return Change(
        ChangeKind(item["kind"]), Owner(item["owner"]), item.get("facts") or {}, item.get("command", ""), _known(also)
    )


def _stage_of(item: Mapping[str, Any]) -> StageResult | None:
    if item["stage"] not in set(Stage):
        return None
    return StageResult(Stage(item["stage"]), item.get("code", ""), item.get("facts") or {})


def _known(found: Iterable[_T | None]) -> Sequence[_T]:
    return tuple(one for one in found if one is not None)
