"""Faults in a queue's rules, as messages for their author. Volcano's admission webhook rejects most of them; here a contradictory rule is reported, and
interpreted so that no amount is guaranteed twice."""

from collections.abc import Container

from .cardmodels import is_model, model_of
from .devices import VENDORS
from .ids import QueueName
from .queue import Queue
from .queuetree import QueueTree
from .resources import PODS, Resources, add


def faults(tree: QueueTree, name: QueueName, models: Container[str] | None = None) -> tuple[str, ...]:
    """The queue's faults, worst first: rules that close it, rules that take effect differently than written, rules without effect. `models`: the cluster's card
    models, as resources; None = unknown."""
    queue = tree.of(name)
    if queue is None:
        return ()
    unknown = _unknown(queue, models) if models is not None else []
    own = (*queue.unknown_fields, *_own(queue), *_models(queue))
    return (*_closing(tree, queue), *own, *_above(tree, queue), *_below(tree, queue), *unknown)


def relative_faults(tree: QueueTree, name: QueueName) -> tuple[str, ...]:
    """The part of `faults` that depends on amounts of other queues, and on amounts of single card models."""
    queue = tree.of(name)
    return () if queue is None else (*_models(queue), *_above(tree, queue), *_below(tree, queue))


def _closing(tree: QueueTree, queue: Queue) -> list[str]:
    found = [f"{queue.fault}; it takes nothing until that is mended"] if queue.fault else []
    if circle := tree.circle(queue.name):
        found.append(f"its parents form a circle ({' -> '.join(circle)}); it takes nothing until that is mended")
    elif missing := [above for above in tree.path(queue.name)[1:] if tree.of(above) is None]:
        whose = "its parent" if queue.parent == missing[0] else "above it, queue"
        found.append(f"{whose} {missing[0]} does not exist; it takes nothing until that is mended")
    return found


def _own(queue: Queue) -> list[str]:
    found = [
        f"guarantee of {resource} ({units}) is above deserved ({queue.deserved[resource]}); the guarantee counts"
        for resource, units in queue.guarantee.items()
        if resource in queue.deserved and units > queue.deserved[resource]
    ]
    found += [
        f"{amount} of {resource} ({units}) is above capability ({queue.capability[resource]}); the capability counts"
        for amount, units_of in (("deserved", queue.deserved), ("guarantee", queue.guarantee))
        for resource, units in units_of.items()
        if resource in queue.capability and units > queue.capability[resource]
    ]
    return found


def _models(queue: Queue) -> list[str]:
    """Of one model more than of all cards together."""
    cases = (
        ("guarantee", queue.guarantee, "guarantee", queue.guarantee, "that of the model counts"),
        ("deserved", queue.deserved, "deserved", queue.deserved, "that of the model counts"),
        ("capability", queue.capability, "capability", queue.capability, "that of all cards counts too"),
        ("guarantee", queue.guarantee, "capability", queue.capability, "the capability counts"),
        ("deserved", queue.deserved, "capability", queue.capability, "the capability counts"),
    )
    return [
        f"{amount} of {resource} ({units}) is above {total} of {cards}, which is all models together ({totals[cards]}); {counts}"
        for amount, units_of, total, totals, counts in cases
        for cards, prefix in zip(VENDORS.cards, VENDORS.model_prefixes, strict=True)
        for resource, units in units_of.items()
        if cards in totals and resource.startswith(prefix) and is_model(resource) and units > totals[cards]
    ]


def _unknown(queue: Queue, models: Container[str]) -> list[str]:
    amounts = (("guarantee", queue.guarantee), ("deserved", queue.deserved), ("capability", queue.capability))
    return [
        f"{amount} of {resource}: no node has cards of model {model_of(resource)}"
        for amount, units_of in amounts
        for resource in units_of
        if is_model(resource) and resource not in models
    ]


def _above(tree: QueueTree, queue: Queue) -> list[str]:
    found = []
    amounts = (("deserved", queue.deserved), ("guarantee", queue.guarantee), ("capability", queue.capability))
    for amount, units_of in amounts:
        for resource, units in units_of.items():
            limits = [(one.capability[resource], one.name) for one in _ancestors(tree, queue) if resource in one.capability]
            if limits and units > min(limits)[0]:
                limit, above = min(limits)
                found.append(
                    f"{amount} of {resource} ({units}) is above the capability of queue {above} above it ({limit}); that one counts"
                )
    for one in _ancestors(tree, queue):
        if one.pools and (missing := [pool for pool in queue.pools if pool not in one.pools]):
            found.append(
                f"pool {missing[0]} is not among those of queue {one.name} above it ({', '.join(one.pools)}); it may not use it"
            )
            break
    return found


def _below(tree: QueueTree, queue: Queue) -> list[str]:
    children = [tree[name] for name in tree.children(queue.name)]
    found = []
    cases = (
        ("are guaranteed", "guarantee", "theirs counts"),
        ("deserve", "deserved", "its own counts against other departments"),
    )
    for verb, amount, counts in cases:
        own: Resources = getattr(queue, amount)
        together: Resources = {}
        for child in children:
            add(together, getattr(child, amount))
        found += [
            f"the queues right below it {verb} {together[resource]} {resource} together, itself {units}; {counts}"
            for resource, units in own.items()
            if together.get(resource, 0) > units
        ]
    if children and (pods := tree.own(queue.name).get(PODS, 0)):
        found.append(f"{pods} pods run in it that came before the queues below it; it takes no more")
    return found


def _ancestors(tree: QueueTree, queue: Queue) -> list[Queue]:
    return [one for name in tree.path(queue.name)[1:] if (one := tree.of(name)) is not None]
