"""`hbox check pod FILE`: what the admission endpoint would write into the pods of a manifest, and what HBox would say of them without it."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hbox_admission.core import Mutation, Rules, mutate
from hbox_common.errors import InvalidRequest
from hbox_common.kube import objects as kube
from hbox_common.model import CardRequest
from hbox_common.model.devices.sizes import Size, parse_sizes
from hbox_common.model.devices.sizing import pod_templates
from hbox_common.yamltext import contents_of, read_file
from hbox_jobs.adapters.objects import PodReader

from ..context import Context
from ..exits import Faulty
from ..output import put


@dataclass(frozen=True, slots=True)
class Found:
    """A pod, or template of pods, of the manifest. `problem`: why HBox would not place it as it comes out of the endpoint, `alone`: as it is written."""

    name: str
    mutation: Mutation
    cards: CardRequest | None
    problem: str
    alone: str


def check_pod(ctx: Context, path: str, catalogue: Path | None) -> None:
    """Prints it. Raises Faulty where HBox would refuse a pod though it is completed, InvalidRequest for a file that holds no pod."""
    text = sys.stdin.buffer.read() if path == "-" else read_file(Path(path))
    sizes = parse_sizes(read_file(catalogue)) if catalogue is not None else ()
    try:
        found = [judged(name, pod, sizes) for document in contents_of(text) for name, pod in _pods(document)]
    except InvalidRequest as e:
        raise InvalidRequest(f"{path}: {e.message}", hint=e.hint) from e
    if not found:
        raise InvalidRequest(f"{path} holds no pod and no template of pods")
    if ctx.output.machine:
        ctx.output.document("PodCheck", {"pods": [_item(one) for one in found]})
    elif not ctx.output.people:
        ctx.output.document("PodCheckList", {"items": [_item(one) for one in found]})
    else:
        for one in found:
            put(*_lines(one))
    if wrong := [one.name for one in found if one.problem]:
        raise Faulty(f"HBox would refuse {', '.join(wrong)}", hint="the reasons are listed above")


def judged(name: str, pod: Mapping[str, Any], sizes: Sequence[Size] = ()) -> Found:
    """Raises InvalidRequest for what is no pod."""
    mutation = mutate(pod, Rules(sizes={size.name: size for size in sizes}))
    cards, problem = _read(mutation.pod)
    return Found(name, mutation, cards, problem, _read(pod)[1])


def _pods(document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    about = document.get("metadata") if isinstance(document, dict) else None
    owner = f"{str(document.get('kind', 'pod')).lower()}/{(about or {}).get('name', '?')}" if isinstance(about, dict) else "pod"
    templates = list(pod_templates(document))
    for number, template in enumerate(templates, 1):
        yield (owner if len(templates) == 1 else f"{owner} (template {number})"), template


def _read(pod: Mapping[str, Any]) -> tuple[CardRequest | None, str]:
    """What job-controller makes of it."""
    # A template has no name and no uid yet.
    metadata = {"name": "pod", "namespace": "default", "uid": "none", **(pod.get("metadata") or {})}
    try:
        view = PodReader().view(msgspec.convert({"metadata": metadata, "spec": pod["spec"]}, kube.Pod))
    except msgspec.ValidationError as e:
        raise InvalidRequest(f"this is no pod: {e}") from e
    return view.shape.cards, view.shape.problem


def _lines(one: Found) -> Iterator[str]:
    yield f"{one.name}: {one.mutation.outcome}"
    yield from (f"  writes  {change}" for change in _changes(one.mutation))
    yield from (f"  warns   {warning}" for warning in one.mutation.warnings)
    if one.problem:
        yield f"  refused {one.problem}"
    elif one.alone:
        yield f"  without the endpoint refused: {one.alone}"


def _changes(mutation: Mutation) -> Iterator[str]:
    """Each step of the patch, by member, as the pod has it afterwards."""
    for step in mutation.patch:
        where, value = step["path"].strip("/").replace("/", "."), step["value"]
        if isinstance(value, dict) and "limits" in value:
            amounts = ", ".join(f"{name}: {amount}" for name, amount in value["limits"].items())
            yield f"{where}.limits: {amounts}"
        elif isinstance(value, dict):
            yield from (f"{where} {key}: {text}" for key, text in value.get("annotations", value).items())
        elif isinstance(value, list):
            yield f"{where}: " + ", ".join(f"{entry.get('name')}={entry.get('value', '...')}" for entry in value)
        else:
            yield f"{where}: {value}"


def _item(one: Found) -> dict[str, Any]:
    return {
        "name": one.name,
        "outcome": str(one.mutation.outcome),
        "patch": list(one.mutation.patch),
        "warnings": list(one.mutation.warnings),
        "cards": one.cards.count if one.cards is not None else 0,
        "problem": one.problem,
        "problemWithout": one.alone,
    }
