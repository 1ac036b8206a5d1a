"""Standard sizes in manifests: each `sizes.hbox.io/NAME` of a container becomes the resources that the cluster has for it."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from hbox_common.errors import InvalidRequest

from .sizes import PREFIX, Choice, Size

#: What a size becomes. Raises InvalidRequest where the cluster has nothing for it.
Resolve = Callable[[Size], Choice]


def applied(document: Any, sizes: Mapping[str, Size], resolve: Resolve) -> tuple[Any, list[str]]:
    """A copy of the document with every size in its pods and pod templates resolved, and a line for each.

    Raises InvalidRequest that names the container, for an unknown size, an invalid amount, and contradictory annotations.
    """
    changed = deepcopy(document)
    notes: list[str] = []
    for template in pod_templates(changed):
        notes += resolve_pod(template, sizes, resolve)
    return changed, notes


def pod_templates(node: Any) -> Iterator[dict[str, Any]]:
    """Pods, and templates of pods: whatever has a `spec` with `containers`."""
    if isinstance(node, dict):
        spec = node.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield node
        for value in node.values():
            yield from pod_templates(value)
    elif isinstance(node, list):
        for value in node:
            yield from pod_templates(value)


def resolve_pod(pod: dict[str, Any], sizes: Mapping[str, Size], resolve: Resolve) -> list[str]:
    """As `applied`, of one pod or template, in place; one that raised is half done."""
    notes = []
    for container in [*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())]:
        resources = container.get("resources") if isinstance(container, dict) else None
        if not isinstance(resources, dict):
            continue
        where = f"container {container.get('name', '?')}"
        asked = _asked(where, resources)
        if not asked:
            continue
        if len(asked) > 1:
            raise InvalidRequest(f"{where}: it asks for {len(asked)} sizes ({', '.join(asked)})", hint="one size a container")
        [(name, units)] = asked.items()
        if name not in sizes:
            raise InvalidRequest(f"{where}: no size is called {name}", hint=f"one of {', '.join(sizes)}")
        choice = resolve(replace(sizes[name], cards=sizes[name].cards * units))
        for kind in ("requests", "limits"):
            amounts = resources.get(kind) or {}
            own = {key: value for key, value in amounts.items() if not key.startswith(PREFIX)}
            if kind == "limits" or len(own) < len(amounts):
                resources[kind] = own | {key: str(value) for key, value in choice.resources.items()}
        _annotate(where, pod, choice.annotations)
        amounts_text = ", ".join(f"{key}: {value}" for key, value in choice.resources.items())
        notes.append(f"{where}: {name} is {choice.way} of {choice.kind} ({amounts_text})")
    return notes


def _asked(where: str, resources: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind in ("requests", "limits"):
        for key, value in (resources.get(kind) or {}).items():
            if not str(key).startswith(PREFIX):
                continue
            text = str(value)
            if not (text.isascii() and text.isdecimal() and int(text[:6]) >= 1 and len(text) <= 6):
                raise InvalidRequest(f"{where}: {key} is {value}", hint="write how many of it, 1 or more")
            found[str(key).removeprefix(PREFIX)] = int(text)
    return found


def _annotate(where: str, pod: dict[str, Any], annotations: Mapping[str, str]) -> None:
    if not annotations:
        return
    metadata = pod.setdefault("metadata", {}) or {}
    pod["metadata"] = metadata
    written = metadata.get("annotations") or {}
    for key, value in annotations.items():
        if written.get(key, value) != value:
            raise InvalidRequest(
                f"{where}: annotation {key} would be {value} and is {written[key]}",
                hint="divide the containers between two pods",
            )
    metadata["annotations"] = written | dict(annotations)
