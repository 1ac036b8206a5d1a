"""What a client sees of objects: items as the command line prints them, without names of tenants that it may not see. Sums stay."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from hbox_common.model import Claim, NodeDevices, QueueName, Verdict

from .model import ReadModel
from .names import OTHER_NAMESPACE, Veil, namespaces_in, queues_in, texts_in, veiled
from .rights import Scope

Item: TypeAlias = dict[str, Any]

#: The entry for queues that the client may not see.
OTHERS = "others"

#: In the place of names of pods and containers that the client may not see.
OTHER_POD, OTHER_CONTAINER = "(another pod)", "(another container)"

#: Texts of items that other services wrote, and that may contain names.
_JOB_TEXTS = ("reason",)
_QUEUE_TEXTS = ("faults",)
_NODE_TEXTS = ("reason", "refuses", "devicePlugin")


def named_in_jobs(items: Sequence[Item], model: ReadModel) -> tuple[set[str], set[str]]:
    """Namespaces and queues that the items' texts name, and whose rights have to be reviewed."""
    return _named((item[key] for item in items for key in _JOB_TEXTS), model)


def named_in_queues(items: Sequence[Item], model: ReadModel) -> tuple[set[str], set[str]]:
    namespaces, queues = _named((item[key] for item in items for key in _QUEUE_TEXTS), model)
    for item in items:
        queues |= {item["parent"], *item["borrowsFrom"], *item["lentTo"], item["home"], *item["pools"]} & model.known_queues
        namespaces |= set(item["namespaces"])
    return namespaces, queues


def named_in_nodes(items: Sequence[Item], model: ReadModel) -> tuple[set[str], set[str]]:
    namespaces, queues = _named((item[key] for item in items for key in _NODE_TEXTS), model)
    return namespaces, queues | {queue for item in items for queue in item["cardsByQueue"]} & model.known_queues


def named_on_node(claims: Sequence[Claim], texts: Iterable[str], model: ReadModel) -> tuple[set[str], set[str]]:
    """Of the claims on a node, and of texts about it."""
    namespaces, queues = _named(texts, model)
    return namespaces | {claim.namespace for claim in claims}, queues | {claim.queue for claim in claims if claim.queue}


def named_in(value: Any, model: ReadModel) -> tuple[set[str], set[str]]:
    """Of any JSON value."""
    return _named([value], model)


def _named(values: Iterable[Any], model: ReadModel) -> tuple[set[str], set[str]]:
    texts = [text for value in values for text in texts_in(value)]
    return namespaces_in(texts, model.names), queues_in(texts, model.known_queues)


def veil_of(scope: Scope, model: ReadModel) -> Veil:
    return Veil(
        model.names,
        model.known_queues,
        None if scope.namespaces is None else frozenset(scope.namespaces),
        None if scope.queues is None else frozenset(scope.queues),
    )


def job_seen(item: Item, veil: Veil) -> Item:
    """Of a job that the client may see: its queue is its own affair."""
    return item | {key: veiled(item[key], veil) for key in _JOB_TEXTS}


def queue_seen(item: Item, scope: Scope, veil: Veil) -> Item:
    """Of a queue that the client may see. Its ancestors, lenders and namespaces are shown where the client may see them, too."""
    return item | {
        "parent": item["parent"] if not item["parent"] or scope.sees_queue(item["parent"]) else OTHERS,
        "borrowsFrom": _only(item["borrowsFrom"], scope, veil),
        "lentTo": _only(item["lentTo"], scope, veil),
        "namespaces": [name for name in item["namespaces"] if scope.sees_namespace(name)],
        **{key: veiled(item[key], veil) for key in _QUEUE_TEXTS},
    }


def _only(names: Sequence[str], scope: Scope, veil: Veil) -> list[str]:
    return [name for name in names if name not in veil.known_queues or scope.sees_queue(name)]


def node_seen(item: Item, scope: Scope, veil: Veil) -> Item:
    return item | {
        "cardsByQueue": summed(item["cardsByQueue"], scope),
        **{key: veiled(item[key], veil) for key in _NODE_TEXTS},
    }


def claims_seen(claims: Iterable[Claim], scope: Scope) -> list[Claim]:
    """The claims, without the names of pods and queues that the client may not see."""
    return [
        replace(
            claim,
            namespace=claim.namespace if seen else OTHER_NAMESPACE,
            pod=claim.pod if seen else OTHER_POD,
            queue=claim.queue if not claim.queue or scope.sees_queue(claim.queue) else QueueName(OTHERS),
        )
        for claim in claims
        for seen in [scope.sees_namespace(claim.namespace)]
    ]


def devices_seen(devices: NodeDevices, scope: Scope, veil: Veil) -> NodeDevices:
    """What a kubelet gave to containers, likewise."""
    holds = tuple(
        one
        if scope.sees_namespace(one.namespace)
        else replace(one, namespace=OTHER_NAMESPACE, pod=OTHER_POD, container=OTHER_CONTAINER)
        for one in devices.holds
    )
    return replace(devices, holds=holds, problem=veil.text(devices.problem))


def verdict_seen(verdict: Verdict | None, veil: Veil) -> Verdict | None:
    return verdict and replace(verdict, reason=veil.text(verdict.reason))


def decisions_seen(decisions: Sequence[Item], *, nodes: bool) -> list[Item]:
    """Decisions on a job that the client may see. `nodes`: whether it may see other nodes than those of the job."""
    if nodes:
        return list(decisions)
    return [one | {"nodes": [on | {"runner_up": None} for on in one["nodes"]]} for one in decisions]


def summed(by_queue: Mapping[str, int], scope: Scope) -> dict[str, int]:
    """Amounts by queue, those of other queues as one sum."""
    seen = {queue: amount for queue, amount in by_queue.items() if queue == "-" or scope.sees_queue(queue)}
    if others := sum(amount for queue, amount in by_queue.items() if queue not in seen):
        seen[OTHERS] = others
    return seen


def others_of(items: Iterable[Item]) -> Item:
    """The sum of queues that the client may not see. Only queues without children among them count, since a queue's use includes that below it."""
    kept = list(items)
    parents = {item["parent"] for item in kept}
    own = [item for item in kept if item["name"] not in parents]
    used: dict[str, int] = {}
    for item in own:
        for resource, amount in item["used"].items():
            used[resource] = used.get(resource, 0) + amount
    return {
        "queues": len(kept),
        "used": dict(sorted(used.items())),
        "pendingJobs": sum(item["pendingJobs"] for item in own),
        "pendingCards": sum(item["pendingCards"] for item in own),
    }


def shown_changes(changes: Sequence[Item], veil: Veil) -> list[Item]:
    """Proposed changes without those that name what the client may not see: it could not make them."""
    return [change for change in changes if veiled(change, veil) == _plain_json(change)]


def _plain_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_json(one) for one in value]
    return value
