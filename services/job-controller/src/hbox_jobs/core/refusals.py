"""Rests of nodes whose kubelets refuse pods, derived from the status of pods.

A refused pod is Failed with a reason of the kubelet's admission. The reason and the message decide for which kind of request the node rests (`refused_kind`).
For each node and kind, `Refusals` keeps the refused requests, each with the namespace of its pod. Two rests follow:

- of the request: the node gets no pod with exactly these requests, for 2 s, 4 s, ... 60 s. This affects only pods that the kubelet would refuse too;
- of the kind: the node gets no pod of the kind, if the refusals indicate a fault of the node and not of the pods. That is so if pods of two namespaces were
  refused; or if other nodes admitted the same request recently (on at most `PROVEN_NODES` nodes for each namespace); or if no other node refused a pod of this
  namespace. So a tenant whose pods every kubelet refuses blocks one node for other tenants, not all nodes.

When the kubelet admits a pod of the kind, both end, except for requests that several nodes refused and none admitted: these pods are at fault.

A refusal during a rest does not extend it: its pod was bound before the rest began.

Only refusals of pods with a claim count, which HBox bound: a tenant can create pods that name a node and ask for what this node cannot give.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from hbox_common.model import (
    LONGEST_REST_S,
    VENDORS,
    KindRest,
    NodeName,
    NodeRest,
    PodGroupTask,
    PodRequest,
    RequestKind,
    Resources,
    node_rest,
    rest_s,
)
from hbox_common.model.bounds import sanitized
from hbox_common.model.hostports import is_host_port
from hbox_common.model.nodezones import ask_of

from .spec import Shape
from .views import PodStatus, PodView

#: Seconds from the end of a rest until its refusals expire. A later refusal counts as the first.
EXPIRE_S = 600.0
#: Maximum number of nodes that rest for all namespaces due to refusals of one namespace, if other nodes admitted its requests.
PROVEN_NODES = 8
#: Limits of kept requests: refused ones of one kind on one node, and admitted ones in total.
MOST_REFUSED, MOST_ADMITTED = 16, 10_000
#: Maximum length of a refusal, in characters.
MOST_MESSAGE = 512

#: Namespace and requests of a pod; the requests as sorted pairs, in base units.
_Request: TypeAlias = tuple[str, tuple[tuple[str, int], ...]]

UNEXPECTED = "UnexpectedAdmissionError"
TOPOLOGY_AFFINITY = "TopologyAffinityError"
_OUT_OF = "OutOf"
#: Reasons of a kubelet that admits no pod at all.
_ANY = frozenset({"NodeShutdown", "InvalidNodeInfo", "TaintToleration", "OutOfpods", "OutOfPods"})
_SELECTED = frozenset({"NodeAffinity", "MatchNodeSelector"})
#: Reasons that depend on the pod and the node's configuration: other nodes may admit the pod, and this node admits other pods.
_OF_THE_POD = frozenset(
    {
        "AppArmor", "HostPortConflict", "InitContainersRestartPolicyForbidden", "NodeName", "NodePorts", "PodFeatureUnsupported", "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch", "ProcMount", "SMTAlignmentError", "Seccomp", "SupplementalGroupsPolicyNotSupported", "SysctlForbidden",
        "UnexpectedPredicateFailureType", "UnknownReason",
    }
)  # fmt: skip
#: Part of the message when the eviction manager refuses to admit a pod; it is absent when a running pod is evicted.
_PRESSURE = "had condition"


def refusal_of(phase: str, reason: str, message: str) -> str:
    """Reason and message of the kubelet that refused to admit a pod; empty if the pod was admitted. The arguments are fields of the pod's status."""
    if phase != "Failed" or not reason:
        return ""
    known = (
        reason in (UNEXPECTED, TOPOLOGY_AFFINITY)
        or reason in _ANY
        or reason in _SELECTED
        or reason in _OF_THE_POD
        or reason.startswith(_OUT_OF)
        or (reason == "Evicted" and _PRESSURE in message)
    )
    return sanitized(f"{reason}: {message}" if message else reason, MOST_MESSAGE) if known else ""


def reason_of(refusal: str) -> str:
    """The reason as a metric label: without the resource's name."""
    reason = refusal.partition(":")[0]
    return _OUT_OF if reason.startswith(_OUT_OF) else reason


def refused_kind(refusal: str, asked: PodRequest) -> tuple[str, Resources] | None:
    """The kind of request that the kubelet refused, and the amounts below which the rest does not apply (`KindRest.amounts`). `refusal`: from `refusal_of`.
    None if the pod is at fault."""
    reason, _, message = refusal.partition(": ")
    if reason in _OF_THE_POD:
        return None
    if reason == UNEXPECTED:
        return _of_allocation(message, asked)
    if reason == TOPOLOGY_AFFINITY:
        return RequestKind.ALIGNED, {name: units for name, units in asked.requests.items() if name not in _UNALIGNED}
    if reason in _SELECTED:
        return RequestKind.SELECTED, {}
    if reason.startswith(_OUT_OF) and reason not in _ANY:
        short = reason.removeprefix(_OUT_OF).lower()
        resource = next((name for name in asked.requests if name.lower() == short), None)
        return (resource, {resource: asked.requests[resource]}) if resource is not None else (RequestKind.ANY, {})
    return RequestKind.ANY, {}


_UNALIGNED = frozenset({"pods", "ephemeral-storage", "memory"})
_OF_NODES = frozenset({"cpu", *_UNALIGNED})


def _of_allocation(message: str, asked: PodRequest) -> tuple[str, Resources]:
    """As `refused_kind`, if a device plugin, the CPU manager or the memory manager failed: the device that the message names, else the pod's cards."""
    devices = sorted(
        name
        for name in asked.requests
        if name not in _OF_NODES and name not in VENDORS and not name.startswith("hugepages-") and not is_host_port(name)
    )
    named = next((name for name in devices if name in message), None)
    if asked.cards and named is None:
        return RequestKind.CARDS, {}
    if named is not None or devices:
        return named or devices[0], {}
    return (RequestKind.ALIGNED if asked.aligned else RequestKind.ANY), {}


def pod_request_of(shape: Shape) -> PodRequest:
    """The kinds of requests of pods of this shape."""
    task = PodGroupTask(
        "", shape.requests, (), guaranteed=shape.guaranteed, containers=shape.of_containers, init_containers=shape.of_init_containers
    )  # fmt: skip
    return PodRequest(
        shape.requests,
        cards=shape.cards is not None and shape.cards.count > 0,
        aligned=ask_of(task) is not None,
        selected=bool(shape.node_selector) or shape.affinity is not None,
    )


@dataclass(slots=True)
class _Count:
    """Consecutive refusals. Times in seconds since the epoch."""

    failures: int = 0
    until: float = 0.0
    at: float = 0.0
    pod: str = ""
    message: str = ""
    amounts: Resources = field(default_factory=dict)

    def add(self, pod: str, message: str, amounts: Resources, wall: float) -> None:
        """Count a refusal at `wall`. During a rest it changes only the last pod and message."""
        ahead_s = self.until - wall
        rests, fresh = 0.0 < ahead_s <= LONGEST_REST_S, not -EXPIRE_S < ahead_s <= LONGEST_REST_S
        if not rests:
            self.failures = 1 if fresh else self.failures + 1
            self.until = wall + rest_s(self.failures)
        known = amounts if fresh else self.amounts
        self.amounts = {name: min(units, known[name]) for name, units in amounts.items() if name in known}
        self.at, self.pod, self.message = wall, pod, message


@dataclass(slots=True)
class _Kind:
    """Refusals of one kind of request on one node. `all`: the rest of the kind. Invariant: `requests` or `all` is not empty."""

    requests: "OrderedDict[_Request, _Count]" = field(default_factory=OrderedDict)
    all: _Count | None = None
    alone: str = ""  #: the namespace, if refusals of one namespace alone caused the rest of the kind

    @property
    def namespaces(self) -> set[str]:
        return {namespace for namespace, _ in self.requests}


class Refusals:
    """Refusals of all nodes. `wall` and `at`: seconds since the epoch."""

    def __init__(self) -> None:
        self._nodes: dict[NodeName, dict[str, _Kind]] = {}
        self._where: dict[_Request, set[NodeName]] = {}  #: nodes with a kept refusal of the request
        self._admitted: OrderedDict[_Request, float] = OrderedDict()  #: when the request was admitted last
        self._alone: dict[str, set[tuple[NodeName, str]]] = {}  #: by namespace: `_Kind.alone`, by node and kind
        self._changed: set[NodeName] = set()

    def pod(self, old: PodView | None, new: PodView, wall: float, *, listed: bool = False) -> None:
        """A new version of a pod was observed. `listed`: by the first list after the start, so that its status may be old and counted by an earlier process."""
        if not new.node:
            return
        at = min(new.kubelet_at, wall) if listed else wall
        if new.refusal:
            if new.claim and (old is None or not old.refusal) and not wall - at > EXPIRE_S:
                self.refused(new, at, listed=listed)
        elif _admitted(new) and (old is None or not _admitted(old)):
            self.admitted(new, at)

    def refused(self, pod: PodView, at: float, *, listed: bool = False) -> None:
        """A node's kubelet refused a pod that HBox had bound to it."""
        asked = pod_request_of(pod.shape)
        found = refused_kind(pod.refusal, asked)
        if found is None:
            return
        node, (name, amounts), request = pod.node, found, _request_of(pod)
        kind = self._nodes.setdefault(node, {}).setdefault(name, _Kind())
        count = kind.requests.get(request)
        if count is None:
            count = kind.requests[request] = _Count()
            self._where.setdefault(request, set()).add(node)
        elif listed and at <= count.at:
            return
        kind.requests.move_to_end(request)
        count.add(f"{pod.namespace}/{pod.name}", pod.refusal, amounts, at)
        if self._node_at_fault(kind, request, at):
            kind.all = kind.all or _Count()
            kind.all.add(count.pod, count.message, amounts, at)
        if len(kind.requests) > MOST_REFUSED:
            self._drop_request(node, name, next(iter(kind.requests)))
        self._tidy(node, name)
        if len(self._where[request]) == 2 and not self._proven(request, at):
            for other in self._where[request] - {node}:
                self._exonerate(other, request, at)
        self._changed.add(node)

    def admitted(self, pod: PodView, at: float) -> None:
        """A node's kubelet admitted a pod."""
        request = _request_of(pod)
        self._admitted[request] = max(at, self._admitted.pop(request, 0.0))
        if len(self._admitted) > MOST_ADMITTED:
            self._admitted.popitem(last=False)
        kinds = self._nodes.get(pod.node)
        if not kinds:
            return
        asked = pod_request_of(pod.shape)
        for name, kind in [*kinds.items()]:
            if not asked.of_kind(name):
                continue
            if kind.all is not None and kind.all.at < at and _covers(asked, kind.all):
                kind.all = None
                self._changed.add(pod.node)
            for one, count in [*kind.requests.items()]:
                if count.at < at and (one == request or (_covers(asked, count) and len(self._where[one]) == 1)):
                    self._drop_request(pod.node, name, one)
                    self._changed.add(pod.node)
            self._tidy(pod.node, name)

    def resume(self, rests: Iterable[NodeRest]) -> None:
        """Take over the rests that an earlier process published last."""
        for rest in rests:
            for one in rest.refused:
                kind = self._nodes.setdefault(rest.node, {}).setdefault(one.kind, _Kind())
                count = _Count(one.failures, one.until, one.at, one.pod, one.message, dict(one.amounts))
                if one.only:
                    request = one.pod.partition("/")[0], tuple(sorted(one.only.items()))
                    kind.requests[request] = count
                    self._where.setdefault(request, set()).add(rest.node)
                else:
                    kind.all = count
            for name in [*self._nodes.get(rest.node, ())]:
                self._tidy(rest.node, name)

    def expire(self, wall: float) -> None:
        """Drop refusals whose rests ended `EXPIRE_S` before `wall`."""
        for node, kinds in [*self._nodes.items()]:
            for name, kind in [*kinds.items()]:
                if kind.all is not None and kind.all.until + EXPIRE_S <= wall:
                    kind.all = None
                    self._changed.add(node)
                for request, count in [*kind.requests.items()]:
                    if count.until + EXPIRE_S <= wall:
                        self._drop_request(node, name, request)
                        self._changed.add(node)
                self._tidy(node, name)

    @property
    def changed(self) -> bool:
        """Whether `take` returns anything."""
        return bool(self._changed)

    def refusing(self, wall: float) -> int:
        """The number of nodes that rest at `wall`."""
        return sum(1 for node in self._nodes if self.of(node).lasting(wall))

    def of(self, node: NodeName) -> NodeRest:
        """The rests of a node, to be published."""
        rests = []
        for name, kind in self._nodes.get(node, {}).items():
            if kind.all is not None:
                rests.append(_rest(name, kind.all))
            rests += [_rest(name, count, dict(request)) for (_, request), count in kind.requests.items()]
        return node_rest(node, tuple(rests))

    def take(self) -> list[NodeRest]:
        """The rests of nodes that changed since the last call."""
        changed, self._changed = self._changed, set()
        return [self.of(node) for node in sorted(changed)]

    def mark_changed(self, nodes: Iterable[NodeName] | None = None) -> None:
        """Have `take` return these nodes, or all nodes, again."""
        self._changed.update(self._nodes if nodes is None else nodes)

    def _proven(self, request: _Request, at: float) -> bool:
        """Whether a node admitted the same request within the last `EXPIRE_S`."""
        return at - self._admitted.get(request, -EXPIRE_S) < EXPIRE_S

    def _node_at_fault(self, kind: _Kind, request: _Request, at: float) -> bool:
        """Whether the refusals of the kind indicate a fault of the node, not of the pods."""
        namespace, _ = request
        if len(kind.namespaces) > 1:
            return True
        proven = self._proven(request, at)
        if len(self._where[request]) > 1 and not proven:
            return False
        return kind.all is not None or len(self._alone.get(namespace, ())) < (PROVEN_NODES if proven else 1)

    def _exonerate(self, node: NodeName, request: _Request, at: float) -> None:
        """Another node refused the request too: end the rest of the kind on `node`, if other nodes refused all that it refused."""
        for name, kind in self._nodes.get(node, {}).items():
            if request not in kind.requests or kind.all is None or len(kind.namespaces) > 1:
                continue
            if all(len(self._where[one]) > 1 and not self._proven(one, at) for one in kind.requests):
                kind.all = None
                self._tidy(node, name)
                self._changed.add(node)

    def _drop_request(self, node: NodeName, name: str, request: _Request) -> None:
        kinds = self._nodes[node]
        del kinds[name].requests[request]
        if not any(request in kind.requests for kind in kinds.values()):
            nodes = self._where[request]
            nodes.discard(node)
            if not nodes:
                del self._where[request]

    def _tidy(self, node: NodeName, name: str) -> None:
        """Update `_Kind.alone` and `_alone` after a change of the kind, and drop the kind if it is empty."""
        kinds = self._nodes[node]
        kind = kinds[name]
        namespaces = kind.namespaces
        alone = next(iter(namespaces)) if kind.all is not None and len(namespaces) == 1 else ""
        if alone != kind.alone:
            if kind.alone:
                self._alone[kind.alone].discard((node, name))
                if not self._alone[kind.alone]:
                    del self._alone[kind.alone]
            if alone:
                self._alone.setdefault(alone, set()).add((node, name))
            kind.alone = alone
        if kind.all is None and not kind.requests:
            del kinds[name]
            if not kinds:
                del self._nodes[node]


def _admitted(pod: PodView) -> bool:
    return bool(pod.node) and (pod.kubelet_at > 0.0 or pod.status is not PodStatus.PENDING)


def _request_of(pod: PodView) -> _Request:
    return pod.namespace, tuple(sorted(pod.shape.requests.items()))


def _covers(asked: PodRequest, count: _Count) -> bool:
    return all(asked.requests.get(name, 0) >= units for name, units in count.amounts.items())


def _rest(name: str, count: _Count, only: Resources | None = None) -> KindRest:
    return KindRest(name, count.failures, count.until, count.at, count.pod, count.message, dict(count.amounts), only or {})
