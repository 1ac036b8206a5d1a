"""Suspects of an error: the jobs and nodes in use where it arose, by the variables of the traceback's frames.

Nothing is recorded in advance, so the search costs nothing until something fails. A suspect may be wrong: a variable may be left from a loop that has ended.
`quarantine` decides by several faults.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from traceback import walk_tb
from typing import Any, NamedTuple

from hbox_common.events import Plan
from hbox_common.model import Job, NodeState, NodeZones

from ..core.cluster.entities import Gang, Member, SubGang
from ..core.placement.gangs import job_of
from ..core.queueing.jobs import Entry

#: A variable of this name that is an integer is a node's row in the columns, all over `core`.
_ROW = "row"


class Kind(StrEnum):
    """What can be put in quarantine."""

    JOB = "job"
    NAMESPACE = "namespace"  #: all jobs in it
    NODE = "node"


class Suspect(NamedTuple):
    """`name`: a job's id, or the name of the others. `label`: as people know it. `namespace`: of a job."""

    kind: Kind
    name: str
    label: str
    namespace: str = ""


def suspects(error: BaseException, states: Sequence[NodeState | None]) -> tuple[Suspect, ...]:
    """Those nearest to where the error arose come first, each once. `states`: of nodes, by row."""
    found: dict[Suspect, None] = {}
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        for name, value in reversed(frame.f_locals.items()):  # the latest variable is the last
            found |= dict.fromkeys(_of(name, value, states))
    return tuple(found)


def place_of(error: BaseException) -> str:
    """Where the error arose: "file.py:line"."""
    places = [place_in(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    return places[-1] if places else "nowhere"


def place_in(file: str, line: int) -> str:
    """As people name a line of a file."""
    return f"{file.rpartition('/')[2]}:{line}"


def _of(name: str, value: Any, states: Sequence[NodeState | None]) -> Iterator[Suspect]:
    match value:
        case Member(gang=Gang() as gang) | SubGang(gang=Gang() as gang) | (Gang() as gang):
            yield Suspect(Kind.JOB, job_of(gang.id), f"{gang.namespace}/{gang.name}", gang.namespace)
        case Entry(job=Job() as job) | (Job() as job):
            yield Suspect(Kind.JOB, job.id, f"{job.namespace}/{job.name}", job.namespace)
        case Plan():
            yield Suspect(Kind.JOB, value.job, f"{value.namespace}/{value.name}", value.namespace)
        case NodeState():
            yield Suspect(Kind.NODE, value.name, value.name)
        case NodeZones():
            yield Suspect(Kind.NODE, value.node, value.node)
        case int() if name == _ROW and 0 <= value < len(states) and (state := states[value]) is not None:
            yield Suspect(Kind.NODE, state.name, state.name)
