"""What containers were given that are resized while they run: their statuses say so (KEP-1287)."""

from typing import TypeAlias

from hbox_common import kube
from hbox_common.errors import InvalidRequest
from hbox_common.model import request_units
from hbox_common.model.resources import CPU, MEMORY

#: By container: cpu and memory in its status, if they differ from its requests; and whether its resize is infeasible.
Given: TypeAlias = dict[str, tuple[dict[str, str | float], bool]]


def given_of(pod: kube.Pod) -> Given:
    """Empty for a pod of which nothing is resized, so that it shares its shape with others. A quantity that cannot be read is left out."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    if not pod.spec.node_name or not statuses:
        return {}
    asked = {c.name: {**c.resources.limits, **c.resources.requests} for c in (*pod.spec.containers, *pod.spec.init_containers)}
    infeasible = any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions)
    found: Given = {}
    for status in statuses:
        given = _given(status)
        own = asked.get(status.name, {})
        if any(own.get(name) != quantity for name, quantity in given.items()):
            found[status.name] = given, infeasible
    return found


def _given(status: kube.ContainerStatus) -> dict[str, str | float]:
    runs = status.resources.requests if status.resources is not None else {}
    found: dict[str, str | float] = {}
    for name in (CPU, MEMORY):
        reported = [amounts[name] for amounts in (status.allocated_resources, runs) if name in amounts]
        try:
            units = {request_units(name, quantity): quantity for quantity in reported}
        except InvalidRequest:
            continue
        if units:
            found[name] = units[max(units)]
    return found
