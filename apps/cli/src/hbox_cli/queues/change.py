"""A change of one queue's rules: the new spec, the dry-run request to the ledger, and the lines about its answer. Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model import POOLS, VENDORS, QueueName, capacity_units, is_model, model_of, named_models, parse_quantity
from hbox_common.model.annotations import (
    BUDGET,
    COOL_DOWN,
    LENT_POOLS,
    LENT_TO,
    NAMESPACES,
    NON_PREEMPTIBLE_CLASSES,
    POOL_AMOUNTS,
    PRIORITY_CLASSES,
    QUEUE_MIN_RUN_TIME,
    parse_names,
    parse_pool_amounts,
)
from hbox_common.model.minruntime import check_run_time
from hbox_ledger.dryrun import ChangedQueue, DryRunAnswer, FaultAnswer, ReclaimPreviewAnswer, VictimAnswer

AMOUNTS = ("guarantee", "deserved", "capability")
ANNOTATED = {
    "pools": POOLS,
    "namespaces": NAMESPACES,
    "priority_classes": PRIORITY_CLASSES,
    "non_preemptible_classes": NON_PREEMPTIBLE_CLASSES,
    "lent_pools": LENT_POOLS,
    "lent_to": LENT_TO,
}
RUN_TIMES = {"min_run_time": QUEUE_MIN_RUN_TIME, "cool_down": COOL_DOWN}
PLAIN = ("parent", "weight", "priority", "reclaimable")
#: Kubernetes' own, and qualified names.
_RESOURCE = re.compile(
    r"cpu|memory|pods|storage|ephemeral-storage|hugepages-[0-9A-Za-z]+|attachable-volumes-[a-z0-9-]+|[a-z0-9.-]+/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
)
SHOWN = 10  #: claims listed for one queue


@dataclass(frozen=True, slots=True)
class Change:
    """New rules of one queue: as they go into its spec, and as a queue. An amount of "" takes a resource out of the rules (null in the spec)."""

    name: QueueName
    spec: dict[str, Any]
    amounts: Mapping[str, Mapping[str, str]]
    annotations: Mapping[str, str | None] = field(default_factory=dict)  #: None takes one away

    @property
    def body(self) -> dict[str, Any]:
        """What to write of the object."""
        return {"spec": self.spec, **({"metadata": {"annotations": dict(self.annotations)}} if self.annotations else {})}

    def asked(self) -> ChangedQueue:
        """The change in a dry-run request to the ledger, without the budget: a budget evicts no pods."""
        rules: dict[str, Any] = {key: value for key, value in self.spec.items() if key in PLAIN}
        for amount, given in self.amounts.items():
            rules[amount] = {resource: quantity or None for resource, quantity in given.items()}
        for rule, annotation in ANNOTATED.items():
            if annotation in self.annotations:
                text = self.annotations[annotation]
                rules[rule] = parse_names(annotation, text) if text else ()
        if POOL_AMOUNTS in self.annotations:
            rules["pool_amounts"] = parse_pool_amounts(self.annotations[POOL_AMOUNTS] or "{}")
        return ChangedQueue(name=self.name, **rules)


def change_of(name: str, given: Mapping[str, Any]) -> Change:
    """From the options of a command. Raises InvalidRequest for what is no amount."""
    spec = {key: given[key] for key in PLAIN if given[key] is not None}
    amounts = {amount: _pairs(amount, given[amount]) for amount in AMOUNTS if given[amount]}
    for amount, pairs in amounts.items():
        quantities = {resource: quantity or None for resource, quantity in pairs.items()}
        spec[amount] = {"resource": quantities} if amount == "guarantee" else quantities
    annotations = {annotation: given[rule] or None for rule, annotation in ANNOTATED.items() if given.get(rule) is not None}
    for annotation, text in annotations.items():
        if text:
            parse_names(annotation, text)
    if (text := given.get("pool_amounts")) is not None:
        _judge_pool_amounts(text or "{}")
        annotations[POOL_AMOUNTS] = text or None
    return Change(QueueName(name), spec, amounts, annotations | _budget(given["budget"]) | _run_times(given))


def _judge_pool_amounts(text: str) -> None:
    for pool, shares in parse_pool_amounts(text).items():
        for share, quantities in shares.items():
            _pairs(f"pool-amounts {pool}: {share}", [f"{resource}={quantity}" for resource, quantity in quantities.items()])


def _budget(text: str | None) -> dict[str, str | None]:
    if text is None:
        return {}
    if text != "none" and not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise InvalidRequest(f"--budget {text}: write it as a whole number of card-hours, or none", hint="for example 1000")
    return {BUDGET: None if text == "none" else text}


def _run_times(given: Mapping[str, Any]) -> dict[str, str | None]:
    found = {name: given[option] or None for option, name in RUN_TIMES.items() if given.get(option) is not None}
    check_run_time({name: text for name, text in found.items() if text is not None})
    return found


def _pairs(amount: str, items: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        resource, equals, quantity = item.partition("=")
        if not resource or not equals:
            raise InvalidRequest(
                f"--{amount} {item}: write it as RESOURCE=AMOUNT", hint=f"for example {VENDORS.default.cards}=8"
            )
        if quantity and not _RESOURCE.fullmatch(resource):
            raise InvalidRequest(
                f"--{amount} {item}: no pod can ask for a resource {resource!r}",
                hint=f"those of devices have their vendor's name before them, for example {VENDORS.default.cards}=8",
            )
        if quantity and capacity_units(resource, quantity) < 0:
            raise InvalidRequest(f"--{amount} {item} is negative", hint=f"for example {VENDORS.default.cards}=8")
        if quantity and is_model(resource) and capacity_units(resource, quantity) != parse_quantity(quantity):
            raise InvalidRequest(f"--{amount} {item} is no whole number of cards", hint=f"for example {resource}=8")
        found[resource] = quantity
    return found


def unknown_models(change: Change, models: Collection[str]) -> list[str]:
    """Card models that the change names and no node has: no contradiction, and yet hardly meant. `models`: those of the cluster, as resources."""
    has = ", ".join(sorted(map(model_of, models))) or "unknown"
    named = named_models(*change.amounts.values())
    return [f"no node has cards of model {model_of(name)}; the cluster's models: {has}" for name in named if name not in models]


def document(name: str, answer: DryRunAnswer, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """For programs."""
    return {
        "name": name,
        "faults": [_fault(one) for one in answer.faults],
        "warnings": list(warnings),
        "giveBack": [_document(one) for one in answer.give_back],
        "overDeserved": [
            {"queue": one.queue, "resource": one.resource, "used": one.used, "deserved": one.limit, "more": one.more}
            for one in answer.over_deserved
        ],
        "overCapability": [
            {"queue": one.queue, "resource": one.resource, "used": one.used, "capability": one.limit}
            for one in answer.over_capability
        ],
    }


def effect_lines(answer: DryRunAnswer, warnings: Sequence[str] = ()) -> list[str]:
    """Lines about the effects; none if no claim is affected."""
    lines = [f"wrong: {_fault(one)}" for one in answer.faults] + [f"warning: {line}" for line in warnings]
    for one in answer.give_back:
        lines.append(f"queue {one.queue} may have to give back {one.units} of {one.resource}: {one.because}")
        lines += [_line(pod) for pod in one.leavers[:SHOWN]]
        if one.pods > len(one.leavers[:SHOWN]):
            lines.append(f"  and {one.pods - len(one.leavers[:SHOWN])} more pods")
        if not one.pods:
            lines.append("  and nothing in it may be taken")
    for wall in answer.over_capability:
        line = f"queue {wall.queue} uses {wall.used} of {wall.resource}, more than {wall.limit}"
        lines.append(f"{line}: nothing is evicted, nothing new starts until it uses less")
    return lines


def _fault(one: FaultAnswer) -> str:
    return f"queue {one.queue}: {one.fault}"


def _document(one: ReclaimPreviewAnswer) -> dict[str, Any]:
    claims = [
        {
            "pod": f"{pod.namespace}/{pod.pod}",
            "job": pod.job,
            "queue": pod.queue,
            "priority": pod.priority,
            "node": pod.node,
            "units": pod.units,
        }
        for pod in one.leavers
    ]
    return {
        "queue": one.queue,
        "to": one.to,
        "resource": one.resource,
        "units": one.units,
        "takable": one.takable,
        "because": one.because,
        "pods": one.pods,
        "claims": claims,
    }


def _line(pod: VictimAnswer) -> str:
    return f"  {pod.namespace}/{pod.pod}  queue {pod.queue}  priority {pod.priority}  {pod.units} on {pod.node}"
