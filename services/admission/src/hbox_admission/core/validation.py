"""What is wrong with a new or changed Queue or PodGroup.

Only an object under which HBox never schedules anything is refused: an unreadable amount, a queue that is its own ancestor. All else is a warning, because
Volcano accepts the object, because HBox gives the contradiction a meaning, or because the missing object may follow in the same `kubectl apply`.
A PodGroup that a controller owns is never refused: its controller would repeat the request without end and without a reader (ADR 68); its pods get the same
text as their reason. A fault that the stored object has already is not refused again, so that its other fields can be changed.

Each message names the field, its value, and the value to write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice

from hbox_common.model import DEFAULT_QUEUE, Queue, QueueName, QueuePhase, QueueTree, relative_faults
from hbox_common.model.bounds import sanitized
from hbox_common.model.queuetree import ROOT_QUEUE

#: Queues that a message lists.
MOST_NAMED = 4
#: Names of queues that are compared with a name that does not exist.
MOST_COMPARED = 50

#: By share: the field of a Queue's spec.
FIELDS = {"guarantee": "spec.guarantee.resource", "deserved": "spec.deserved", "capability": "spec.capability"}
#: A share, one that has to be at least as much, and which of them counts otherwise.
_ORDER = (
    ("guarantee", "deserved", "the guarantee counts"),
    ("guarantee", "capability", "the capability counts"),
    ("deserved", "capability", "the capability counts"),
)


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """A Queue of a request. `queue`: None if its rules cannot be read, for the reason `fault`; `written`: its amounts as written, by share and resource."""

    name: QueueName
    parent: str = ""
    queue: Queue | None = None
    fault: str = ""
    written: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unknown_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A PodGroup of a request. `fault`: why HBox would not schedule it; `owned`: a controller made it."""

    namespace: str
    queue: QueueName = QueueName("")
    priority_class: str = ""
    fault: str = ""
    min_member: int = 0
    min_task_member: Mapping[str, int] = field(default_factory=dict)
    unknown_fields: tuple[str, ...] = ()
    owned: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def since(self, before: "Judgement") -> "Judgement":
        """The judgement of a change of an object that was judged so before: what it had already is no reason to refuse the change."""
        new = tuple(text for text in self.refusals if text not in before.refusals)
        return Judgement(new, (*(text for text in self.refusals if text in before.refusals), *self.warnings))


def judge_queue(asked: QueueRequest, queues: Mapping[QueueName, Queue] | None) -> Judgement:
    """`queues`: those that exist; None = unknown, and other queues are not checked."""
    refusals = [f"{asked.fault}; the queue takes nothing until that is corrected"] if asked.fault else []
    warnings: list[str] = []
    if asked.name and asked.parent == asked.name:
        refusals.append(_cycle(asked.parent, (asked.name, asked.name)))
    elif queues is not None:
        above = _ancestors(asked, queues)
        if asked.name and above[-1] == asked.name:
            refusals.append(_cycle(asked.parent, (asked.name, *above)))
        elif (missing := above[-1]) not in queues and missing not in ("", ROOT_QUEUE):
            where = (
                f"spec.parent is {missing!r}"
                if missing == asked.parent
                else f"spec.parent is {asked.parent!r}, below {missing!r}"
            )
            warnings.append(
                f"{where}, which does not exist: the queue takes nothing until it does; create it, or write "
                + f"parent: {_near(missing, queues) or ROOT_QUEUE}"
            )
        if asked.queue is not None and not refusals:
            warnings += relative_faults(_around(asked.queue, above, queues), asked.name)
    if asked.queue is not None:
        warnings = [*_contradictions(asked.queue, asked.written), *warnings]
    return Judgement(tuple(refusals), (*warnings, *asked.unknown_fields))


def judge_group(asked: GroupRequest, queues: Mapping[QueueName, Queue] | None) -> Judgement:
    warnings = []
    together = sum(asked.min_task_member.values())
    if asked.min_member < together:
        warnings.append(
            f"spec.minMember is {asked.min_member}, below the {together} pods of spec.minTaskMember, whose minima by role then do not count: "
            f"write minMember: {together}"
        )
    if queues is not None:
        warnings += _queue_of_group(asked, queues)
    warnings += asked.unknown_fields
    if asked.fault and asked.owned:
        return Judgement((), (f"{asked.fault}; its pods wait until that is corrected", *warnings))
    return Judgement((f"{asked.fault}; its pods would never be scheduled",) if asked.fault else (), tuple(warnings))


def _cycle(parent: str, names: Sequence[str]) -> str:
    return (
        f"spec.parent is {parent!r}, and the parents form a cycle ({' -> '.join(names)}), in which no queue takes anything: "
        f"write a parent outside of it, or parent: {ROOT_QUEUE}"
    )


def _ancestors(asked: QueueRequest, queues: Mapping[QueueName, Queue]) -> list[QueueName]:
    """Names of the queues above it, upwards. The last one is the queue itself if it is its own ancestor, a name without a queue, or one seen before."""
    found: list[QueueName] = []
    name = QueueName(asked.parent)
    while name and name not in found:
        found.append(name)
        if name in (asked.name, ROOT_QUEUE) or name not in queues:
            break
        name = QueueName(queues[name].parent)
    return found or [QueueName("")]


def _around(queue: Queue, above: Sequence[QueueName], queues: Mapping[QueueName, Queue]) -> QueueTree:
    """The queue as it is to be, the queues above it and those right below it."""
    tree = QueueTree({})
    tree[queue.name] = queue
    for name in above:
        if name in queues and name != queue.name:
            tree[name] = queues[name]
    for one in queues.values():
        if one.parent == queue.name and one.name not in tree:
            tree[one.name] = one
    return tree


def _contradictions(queue: Queue, written: Mapping[str, Mapping[str, str]]) -> list[str]:
    units = {"guarantee": queue.guarantee, "deserved": queue.deserved, "capability": queue.capability}
    found = []
    for less, more, counts in _ORDER:
        for resource, amount in units[less].items():
            if resource in units[more] and amount > units[more][resource]:
                here, limit = (written.get(share, {}).get(resource, "?") for share in (less, more))
                found.append(
                    f"{FIELDS[less]}: {resource} is {here}, above {FIELDS[more]} ({limit}); {counts}: "
                    f"write at most {limit} in {less}, or at least {here} in {more}"
                )
    return found


def _queue_of_group(asked: GroupRequest, queues: Mapping[QueueName, Queue]) -> list[str]:
    name = asked.queue or DEFAULT_QUEUE
    if name == DEFAULT_QUEUE and name not in queues:
        return []  # it is there without an object
    if name == ROOT_QUEUE:
        return [f"spec.queue is {name!r}, which takes no pods: write the name of a queue below it"]
    queue = queues.get(name)
    if queue is None:
        return [
            f"spec.queue is {name!r}, which does not exist: the gang waits until it does; create it, or write "
            + f"queue: {_near(name, queues) or DEFAULT_QUEUE}"
        ]
    below = sorted(one.name for one in queues.values() if one.parent == name)
    if below:
        return [f"spec.queue is {name!r}, which takes no pods because queues are below it: write {_some(below)}"]
    if queue.phase is not QueuePhase.OPEN:
        return [f"spec.queue is {name!r}, which is closed: the gang waits until it is open, or write another queue"]
    tree = QueueTree({})
    for each in (name, *_ancestors(QueueRequest(name, queue.parent), queues)):
        if each in queues:
            tree[each] = queues[each]
    refusal = tree.forbids(name, asked.namespace, asked.priority_class or None)
    return [f"spec.queue is {name!r}: {refusal.message}"] if refusal is not None else []


def _near(name: str, queues: Mapping[QueueName, Queue]) -> str:
    """The queue with a similar name, or empty if there is none. Only MOST_COMPARED names of the same first letter are compared: a comparison takes up to a
    millisecond, and the endpoint answers no other request meanwhile."""
    similar = (one for one in queues if one[:1] == name[:1] and abs(len(one) - len(name)) <= 3 and len(one) <= 64)
    close = get_close_matches(name[:64], list(islice(similar, MOST_COMPARED)), n=1)
    return close[0] if close else ""


def _some(names: Sequence[str]) -> str:
    more = f" or one of {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return sanitized(" or ".join(names[:MOST_NAMED]), 256) + more
