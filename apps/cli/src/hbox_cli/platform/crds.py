"""Creates the objects that the platform needs in a cluster: the definitions of Volcano's Queue, PodGroup and HyperNode, the queues `root` and `default`, and,
on request, the PriorityClasses of the priority levels.

A definition that another client wrote stays as it is: Volcano's definitions have more fields than HBox's, and Volcano's scheduler stops with HBox's. The
platform reports the fields that HBox reads and such a definition drops.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hbox_common.errors import HBoxError, InvalidRequest, NotFound
from hbox_common.kube import CRDS, PRIORITYCLASSES, QUEUES, KubeClient, Resource, apply, wait_established
from hbox_common.kube.definitions import DEFINITIONS, FIELD_MANAGER, MANAGED_BY, UNREAD, schema_of
from hbox_common.model import DEFAULT_QUEUE, OFFLINE_CLASS, ROOT_QUEUE
from hbox_common.model.annotations import PRIORITY_CLASSES
from hbox_common.model.queue import NO_CLASS

#: Queues that vc-scheduler creates at its start, and Volcano's controllers and webhooks require. `root` has no pods.
_QUEUES: Mapping[str, Mapping[str, Any]] = {
    ROOT_QUEUE: {"weight": 1, "reclaimable": False},
    DEFAULT_QUEUE: {"weight": 1, "reclaimable": True},
}


#: PriorityClasses by name: of HBox's levels, and of work on what is idle. What names none has 0.
LEVELS: Mapping[str, int] = {"high": 300, "medium": 200, "low": -100}
CLASSES: Mapping[str, int] = {**LEVELS, OFFLINE_CLASS: -200}
_MEANS = {
    "high": "HBox: preempts low inside its queue; not preemptable",
    "medium": "HBox: uses its queue's share; neither preempts nor is preempted",
    "low": "HBox: preemptable by high inside its queue",
    OFFLINE_CLASS: "HBox: runs on otherwise idle resources, counts in no share, evicted first",
}


async def bring(client: KubeClient, notify: Callable[[str], None], *, listed: bool = False) -> None:
    """Apply missing definitions by server-side apply and print each. `listed`: a new queue `default` takes jobs of `everyday_classes` only.

    Raises Unavailable or InvalidRequest (rights are missing, a definition cannot be used).
    """
    for manifest in DEFINITIONS:
        name = manifest["metadata"]["name"]
        found = await _found(client, CRDS, name)
        if found is None or is_ours(found):
            await apply(client, manifest, field_manager=FIELD_MANAGER)
            notify(f"applied CRD {name}")
        else:
            lacking = lacks(found, manifest)
            notify(f"found CRD {name} with another owner: used unchanged{_remark(lacking)}")
    for manifest in DEFINITIONS:
        await wait_established(client, manifest["metadata"]["name"])
    for name, spec in _QUEUES.items():
        try:
            await client.json("GET", QUEUES.path(name=name))
        except NotFound:
            classes = await everyday_classes(client) if listed and name == DEFAULT_QUEUE else ()
            await _make_queue(client, name, spec, classes, notify)


async def everyday_classes(client: KubeClient) -> tuple[str, ...]:
    """PriorityClasses that are safe for all tenants: none, the cluster's default class if it has one, and HBox's classes except `high`. An administrator adds
    `high`, the system's classes and other classes."""
    found = (await client.json("GET", PRIORITYCLASSES.path()))["items"]
    ours = {one["metadata"]["name"] for one in found if is_ours(one)}
    default = [one["metadata"]["name"] for one in found if one.get("globalDefault")]
    return tuple(dict.fromkeys((NO_CLASS, *default, *(name for name in CLASSES if name != "high" and name in ours))))


async def bring_levels(client: KubeClient, notify: Callable[[str], None]) -> None:
    """Create the missing PriorityClasses of CLASSES, and print their names. If another owner has one of LEVELS, create no other level: that owner defines the
    meaning of the names. Raises Unavailable or InvalidRequest."""
    found = {name: await _found(client, PRIORITYCLASSES, name) for name in CLASSES}
    taken = [name for name in LEVELS if (there := found[name]) is not None and not is_ours(there)]
    for name, value in CLASSES.items():
        if found[name] is not None or (taken and name in LEVELS):
            continue
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name, "labels": {MANAGED_BY: FIELD_MANAGER}},
            "value": value,
            "description": _MEANS[name],
        }
        await apply(client, body, field_manager=FIELD_MANAGER)
        notify(f"made PriorityClass {name}")
    if taken and (missing := [name for name in LEVELS if found[name] is None]):
        notify(
            f"found PriorityClass {', '.join(taken)} with another owner: {', '.join(missing)} not created, and HBox has no priority levels here"
        )


async def lacking(client: KubeClient) -> list[str]:
    """What the cluster's definitions do not keep of what HBox reads, and which of our queues are gone, a sentence for each.

    Raises NotFound where a definition is not there, and as `lacks`.
    """
    remarks = []
    for manifest in DEFINITIONS:
        name = manifest["metadata"]["name"]
        found = await client.json("GET", CRDS.path(name=name))
        if missing := lacks(found, manifest):
            remarks.append(f"CRD {name}{_remark(missing)}")
    for queue in _QUEUES:
        try:
            await client.json("GET", QUEUES.path(name=queue))
        except NotFound:
            remarks.append(
                f"there is no Queue {queue}, as when its definition was deleted: `hbox definitions apply` makes it again"
            )
    return remarks


def lacks(found: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """The fields that HBox reads or writes and another definition of the same kind does not keep, as "spec.minTaskMember", sorted.

    Raises InvalidRequest where it does not serve the version that HBox reads.
    """
    (wanted,) = ours["spec"]["versions"]
    served = [version for version in found["spec"]["versions"] if version["name"] == wanted["name"] and version.get("served")]
    if not served:
        name = found["metadata"]["name"]
        raise InvalidRequest(f"the CRD {name} does not serve {wanted['name']}", hint="install one that does, or delete it")
    schema = (served[0].get("schema") or {}).get("openAPIV3Schema") or {}
    return sorted(set(_dropped(schema, schema_of(ours), "")) - UNREAD[ours["spec"]["names"]["kind"]])


def _dropped(theirs: Mapping[str, Any], ours: Mapping[str, Any], path: str) -> Iterator[str]:
    """Fields under `path` that a schema prunes and ours names."""
    if "items" in ours:
        yield from _dropped(theirs.get("items") or {}, ours["items"], f"{path}[]")
    known = theirs.get("properties") or {}
    if theirs.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in theirs:
        known = dict.fromkeys(ours.get("properties") or {}) | known
    for field, wanted in (ours.get("properties") or {}).items():
        below = f"{path}.{field}".lstrip(".")
        if field not in known:
            yield below
        elif known[field] is not None:
            yield from _dropped(known[field], wanted, below)


def _remark(missing: Sequence[str]) -> str:
    return f"; it does not keep {', '.join(missing)}: HBox does not see what is written there" if missing else ""


async def _found(client: KubeClient, kind: Resource, name: str) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = await client.json("GET", kind.path(name=name))
    except NotFound:
        return None
    return found


def is_ours(found: Mapping[str, Any]) -> bool:
    """Whether only HBox wrote the object, by its managed fields. HBox's label is no evidence: it stays when another client applies its own definition."""
    fields = found["metadata"].get("managedFields") or ()
    writers = {entry.get("manager") for entry in fields if entry.get("subresource") != "status"}
    return writers == {FIELD_MANAGER}


async def _make_queue(
    client: KubeClient, name: str, spec: Mapping[str, Any], classes: Sequence[str], notify: Callable[[str], None]
) -> None:
    kind = {"apiVersion": f"{QUEUES.group}/{QUEUES.version}", "kind": "Queue"}
    notes = {"annotations": {PRIORITY_CLASSES: ", ".join(classes)}} if classes else {}
    try:
        await _apply_fresh(client, {**kind, "metadata": {"name": name, **notes}, "spec": spec})
    except HBoxError as e:  # a webhook of others that is not up yet, or does not want it; HBox itself can do without
        notify(f"queue {name} cannot be made, and Volcano's controllers rely on it: {e}")
    else:
        notify(f"applied queue {name}" + (f", for jobs of PriorityClass {', '.join(classes)}" if classes else ""))


async def _apply_fresh(client: KubeClient, manifest: Mapping[str, Any]) -> None:
    """An API server's discovery shows a new kind a moment after the definition is established."""
    for _ in range(40):
        try:
            await apply(client, manifest, field_manager=FIELD_MANAGER)
        except NotFound:
            await asyncio.sleep(0.1)
        else:
            return
    await apply(client, manifest, field_manager=FIELD_MANAGER)
