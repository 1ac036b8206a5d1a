"""A record of scheduler-core, read and replayed, as a document."""

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import TypeAdapter

from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.events import Plan
from hbox_common.model import JobId, PlanId
from hbox_common.model.decision import Decision
from hbox_scheduler.core.record.record import Reader
from hbox_scheduler.core.record.replay import Replay

from .runs import Runs

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def replayed(path: Path) -> dict[str, Any]:
    """What came of it, for `-o json`. Raises InvalidRequest where the file is no record, of another format, or damaged."""
    with opened(path) as file:
        reader = Reader(file, str(path))
        replay = Replay(reader.head)
        whole = max(1, path.stat().st_size)
        with Runs(whole, "bytes") as tick:
            shown = 0
            for call in reader.calls():
                replay.run(call)
                if reader.read > shown:
                    tick(reader.read - shown)
                    shown = reader.read
            tick(whole - shown)
    head = reader.head
    return {
        "record": str(path),
        "version": head.version,
        "scheduler": head.scheduler,
        "end": reader.end,
        "seconds": round((replay.last_now or 0.0) - (replay.first_now or 0.0), 3),
        "calls": replay.calls,
        "cycles": replay.cycles,
        "plans": replay.plans,
        "placements": replay.placements,
        "victims": replay.victims,
        "verdicts": replay.verdicts,
        "differences": replay.differences,
        "first": None if replay.first is None else _ANY.dump_python(asdict(replay.first), mode="json"),
        "warnings": warnings_of(reader),
    }


def placed(path: Path, job: str) -> dict[str, Any]:
    """Why a job has the places that a record gave it. `job`: its name, namespace/name, or id, or a pod's name.

    Raises NotFound where the record gives no such job a place, InvalidRequest as `replayed`.
    """
    with opened(path) as file:
        reader = Reader(file, str(path))
        replay = Replay(reader.head)
        decisions = replay.scheduler.decisions
        decisions.rate = None
        found: dict[PlanId, Decision] = {}
        names: dict[JobId, str] = {}
        with Runs(max(1, path.stat().st_size), "bytes") as tick:
            for call in reader.calls():
                replay.run(call)
                if call.name != "cycle" or call.error:
                    continue
                for plan in call.result.plans:
                    if plan.placements and not plan.victims and _is_meant(plan, job):
                        names[plan.job] = f"{plan.namespace}/{plan.name}"
                        found.update((one.plan, one) for one in decisions.of(plan.job))
            tick(reader.read)
    if not found:
        raise NotFound(f"{path} gives no job {job} a place", hint="name a job, or a pod of it, that is placed on record")
    if len(names) > 1:
        raise NotFound(
            f"{len(names)} jobs on record are called {job}", hint=f"name one of {', '.join(sorted(names.values())[:5])}"
        )
    warnings = warnings_of(reader)
    if replay.differences:
        warnings.append(f"{replay.differences} decisions are not those of the record: these are what this HBox decides")
    [(id, name)] = names.items()
    explained = [_ANY.dump_python(asdict(one), mode="json") for one in found.values()]
    return {"record": str(path), "name": name, "id": id, "decisions": explained, "warnings": warnings}


def _is_meant(plan: Plan, job: str) -> bool:
    name = f"{plan.namespace}/{plan.name}"
    if job in (plan.job, plan.name, name):
        return True
    return any(job in (one.pod, f"{plan.namespace}/{one.pod}") for one in plan.placements)


def opened(path: Path) -> BinaryIO:
    """The record's file. Raises InvalidRequest."""
    try:
        return path.open("rb")
    except OSError as e:
        raise InvalidRequest(f"{path} cannot be read: {e.strerror}", hint="name a file that HBOX_RECORD made") from e


def warnings_of(reader: Reader) -> list[str]:
    """Warnings about a record that was read to its end."""
    found = []
    if reader.torn:
        found.append(
            f"the last {reader.torn} bytes are torn: the service was killed while writing; the content before them is complete"
        )
    elif not reader.end:
        found.append("it has no end: the service was killed, and up to a quarter of a second of its inputs is missing")
    if reader.head.version != (own := version("hbox-scheduler")):
        found.append(f"it was written by HBox {reader.head.version}, and this is {own}: another version may decide otherwise")
    return found
