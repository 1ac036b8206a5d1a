"""Manifests of files as requests that create them, checked as `hbox job lint` does."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model.annotations import QUEUE_NAME
from hbox_common.model.ids import SCHEDULER_NAME

from ..access.cluster import ClusterApi, Kind
from ..lint import kinds_with, linted
from ..output import notify
from ..simulate.documents import Document, documents_of, files_of
from .changes import Change
from .suspending import HOLD_GATE, suspension
from .targets import Target


def prepared(
    api: ClusterApi, paths: tuple[Path, ...], *, namespace: str | None, queue: str, held: bool, force: bool
) -> list[Change]:
    """Raises InvalidRequest that names file, document and field; nothing is sent but questions about kinds."""
    kinds, changes, wrong = kinds_with(()), list[Change](), list[str]()
    for path in files_of(paths):
        try:
            for document in documents_of(path):
                found = linted(document, kinds)
                if found is not None:
                    wrong += [f"{path}: {found.title}: {text}" for text in found.problems]
                    for note in found.notes:
                        notify(f"{path}: {found.title}: {note}")
                changes.append(_creation(api, document, namespace=namespace, queue=queue, held=held))
        except InvalidRequest as e:
            raise InvalidRequest(f"{path}: {e.message}", hint=e.hint) from e
    if wrong and not force:
        raise InvalidRequest(
            "; ".join(wrong), hint="correct the fields (`hbox job lint` explains them), or submit with --force"
        )
    if not changes:
        raise InvalidRequest("the files have no object")
    return changes


def _creation(api: ClusterApi, document: Document, *, namespace: str | None, queue: str, held: bool) -> Change:
    content: dict[str, Any] = deepcopy(dict(document.content))
    metadata = content.setdefault("metadata", {})
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise document.wrong("metadata.name", "is missing")
    kind = api.kind(str(content.get("apiVersion", "")), document.kind)
    space = str(metadata.get("namespace") or namespace or api.namespace) if kind.namespaced else ""
    if space:
        metadata["namespace"] = space
    if queue:
        _in_queue(content, kind, queue)
    if held:
        _hold(content, kind)
    name = str(metadata.get("name") or metadata["generateName"])
    return Change("create", kind, space, name, f"{document.kind.lower()} {f'{space}/' if space else ''}{name} created", content)


def _in_queue(content: dict[str, Any], kind: Kind, queue: str) -> None:
    if kind.kind == "PodGroup":
        content.setdefault("spec", {})["queue"] = queue
    elif any(True for _ in _pod_templates(content)):
        content["metadata"].setdefault("annotations", {})[QUEUE_NAME] = queue
        for template in _pod_templates(content):
            template.setdefault("metadata", {}).setdefault("annotations", {})[QUEUE_NAME] = queue


def _hold(content: dict[str, Any], kind: Kind) -> None:
    """Raises InvalidRequest for a workload that cannot be held."""
    if kind.kind == "Pod":
        content.setdefault("spec", {}).setdefault("schedulingGates", []).append({"name": HOLD_GATE})
    elif any(True for _ in _pod_templates(content)):
        _merge(content, suspension(Target(content, kind, ()), suspended=True))


def _merge(into: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def _pod_templates(content: Any) -> Iterable[dict[str, Any]]:
    """Of pods that HBox places, at any depth: objects whose `spec` has containers; a Pod is its own."""
    if isinstance(content, dict):
        spec = content.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            if spec.get("schedulerName") == SCHEDULER_NAME:
                yield content
            return
        for value in content.values():
            yield from _pod_templates(value)
    elif isinstance(content, list):
        for value in content:
            yield from _pod_templates(value)
