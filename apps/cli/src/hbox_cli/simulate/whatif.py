"""A record's work under another policy, as a document."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import read_file
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.default import PolicyName, default_conf
from hbox_scheduler.core.policy.inputs import check_inputs
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.record.record import Head, Reader
from hbox_scheduler.core.record.replay import begins
from hbox_scheduler.core.simulate.comparison import Comparison, FirstDifference, Waits, compared
from hbox_scheduler.core.simulate.whatif import WhatIf
from hbox_scheduler.core.simulate.workload import Workload, timed

from .replays import opened, warnings_of
from .runs import Runs

#: In place of a file: the policy of the record itself, by which one sees what the method alone makes different.
RECORDED = "recorded"


def what_if(path: Path, policy: str) -> dict[str, Any]:
    """What another policy would have done with a record's work, for `-o json`. `policy`: a volcano-scheduler.conf, or the name of one of HBox's own, or
    `RECORDED`. Raises InvalidRequest where the record or the policy cannot be read, or the record does not begin with its service."""
    whole = 2 * max(1, path.stat().st_size) if path.exists() else 1
    workload = Workload()
    with Runs(whole, "bytes") as tick:
        with _reading(path, tick) as reader:
            head = reader.head
            other = _head_of(head, policy)
            for at, call in timed(begins(reader.calls())):
                workload.take(at, call)
            workload.close()
            warnings = warnings_of(reader)
        run = WhatIf(other, workload, follows=policy == RECORDED)
        with _reading(path, tick) as reader:
            run.run(reader.calls())
    return _document(path, head, policy, compared(workload, run), warnings)


@contextmanager
def _reading(path: Path, tick: Callable[[int], None]) -> Iterator[Reader]:
    """A reader from the start of the file. At its end `tick` receives the number of bytes read."""
    with opened(path) as file:
        reader = Reader(file, str(path))
        yield reader
        tick(reader.read + reader.torn)


def _head_of(head: Head, policy: str) -> Head:
    """How the scheduler is made under the policy."""
    if policy == RECORDED:
        return head
    if policy in list(PolicyName):
        return replace(head, conf=default_conf(PolicyName(policy)))
    try:
        conf = parse_conf(read_file(Path(policy)).decode(), plugins=tuple(PLUGINS))
        check_inputs(conf)
    except UnicodeError as e:
        raise InvalidRequest(f"{policy}: it is not UTF-8", hint="name a volcano-scheduler.conf with --policy") from e
    except InvalidRequest as e:
        raise InvalidRequest(
            f"the policy {policy}: {e.message}", hint=e.hint or f"name a file, {', '.join(PolicyName)} or {RECORDED}"
        ) from e
    return replace(head, conf=conf)


def _document(path: Path, head: Head, policy: str, found: Comparison, warnings: list[str]) -> dict[str, Any]:
    return {
        "record": str(path),
        "version": head.version,
        "scheduler": head.scheduler,
        "policies": {
            "recorded": next((name.value for name in PolicyName if head.conf == default_conf(name)), "a file"),
            "other": policy,
        },
        "seconds": round(found.seconds, 3),
        "pods": {
            "alike": found.same_node,
            "elsewhere": found.elsewhere,
            "byRecordAlone": found.by_record_alone,
            "byOtherAlone": found.by_other_alone,
            "neither": found.neither,
        },
        "first": None if found.first is None else _first(found.first),
        "jobs": {"byRecordAlone": list(found.jobs_by_record_alone), "byOtherAlone": list(found.jobs_by_other_alone)},
        "queues": {
            name: {"jobs": waits.jobs, "recorded": _waits(waits.recorded), "other": _waits(waits.other)}
            for name, waits in found.queues.items()
        },
        "allocation": {"cards": _sides(found.cards), "cores": _sides(found.cores)},
        "evictions": {"recorded": found.evictions[0], "other": found.evictions[1]},
        "assumed": {"cutShort": found.cut_short, "outside": found.outside, "lostWithNodes": found.lost},
        "warnings": [*warnings, *_doubts(found)],
    }


def _first(first: FirstDifference) -> dict[str, Any]:
    return {
        "job": first.job,
        "pod": first.pod,
        "recorded": _place(first.recorded_node, first.recorded_at),
        "other": _place(first.other_node, first.other_at),
    }


def _place(node: str, at: float | None) -> dict[str, Any] | None:
    return None if at is None else {"node": node, "seconds": round(at, 3)}


def _waits(waits: Waits) -> dict[str, Any]:
    return {
        "meanSeconds": round(waits.mean_s, 3),
        "p90Seconds": round(waits.p90_s, 3),
        "longestSeconds": round(waits.longest_s, 3),
        "waiting": waits.waiting,
    }


def _sides(parts: tuple[float, float] | None) -> dict[str, float] | None:
    return None if parts is None else {"recorded": round(parts[0], 4), "other": round(parts[1], 4)}


def _doubts(found: Comparison) -> list[str]:
    doubts = []
    if found.cut_short:
        doubts.append(
            f"{found.cut_short} pods were evicted or lost on record, and their full run times are unknown: they run until the record ends"
        )
    if found.unanswered:
        doubts.append(f"{found.unanswered} questions of plugins have no answer on record")
    return doubts
