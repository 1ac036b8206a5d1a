"""What of a pod's spec decides where it may run: how the server completes and refuses it (pkg/apis/core/v1/defaults.go, validation.go)."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from hbox_common.model import parse_quantity

from .errors import Json, cause

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_POD_LEVEL = ("cpu", "memory")


def complete_scheduling(spec: Json) -> None:
    """Defaults, in place: requests of the pod as a whole, ports of a pod on its node's network, a grace period that is none."""
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    host_network = bool(spec.get("hostNetwork"))
    for container in _containers(spec):
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if host_network and not port.get("hostPort"):
                port["hostPort"] = port.get("containerPort", 0)
    if (own := spec.get("resources")) and own.get("limits"):
        requests = own.setdefault("requests", {})
        for name, amount in _aggregate(spec).items():
            requests.setdefault(name, _written(name, amount))
        for name, quantity in own["limits"].items():
            if _of_pods(name):
                requests.setdefault(name, quantity)


def check_scheduling(spec: Json) -> list[Json]:
    """Causes of invalidity."""
    return [*_gates(spec), *_tolerations(spec), *_affinity(spec), *_volumes(spec), *_ports(spec), *_amounts(spec)]


def _of_pods(resource: str) -> bool:
    return resource in _POD_LEVEL or resource.startswith("hugepages-")


def _containers(spec: Json) -> Iterator[Json]:
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def _gates(spec: Json) -> Iterator[Json]:
    if not (gates := spec.get("schedulingGates")):
        return
    seen: set[str] = set()
    for at, gate in enumerate(gates):
        if gate["name"] in seen:
            yield cause(f"spec.schedulingGates[{at}]", f'Duplicate value: "{gate["name"]}"', "FieldValueDuplicate")
        seen.add(gate["name"])
    if spec.get("nodeName"):
        yield cause(
            "spec.nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared", "FieldValueForbidden"
        )


def _tolerations(spec: Json) -> Iterator[Json]:
    for at, toleration in enumerate(spec.get("tolerations") or ()):
        path = f"spec.tolerations[{at}]"
        effect, value = toleration.get("effect", ""), toleration.get("value", "")
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            text = f"Invalid value: \"{effect}\": effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield cause(f"{path}.effect", text)
        if toleration.get("operator") == "Exists" and value:
            yield cause(f"{path}.operator", f"Invalid value: \"{value}\": value must be empty when `operator` is 'Exists'")


def _affinity(spec: Json) -> Iterator[Json]:
    node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return
    terms = required.get("nodeSelectorTerms") or ()
    if not terms:
        yield cause(path, "Required value: must have at least one node selector term", "FieldValueRequired")
    for at, term in enumerate(terms):
        for which, expression in enumerate(term.get("matchExpressions") or ()):
            operator = expression.get("operator", "")
            if operator not in _OPERATORS:
                where = f"{path}[{at}].matchExpressions[{which}].operator"
                yield cause(where, f'Invalid value: "{operator}": not a valid selector operator')


def _volumes(spec: Json) -> Iterator[Json]:
    seen: set[str] = set()
    for at, volume in enumerate(spec.get("volumes") or ()):
        name, claim = volume.get("name", ""), volume.get("persistentVolumeClaim")
        if name in seen:
            yield cause(f"spec.volumes[{at}].name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
        seen.add(name)
        if claim is not None and not claim.get("claimName"):
            yield cause(f"spec.volumes[{at}].persistentVolumeClaim.claimName", "Required value", "FieldValueRequired")


def _ports(spec: Json) -> Iterator[Json]:
    taken: set[tuple[str, str, int]] = set()
    for part in ("containers", "initContainers"):
        for at, container in enumerate(spec.get(part) or ()):
            for which, port in enumerate(container.get("ports") or ()):
                number = port.get("hostPort", 0)
                if not number:
                    continue
                path = f"spec.{part}[{at}].ports[{which}].hostPort"
                if not 0 < number < 65536:
                    yield cause(path, f"Invalid value: {number}: must be between 1 and 65535, inclusive")
                elif spec.get("hostNetwork") and number != port.get("containerPort"):
                    yield cause(path, f"Invalid value: {number}: must match `containerPort` when `hostNetwork` is true")
                key = (port.get("protocol", "TCP"), port.get("hostIP", ""), number)
                if part == "containers" and key in taken:
                    yield cause(path, f'Duplicate value: "{key[0]}/{key[1]}/{number}"', "FieldValueDuplicate")
                taken.add(key)


def _amounts(spec: Json) -> Iterator[Json]:
    for part in ("containers", "initContainers"):
        for at, container in enumerate(spec.get(part) or ()):
            if resources := container.get("resources"):
                yield from _container_amounts(resources, f"spec.{part}[{at}].resources")
    if not (own := spec.get("resources")):
        return
    for kind in ("limits", "requests"):
        for name in own.get(kind) or ():
            if not _of_pods(name):
                text = f'Unsupported value: "{name}": supported values: "cpu", "hugepages-", "memory"'
                yield cause(f"spec.resources.{kind}[{name}]", text, "FieldValueNotSupported")
    for name, amount in _aggregate(spec).items():
        quantity = (own.get("requests") or {}).get(name)
        if quantity is not None and parse_quantity(quantity) < amount:
            text = f'Invalid value: "{quantity}": must be greater than or equal to aggregate container requests of {_written(name, amount)}'
            yield cause(f"spec.resources.requests[{name}]", text)


def _container_amounts(resources: Json, path: str) -> Iterator[Json]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, quantity in amounts.items():
            if "/" in name and not str(quantity).isdecimal() and parse_quantity(quantity) % 1:
                yield cause(f"{path}.{kind}[{name}]", f'Invalid value: "{quantity}": must be an integer')
    for name, quantity in requests.items():
        limit = limits.get(name, quantity)
        if "/" not in name and limit != quantity and parse_quantity(quantity) > parse_quantity(limit):
            text = f'Invalid value: "{quantity}": must be less than or equal to {name} limit of {limit}'
            yield cause(f"{path}.requests", text)


def _aggregate(spec: Json) -> dict[str, Decimal]:
    """What the containers ask for together of what a pod as a whole may ask for (AggregateContainerRequests)."""
    together: dict[str, Decimal] = {}
    sidecars: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        own = _plus(_requests(container), sidecars)
        if container.get("restartPolicy") == "Always":
            sidecars = own
        peak = {name: max(peak.get(name, Decimal()), own.get(name, Decimal())) for name in peak | own}
    for container in spec.get("containers") or ():
        together = _plus(together, _requests(container))
    together = _plus(together, sidecars)
    return {name: max(together.get(name, Decimal()), peak.get(name, Decimal())) for name in together | peak}


def _requests(container: Json) -> dict[str, Decimal]:
    asked = (container.get("resources") or {}).get("requests") or {}
    return {name: parse_quantity(quantity) for name, quantity in asked.items() if name in _POD_LEVEL}


def _plus(a: dict[str, Decimal], b: dict[str, Decimal]) -> dict[str, Decimal]:
    return {name: a.get(name, Decimal()) + b.get(name, Decimal()) for name in a | b}


def _written(name: str, amount: Decimal) -> str:
    """As the server writes it: thousandths of cpu where it is not whole, memory in the largest binary unit that is whole."""
    if name == "cpu":
        return str(int(amount)) if amount % 1 == 0 else f"{int(amount * 1000)}m"
    units, left = ("", "Ki", "Mi", "Gi", "Ti"), int(amount)
    at = 0
    while left and left % 1024 == 0 and at + 1 < len(units):
        left, at = left // 1024, at + 1
    return f"{left}{units[at]}"
