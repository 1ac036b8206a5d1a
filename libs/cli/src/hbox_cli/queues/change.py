"""A change of one queue's rules: what goes into its spec, what the tree would be with it, and what that would do to others. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model import (
    POOLS,
    ROOT_QUEUE,
    Claim,
    Queue,
    QueueName,
    QueueTree,
    Resources,
    capacity_units,
    faults,
)
from hbox_common.model.annotations import BUDGET, NAMESPACES, parse_names

from .giveback import GiveBack, give_back

AMOUNTS = ("guarantee", "deserved", "capability")
ANNOTATED = {"pools": POOLS, "namespaces": NAMESPACES}
PLAIN = ("parent", "weight", "priority", "reclaimable")
SHOWN = 10  #: claims told of one queue


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

    def of(self, queue: Queue) -> Queue:
        plain = {key: value for key, value in self.spec.items() if key in PLAIN}
        changed: dict[str, Any] = {amount: _changed(getattr(queue, amount), given) for amount, given in self.amounts.items()}
        if plain.get("parent") == ROOT_QUEUE:
            plain["parent"] = ""
        for rule, annotation in ANNOTATED.items():
            if annotation in self.annotations:
                text = self.annotations[annotation]
                changed[rule] = parse_names(annotation, text) if text else ()
        return replace(queue, fault="", **plain, **changed)


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
    return Change(QueueName(name), spec, amounts, annotations | _budget(given["budget"]))


def _budget(text: str | None) -> dict[str, str | None]:
    if text is None:
        return {}
    if text != "none" and not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise InvalidRequest(f"--budget {text}: write it as a whole number of card-hours, or none", hint="for example 1000")
    return {BUDGET: None if text == "none" else text}


def _pairs(amount: str, items: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        resource, equals, quantity = item.partition("=")
        if not resource or not equals:
            raise InvalidRequest(f"--{amount} {item}: write it as RESOURCE=AMOUNT", hint="for example nvidia.com/gpu=8")
        if quantity and capacity_units(resource, quantity) < 0:
            raise InvalidRequest(f"--{amount} {item} is negative", hint="for example nvidia.com/gpu=8")
        found[resource] = quantity
    return found


def _changed(amounts: Resources, given: Mapping[str, str]) -> Resources:
    return {resource: units for resource, units in amounts.items() if resource not in given} | {
        resource: capacity_units(resource, quantity) for resource, quantity in given.items() if quantity
    }


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does. `walls`: (queue, resource, used, capability) where use is above the new capability."""

    faults: tuple[str, ...]
    gives: tuple[GiveBack, ...]
    walls: tuple[tuple[QueueName, str, int, int], ...]

    def document(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "faults": list(self.faults),
            "giveBack": [_document(one) for one in self.gives],
            "overCapability": [
                {"queue": queue, "resource": resource, "used": used, "capability": limit}
                for queue, resource, used, limit in self.walls
            ],
        }

    def told(self) -> list[str]:
        """Lines for people; none where nobody is touched."""
        lines = [f"wrong: {fault}" for fault in self.faults]
        for one in self.gives:
            lines.append(f"queue {one.queue} may have to give back {one.units} of {one.resource}: {one.because}")
            lines += [_line(claim, one.resource) for claim in one.claims[:SHOWN]]
            if len(one.claims) > SHOWN:
                lines.append(f"  and {len(one.claims) - SHOWN} more pods")
            if not one.claims:
                lines.append("  and nothing in it may be taken")
        for queue, resource, used, limit in self.walls:
            said = f"queue {queue} uses {used} of {resource}, more than {limit}"
            lines.append(f"{said}: nothing is evicted, nothing new starts until it uses less")
        return lines


def effect_of(tree: QueueTree, change: Change, claims: Sequence[Claim]) -> Effect:
    """What the change would do to this tree with these claims."""
    after = QueueTree({name: dict(tree.own(name)) for name in (*tree, change.name)})
    after.update(tree)
    after[change.name] = change.of(tree.get(change.name) or Queue(change.name))
    wrong = [
        f"queue {name}: {said}" for name in sorted(after) for said in faults(after, name) if said not in faults(tree, name)
    ]
    walls = [(name, *over) for name in sorted(after) for over in _over(after, name) if over not in _over(tree, name)]
    return Effect(tuple(wrong), tuple(give_back(tree, after, claims)), tuple(walls))


def _over(tree: QueueTree, name: QueueName) -> list[tuple[str, int, int]]:
    queue, used = tree.get(name), tree.used(name)
    limits = queue.capability if queue is not None else {}
    return [(resource, used.get(resource, 0), limit) for resource, limit in limits.items() if used.get(resource, 0) > limit]


def _document(one: GiveBack) -> dict[str, Any]:
    claims = [
        {
            "pod": f"{claim.namespace}/{claim.pod}",
            "job": claim.job,
            "queue": claim.queue,
            "priority": claim.priority,
            "node": claim.node,
            "units": claim.requests.get(one.resource, 0),
        }
        for claim in one.claims
    ]
    return {"queue": one.queue, "resource": one.resource, "units": one.units, "because": one.because, "claims": claims}


def _line(claim: Claim, resource: str) -> str:
    holds = claim.requests.get(resource, 0)
    return f"  {claim.namespace}/{claim.pod}  queue {claim.queue}  priority {claim.priority}  {holds} on {claim.node}"
