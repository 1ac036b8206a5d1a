"""Knobs of queues and of what the policy gives a job: another queue, a higher limit or deserved amount, a higher PriorityClass, a shorter walltime."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, inf

from hbox_common.model import Job, PodGroupTask, Queue, QueueName, QueueTree, Resources, by_pool, is_offline, quantity
from hbox_common.model.annotations import QUEUE_NAME, WALLTIME
from hbox_common.model.devices import VENDORS
from hbox_common.model.explanation import Change, ChangeKind, Owner
from hbox_common.model.resources import CPU, EPHEMERAL, GIB, MEMORY, add

from ...cluster.reservations import Reservation
from .naming import MOST_VALUES, annotate, nearest, patch
from .search import Knob
from .trial import Trial

#: By resource, the unit in which limits are raised.
_UNITS: Mapping[str, int] = {CPU: 1000, MEMORY: GIB, EPHEMERAL: GIB}

#: PriorityClasses of Kubernetes' own pods.
_SYSTEM = "system-"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the policy decides by. `classes`: values of PriorityClasses; `reservations`: in force; `now`: seconds since the epoch."""

    queues: QueueTree
    classes: Mapping[str, int]
    reservations: Sequence[Reservation]
    now: float


def queue_knobs(job: Job, rules: Rules) -> Iterator[Knob]:
    """Another queue, limits, walltime; those that evict at the end."""
    yield from _queue(job, rules.queues)
    yield from _walltime(job, rules)
    yield from _limits(job, rules.queues)
    if not is_offline(job.priority_class):
        yield from _priority(job, rules)
        yield from _deserved(job, rules.queues)


def _queue(job: Job, tree: QueueTree) -> Iterator[Knob]:
    """Queues that take jobs of this namespace and class: those for the namespace by name first, then the siblings of the present one."""
    open_to = [
        name
        for name in tree
        if name != job.queue and not tree.refusal(name) and not tree.forbids(name, job.namespace, job.priority_class)
    ]
    own = tree.get(job.queue)

    def far(name: QueueName) -> tuple[bool, bool, str]:
        return job.namespace not in tree[name].namespaces, own is None or tree[name].parent != own.parent, name

    near = sorted(open_to, key=far)
    values = nearest(job.queue, near) if own is None else near[:MOST_VALUES]

    def change(step: int, _: object) -> Change:
        queue = values[step - 1]
        command = patch(job, f'"queue":"{queue}"') if job.gang else f"metadata.annotations[{QUEUE_NAME}]: {queue}"
        return Change(ChangeKind.QUEUE, Owner.USER, {"queue": queue, "of": job.queue}, command)

    yield Knob(
        len(values),
        lambda trial, step: replace(trial, job=replace(trial.job, queue=QueueName(values[step - 1]))),
        change,
        ordered=False,
    )


# Limits and deserved amounts.


class _Rule(StrEnum):
    """Which amount of a queue is raised, as `hbox queue set` names it."""

    CAPABILITY = "capability"
    DESERVED = "deserved"


def _needed(job: Job) -> Resources:
    """What the pods request that the gang still needs, the first ones."""
    left, needed = max(job.min_member - job.bound, 1), Resources()
    for task in job.tasks:
        pods = min(left, len(task.pods))
        add(needed, task.requests, pods)
        left -= pods
    return needed


def _limits(job: Job, tree: QueueTree) -> Iterator[Knob]:
    """A higher capability of the queue or of one above it, for each resource that it limits."""
    for name in tree.path(job.queue):
        if (queue := tree.get(name)) is not None:
            for resource in queue.capability:
                yield from _raised(_Rule.CAPABILITY, queue, resource, _needed(job), tree.used(name))


def _deserved(job: Job, tree: QueueTree) -> Iterator[Knob]:
    """A higher deserved amount of cards, by which the queue reclaims them from borrowers."""
    if (queue := tree.get(job.queue)) is not None:
        needed = _needed(job)
        for resource in sorted(needed):
            if resource in VENDORS:
                yield from _raised(_Rule.DESERVED, queue, resource, needed, tree.used(queue.name))


def _raised(rule: _Rule, queue: Queue, resource: str, needed: Resources, used: Mapping[str, int]) -> Iterator[Knob]:
    """The amount of the queue up to what it uses and the job needs."""
    amounts, evicts = (queue.capability, False) if rule is _Rule.CAPABILITY else (queue.deserved, True)
    asked = needed.get(by_pool(resource)[0], 0) or sum(
        needed.get(cards, 0) for cards in VENDORS.cards if resource.startswith(f"{cards}.")
    )
    unit, before = _UNITS.get(by_pool(resource)[0], 1), amounts.get(resource, 0)
    short = used.get(resource, 0) + asked - before
    if asked <= 0 or short <= 0:
        return

    def amount(step: int) -> int:
        return before + step * unit

    def turn(trial: Trial, step: int) -> Trial:
        raised = {**amounts, resource: amount(step)}
        changed = replace(queue, capability=raised) if rule is _Rule.CAPABILITY else replace(queue, deserved=raised)
        return replace(trial, queues=(*trial.queues, changed))

    def change(step: int, _: object) -> Change:
        text = quantity(resource, amount(step))
        facts = {
            "queue": queue.name,
            "rule": rule.value,
            "resource": resource,
            "amount": text,
            "of": quantity(resource, before),
            "more": quantity(resource, step * unit),
        }
        return Change(
            ChangeKind.LIMIT, Owner.QUEUE_ADMIN, facts, f"hbox queue set {queue.name} --{rule.value} {resource}={text}"
        )

    yield Knob(ceil(short / unit), turn, change, evicts=evicts, guess=ceil(short / unit))


# Priority.


def _priority(job: Job, rules: Rules) -> Iterator[Knob]:
    """A higher PriorityClass that the queue admits, by which the job preempts pods of its queue."""
    higher = sorted(
        (value, name)
        for name, value in rules.classes.items()
        if value > job.priority
        and not name.startswith(_SYSTEM)
        and not is_offline(name)
        and not rules.queues.forbids(job.queue, job.namespace, name)
    )

    def turn(trial: Trial, step: int) -> Trial:
        value, name = higher[step - 1]
        return replace(trial, job=replace(trial.job, priority=value, priority_class=name))

    def change(step: int, _: object) -> Change:
        value, name = higher[step - 1]
        command = patch(job, f'"priorityClassName":"{name}"') if job.gang else f"spec.priorityClassName: {name}"
        return Change(ChangeKind.PRIORITY, Owner.USER, {"class": name, "value": value, "of": job.priority_class}, command)

    yield Knob(len(higher), turn, change, evicts=True)


# Walltime.


def _walltime(job: Job, rules: Rules) -> Iterator[Knob]:
    """A walltime in minutes by which the job ends before a gang starts for which nodes are reserved."""
    starts = [one.start - rules.now for one in rules.reservations if rules.now < one.start < inf]
    if not starts:
        return
    most = ceil(max(starts) / 60) + 1

    def turn(trial: Trial, step: int) -> Trial:
        text = f"{most - step}m"

        def limited(task: PodGroupTask) -> PodGroupTask:
            return replace(task, annotations={**task.annotations, WALLTIME: text}) if WALLTIME in task.annotations else task

        return replace(
            trial,
            job=replace(
                trial.job,
                annotations={**trial.job.annotations, WALLTIME: text},
                tasks=tuple(limited(task) for task in trial.job.tasks),
            ),
        )

    def change(step: int, _: object) -> Change:
        text = f"{most - step}m"
        before = next((task.annotations[WALLTIME] for task in job.tasks if WALLTIME in task.annotations), None)
        facts = {"walltime": text, "of": before or job.annotations.get(WALLTIME, "")}
        return Change(ChangeKind.WALLTIME, Owner.USER, facts, annotate(job, f"{WALLTIME}={text}"))

    yield Knob(most - 1, turn, change, guess=most - int(max(starts) // 60))
