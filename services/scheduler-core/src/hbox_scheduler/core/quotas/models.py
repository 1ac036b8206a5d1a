"""Limits of queues by card model.

A pod that names no model may get any: it is kept off models of which less is left than it requests, and is placed on another. As many such pods are placed at a
time as fit whichever of the other models they get. On a node with cards of several models each card counts by its own model; a model of which less is left than
a whole pod requests is not used for it at all, though on such a node a mixture might fit.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeAlias

from hbox_common.model import (
    VENDORS,
    QueueName,
    any_names_model,
    is_model,
    model_of,
)
from hbox_common.model.cardparts import cards_text, is_share, part_of_share
from hbox_common.model.devices.partitions import CARD
from hbox_common.model.rights import Blocking

from ..cluster.task import Task, kept_with_task
from ..devices import bounded_request

#: The limit that leaves the least of a model; None = no queue has one.
Nearest: TypeAlias = Callable[[str], Blocking[QueueName, str] | None]


def within_limits(task: Task, left: Mapping[str, int]) -> tuple[Task, int | None]:
    """The task kept from models of which too little is left, and how many such pods there is room for in any case (None = no limit). left: cards by model, of
    models that are limited."""
    if task.cards is None or not left:
        return task, None
    excluded, pods = [], None
    for model in concerned(task, left):
        room = left[model] // task.cards.count
        if room <= 0:
            excluded.append(model)
        else:
            pods = room if pods is None else min(pods, room)
    return (without_models(task, tuple(excluded)) if excluded else task), pods


def max_pods(task: Task, left: Mapping[str, int], present: Collection[str]) -> int | None:
    """The maximum number of such pods by the limits on card models; None = no limit. `left`: remaining cards by model; `present`: resources of the models that
    nodes have."""
    request = task.cards
    if request is None or not request.models:
        return None
    limited = [model for model in concerned(task, left) if is_model(model)]
    if not limited or any(model not in left for model in concerned(task, present)):
        return None
    return sum(left[model] // request.count for model in limited)


def limit_message(task: Task, queue: QueueName, left: Mapping[str, int], nearest: Nearest, nodes: int) -> str:
    """Text: which limits exclude such pods from how many nodes. `nearest` reports models and shares."""
    if task.cards is None:
        return ""
    parts = []
    for model in concerned(task, left):
        if left[model] < task.cards.count:
            found, name = nearest(model), "" if is_share(model) else model_of(model)
            if not name:
                parts.append(_share_message(model, task.cards.count, queue, found) if found is not None else "")
                continue
            if found is None or found.times >= task.cards.count:
                parts.append(f"cards of {name} are guaranteed to others, who could not have them back from queue {queue}")
                continue
            which = f"queue {queue}" if found.queue == queue else f"queue {found.queue}, above queue {queue},"
            cards = f"{found.limit} card{'s' * (found.limit != 1)}"
            if left[model] <= 0:
                parts.append(f"{which} is at its limit of {cards} of {name}")
            else:
                parts.append(f"{which} has {left[model]} left of its {cards} of {name}, and a pod asks for {task.cards.count}")
    parts = list(dict.fromkeys(filter(None, parts)))
    return f"{'; '.join(parts)}: {nodes} node{'s' * (nodes != 1)}" if parts else ""


def _share_message(share: str, units: int, queue: QueueName, found: Blocking[QueueName, str]) -> str:
    """The limit on cards, in parts of a card, that leaves too little for units of this share."""
    which = f"queue {queue}" if found.queue == queue else f"queue {found.queue}, above queue {queue},"
    cards, left = f"{cards_text(found.limit)} card{'s' * (found.limit != CARD)}", found.limit - found.used
    if left <= 0:
        return f"{which} is at its limit of {cards}"
    return f"{which} has {cards_text(left)} left of its {cards}, and a pod asks for {cards_text(units * part_of_share(share))}"


@kept_with_task
def without_models(task: Task, excluded: tuple[str, ...]) -> Task:
    """The task, on cards of other models than these."""
    assert task.cards is not None
    request = bounded_request(task.cards)
    return replace(task, cards=replace(request, excluded=tuple(dict.fromkeys((*request.excluded, *excluded)))))


def concerned(task: Task, models: Collection[str]) -> Collection[str]:
    """The models and shares that the task may use: its vendor's, and of its models the ones that it names."""
    request, vendor = task.cards, VENDORS.of(task.requests)
    if request is None or vendor is None:
        return ()
    own = [model for model in models if model.startswith((f"{vendor.cards}.", f"{vendor.cards}:"))]
    if not request.models:
        return own
    return [model for model in own if is_share(model) or any_names_model(request.models, model_of(model))]
