"""Knobs of the job's own fields: its pods, what each of them requests, and where they may be."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hbox_common.model import Job, PodGroupTask, Resources, TopologyMode, any_names_model, is_host_port, quantity
from hbox_common.model.annotations import KAI_PREFERRED, KAI_REQUIRED, KUEUE_PREFERRED, KUEUE_REQUIRED, NETWORK_TOPOLOGY
from hbox_common.model.devices import VENDORS, CardRequest
from hbox_common.model.explanation import Change, ChangeKind, Fact, Owner
from hbox_common.model.resources import CPU, EPHEMERAL, GIB, MEMORY, MIB, PODS

from ...cluster import Columns
from ...cluster.arrays import Bools
from .naming import annotate, nearest, patch
from .search import Knob
from .trial import Trial

#: By resource, the steps in which a request is lowered: the first of which it has at least two.
_UNITS: Mapping[str, Sequence[int]] = {CPU: (1000, 100), MEMORY: (GIB, 64 * MIB), EPHEMERAL: (GIB, 64 * MIB)}

#: An annotation that requires a topology level, and the one that prefers it.
_SOFTENED = {KUEUE_REQUIRED: KUEUE_PREFERRED, KAI_REQUIRED: KAI_PREFERRED}


@dataclass(frozen=True, slots=True)
class Tier:
    """A tier of the fabric."""

    number: int
    name: str = ""


def job_knobs(job: Job, columns: Columns, tiers: Sequence[Tier], short: int) -> Iterator[Knob]:
    """`tiers`: of the fabric, the lowest first; `short`: pods that the gang lacks; 0 = unknown."""
    yield from _topology(job, tiers)
    yield from _pods(job, short)
    yield from _cards(job, columns)
    yield from _card_memory(job, columns)
    yield from _models(job, columns)
    yield from _selectors(job, columns)
    yield from _resources(job, columns)


def _change(kind: ChangeKind, command: str, **facts: Fact) -> Change:
    return Change(kind, Owner.USER, facts, command)


def _with_job(trial: Trial, **changes: object) -> Trial:
    return replace(trial, job=replace(trial.job, **changes))  # type: ignore[arg-type]


def _with_tasks(trial: Trial, turn: Callable[[PodGroupTask], PodGroupTask]) -> Trial:
    return _with_job(trial, tasks=tuple(turn(task) for task in trial.job.tasks))


# Pods.


def _pods(job: Job, short: int) -> Iterator[Knob]:
    """A lower minMember, down to one more pod than has a node."""
    most = job.min_member
    steps = most - job.bound - 1
    if not job.gang or steps < 1 or job.min_task_member or job.sub_gangs:
        return
    yield Knob(
        steps,
        lambda trial, step: _with_job(trial, min_member=most - step),
        lambda step, _: _change(ChangeKind.PODS, patch(job, f'"minMember":{most - step}'), pods=most - step, of=most),
        guess=short,
    )


# What each pod requests.


def _cards(job: Job, columns: Columns) -> Iterator[Knob]:
    """Fewer cards of each pod."""
    asking = [task for task in job.tasks if task.cards is not None]
    most = max((task.cards.count for task in asking if task.cards is not None), default=0)
    if most < 2 or any(_card_resource(task) is None for task in asking):
        return
    resource = _card_resource(asking[0])
    yield Knob(
        most - 1,
        lambda trial, step: _with_tasks(trial, lambda task: _with_cards(task, most - step)),
        lambda step, _: _change(ChangeKind.CARDS, f"resources.limits[{resource}]: {most - step}", cards=most - step, of=most),
        guess=max(most - _most_free_cards(columns), 0),
    )


def _most_free_cards(columns: Columns) -> int:
    """Unused cards of the node that has most of them."""
    size = columns.size
    unused = (columns.card_pods[:size] == 0) & columns.card_ok[:size]
    return int(unused.sum(axis=1)[_usable(columns)].max(initial=0))


def _usable(columns: Columns) -> Bools:
    """`[N]`: nodes that take pods."""
    return (columns.alive & columns.ready & columns.schedulable & columns.healthy)[: columns.size]


def _card_resource(task: PodGroupTask) -> str | None:
    """The resource that counts the task's cards, if one container asks for all of them."""
    vendor, request = VENDORS.of(task.requests), task.cards
    if vendor is None or request is None or task.requests.get(vendor.cards) != request.count:
        return None
    asks = request.devices.asks if request.devices is not None else ()
    if len(asks) > 1 or any(ask.count != request.count for ask in asks):
        return None
    return vendor.cards


def _with_cards(task: PodGroupTask, count: int) -> PodGroupTask:
    """With at most so many cards in each pod."""
    request, resource = task.cards, _card_resource(task)
    if request is None or resource is None or request.count <= count:
        return task
    before, devices = request.count, request.devices
    if devices is not None:
        devices = replace(devices, asks=tuple(replace(ask, count=count) for ask in devices.asks))

    def fewer(amounts: Resources) -> Resources:
        return {**amounts, resource: count} if amounts.get(resource) == before else amounts

    return replace(
        task,
        requests=fewer(task.requests),
        cards=replace(request, count=count, devices=devices),
        containers=tuple(fewer(one) for one in task.containers),
        init_containers=tuple(fewer(one) for one in task.init_containers),
    )


def _card_memory(job: Job, columns: Columns) -> Iterator[Knob]:
    """Less memory of each card, in MiB."""
    requests = [task.cards for task in job.tasks if task.cards is not None]
    most = max((one.memory_mib for one in requests if not one.whole), default=0)
    vendor = next((vendor for task in job.tasks if (vendor := VENDORS.of(task.requests)) is not None), VENDORS.default)
    if most < 2 or not vendor.memory:
        return
    yield Knob(
        most - 1,
        lambda trial, step: _with_tasks(trial, lambda task: _with_card_memory(task, most - step)),
        lambda step, _: _change(
            ChangeKind.RESOURCES,
            f"resources.limits[{vendor.memory}]: {most - step}",
            resource=vendor.memory,
            amount=str(most - step),
            of=str(most),
        ),
        guess=max(most - _largest_free_memory(columns), 0),
    )


def _with_card_memory(task: PodGroupTask, mib: int) -> PodGroupTask:
    """With at most so much memory of each card."""
    request = task.cards
    if request is None or request.whole or request.memory_mib <= mib:
        return task
    devices = request.devices
    if devices is not None:
        devices = replace(devices, asks=tuple(replace(ask, memory_mib=min(ask.memory_mib, mib)) for ask in devices.asks))
    return replace(task, cards=replace(request, memory_mib=mib, devices=devices))


def _largest_free_memory(columns: Columns) -> int:
    """MiB: the most that a card has free."""
    size = columns.size
    free = columns.card_memory[:size] - columns.card_memory_used[:size]
    return int(free[_usable(columns)[:, None] & columns.card_ok[:size]].max(initial=0))


def _resources(job: Job, columns: Columns) -> Iterator[Knob]:
    """Less of another resource in each pod."""
    counted = {PODS, *VENDORS.cards, *(part for vendor in VENDORS for part in vendor.parts)}
    names = dict.fromkeys(name for task in job.tasks for name, units in task.requests.items() if units > 0)
    for name in names:
        if name in counted or is_host_port(name) or any(name.startswith(f"{cards}.") for cards in VENDORS.cards):
            continue
        most = max(task.requests.get(name, 0) for task in job.tasks)
        if (knob := _resource(name, most, _largest_free(columns, name))) is not None:
            yield knob


def _resource(name: str, most: int, free: int) -> Knob | None:
    unit = next((unit for unit in _UNITS.get(name, ()) if most >= 2 * unit), 1)
    whole = -(-most // unit)

    def turn(trial: Trial, step: int) -> Trial:
        return _with_tasks(trial, lambda task: _with_less(task, name, (whole - step) * unit))

    def change(step: int, _: object) -> Change:
        amount = quantity(name, (whole - step) * unit)
        return _change(
            ChangeKind.RESOURCES, f"resources.requests[{name}]: {amount}", resource=name, amount=amount, of=quantity(name, most)
        )

    return Knob(whole - 1, turn, change, guess=max(whole - free // unit, 0)) if whole > 1 else None


def _with_less(task: PodGroupTask, name: str, units: int) -> PodGroupTask:
    """With at most so much of the resource in each pod; of several containers the one with the most gives way."""
    excess = task.requests.get(name, 0) - units
    if excess <= 0:
        return task
    containers = list(task.containers)
    if containers:
        at = max(range(len(containers)), key=lambda number: containers[number].get(name, 0))
        containers[at] = {**containers[at], name: max(containers[at].get(name, 0) - excess, 0)}
    return replace(task, requests={**task.requests, name: units}, containers=tuple(containers))


def _largest_free(columns: Columns, name: str) -> int:
    """The largest amount that a node has free."""
    column = columns.resources.get(name)
    if column is None or not columns.size:
        return 0
    free = columns.allocatable[column, : columns.size] - columns.used[column, : columns.size]
    return int(free[_usable(columns)].max(initial=0))


# Card models.


def _models(job: Job, columns: Columns) -> Iterator[Knob]:
    """Another model in place of those that the pods name, the most similar name first, then the model on most nodes."""
    named = [name for task in job.tasks if task.cards is not None for name in _models_of(task.cards)]
    if not named:
        return
    nodes = {name: count for name, count in _nodes_by_model(columns).items() if not any_names_model(named, name)}
    often = sorted(nodes, key=lambda name: (-nodes[name], name))
    values = nearest(named[0], often)
    annotation = next((a for task in job.tasks for a in _annotations_of(task)), VENDORS.default.models_annotation)

    def change(step: int, _: object) -> Change:
        model = values[step - 1]
        return _change(
            ChangeKind.MODEL,
            f"metadata.annotations[{annotation}]: {model}",
            model=model,
            of=",".join(dict.fromkeys(named)),
            nodes=nodes[model],
        )

    def turn(trial: Trial, step: int) -> Trial:
        return _with_tasks(trial, lambda task: _with_model(task, values[step - 1]))

    yield Knob(len(values), turn, change, ordered=False)


def _models_of(request: CardRequest) -> Sequence[str]:
    if request.models or request.devices is None:
        return request.models
    wished = request.devices.wished
    return [name for key in VENDORS.models_annotations for name in wished.get(key, "").split(",") if name.strip()]


def _annotations_of(task: PodGroupTask) -> Iterator[str]:
    """The annotation that names models of the vendor whose cards the task asks for."""
    vendor = VENDORS.of(task.requests)
    if vendor is not None and vendor.models_annotation:
        yield vendor.models_annotation


def _with_model(task: PodGroupTask, model: str) -> PodGroupTask:
    request = task.cards
    if request is None or not _models_of(request):
        return task
    devices = request.devices
    if devices is not None:
        wishes = tuple((key, model if key in VENDORS.models_annotations else value) for key, value in devices.wishes)
        devices = replace(devices, wishes=wishes)
    return replace(task, cards=replace(request, models=(model,) if request.models else (), devices=devices))


def _nodes_by_model(columns: Columns) -> dict[str, int]:
    rows = columns.alive[: columns.size]
    codes = np.where(columns.card_index[: columns.size] >= 0, columns.card_model[: columns.size], 0)[rows]
    found: dict[str, int] = {}
    for code in np.unique(codes).tolist():
        if name := columns.model_names[code]:
            found[name] = found.get(name, 0) + int((codes == code).any(axis=1).sum())
    return found


# Labels of nodes.


def _selectors(job: Job, columns: Columns) -> Iterator[Knob]:
    """Another value for a key of the node selector, or none; no required node affinity."""
    keys = dict.fromkeys((key, value) for task in job.tasks for key, value in task.node_selector.items())
    for key, value in keys:
        column = columns.descriptions.column(key)
        counts = np.bincount(column.codes[: columns.size][columns.alive[: columns.size]], minlength=len(column.values))
        there = [name for code, name in enumerate(column.values) if name and counts[code] and name != value]
        values = nearest(value, sorted(there, key=lambda name: (-int(counts[column.values.index(name)]), name)))
        if values:
            yield _selector(key, value, values)
        yield _selector(key, value, ("",))
    if any(task.affinity for task in job.tasks):
        yield Knob(
            1,
            lambda trial, _: _with_tasks(trial, lambda task: replace(task, affinity=None)),
            lambda _, __: _change(
                ChangeKind.SELECTOR, "remove spec.affinity.nodeAffinity", key="nodeAffinity", value="", of=""
            ),
        )


def _selector(key: str, before: str, values: Sequence[str]) -> Knob:
    """`values`: "" = without the key."""

    def select(task: PodGroupTask, value: str) -> PodGroupTask:
        if task.node_selector.get(key) != before:
            return task
        others = {name: kept for name, kept in task.node_selector.items() if name != key}
        return replace(task, node_selector={**others, key: value} if value else others)

    def change(step: int, _: object) -> Change:
        value = values[step - 1]
        command = f"spec.nodeSelector[{key}]: {value}" if value else f"remove spec.nodeSelector[{key}]"
        return _change(ChangeKind.SELECTOR, command, key=key, value=value, of=before)

    def turn(trial: Trial, step: int) -> Trial:
        return _with_tasks(trial, lambda task: select(task, values[step - 1]))

    return Knob(len(values), turn, change, ordered=False)


# The fabric.


def _topology(job: Job, tiers: Sequence[Tier]) -> Iterator[Knob]:
    """A wider domain, or one that is preferred instead of required."""
    wish = job.topology
    hard = wish is not None and wish.mode is TopologyMode.HARD
    numbers = sorted({tier.number for tier in tiers})
    if wish is not None and hard and numbers:
        named = [tier.number for tier in tiers if tier.name == wish.highest_tier_name]
        before = wish.highest_tier if wish.highest_tier is not None else max(named, default=numbers[-1])
        if wider := [number for number in numbers if number > before]:
            yield Knob(
                len(wider),
                lambda trial, step: _with_job(
                    trial, topology=replace(wish, highest_tier=wider[step - 1], highest_tier_name="")
                ),
                lambda step, _: _change(
                    ChangeKind.TIER,
                    patch(job, f'"networkTopology":{{"highestTierAllowed":{wider[step - 1]}}}'),
                    mode="hard",
                    tier=wider[step - 1],
                    of=before,
                ),
            )
    softened = _softened(job.annotations)
    if not hard and softened is None:
        return

    def soft(trial: Trial, _: int) -> Trial:
        found = trial if softened is None else _with_job(trial, annotations=softened[1])
        return _with_job(found, topology=replace(wish, mode=TopologyMode.SOFT)) if wish is not None and hard else found

    command = annotate(job, softened[0]) if softened is not None else patch(job, '"networkTopology":{"mode":"soft"}')
    yield Knob(1, soft, lambda _, __: _change(ChangeKind.TIER, command, mode="soft", tier=0, of=0))


def _softened(annotations: Mapping[str, str]) -> tuple[str, dict[str, str]] | None:
    """The arguments of `kubectl annotate` that make a required level a preferred one, and the annotations after it; None: they require none."""
    if annotations.get(NETWORK_TOPOLOGY) == "singleSwitch":
        return f"{NETWORK_TOPOLOGY}=bestEffort", {**annotations, NETWORK_TOPOLOGY: "bestEffort"}
    for required, preferred in _SOFTENED.items():
        if required in annotations:
            level = annotations[required]
            others = {key: value for key, value in annotations.items() if key != required}
            return f"{required}- {preferred}={level}", {**others, preferred: level}
    return None
