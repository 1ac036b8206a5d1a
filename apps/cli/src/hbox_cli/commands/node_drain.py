"""`hbox node drain` and `hbox node undrain`."""

import time
from typing import TYPE_CHECKING, Any

import click

from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound

from ..context import Context, platform_options
from ..exits import Faulty
from ..names import NODE_NAME
from ..output import notify
from ..times import DURATION
from ..workloads.changes import confirm, dry_run_option

if TYPE_CHECKING:
    from ..access.cluster import ClusterApi, Object

#: Who cordoned the node, in the annotation `hbox.io/cordoned-by`.
OWNER = "hbox-cli"
POLL_S = 1.0
SHOWN = 3


@click.command("drain")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", type=NODE_NAME)
@click.option("--reason", required=True, help="Why, for other operators: `hbox nodes` and `hbox why` print it.")
@click.option(
    "--timeout", "timeout_s", type=DURATION, default="10m", show_default=True, help="Longest wait until the pods are gone."
)
@click.option("--keep-pods", is_flag=True, help="Only close the nodes; their pods run on.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@dry_run_option
@platform_options
def drain(
    ctx: Context, nodes: tuple[str, ...], *, reason: str, timeout_s: float, keep_pods: bool, yes: bool, dry_run: str | None
) -> None:
    """Close nodes for new pods, with a reason, and evict their pods. DaemonSets' pods stay; disruption budgets apply, and are retried.

    \b
    hbox node drain node-0007 --reason 'replace NIC 3'
    hbox node drain node-0007 node-0008 --reason 'firmware' --keep-pods
    hbox node drain node-0007 --reason x --dry-run

    Exit status 124 if pods are left after --timeout; the nodes stay closed. It needs the rights to patch nodes and to create pods/eviction.
    """
    from ..access.cluster import NODE, cluster_of  # noqa: PLC0415
    from ..workloads.changes import Change, carry_out  # noqa: PLC0415

    if not reason.strip():
        raise InvalidRequest("--reason is empty", hint="say what is done to the node")
    api = cluster_of(ctx)
    found = [_closable(api, name) for name in nodes]
    pods = [] if keep_pods else [pod for name in nodes for pod in _evictable(api, name)]
    if dry_run is None and pods:
        confirm(
            f"Close {', '.join(nodes)} and evict {_extent(pods)}?",
            yes=yes,
            again=f"hbox node drain {' '.join(nodes)} --reason ...",
        )
    marks = {"hbox.io/cordoned-by": OWNER, "hbox.io/cordon-reason": reason}
    changes = []
    for node in found:
        name = str(node["metadata"]["name"])
        body = {"metadata": {"annotations": marks}, "spec": {"unschedulable": True}}
        changes.append(Change("patch", NODE, "", name, f"node {name} closed: {reason}", body))
    carry_out(api, changes, dry_run)
    if dry_run is not None:
        for pod in pods:
            notify(f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']} would be evicted")
        return
    if pods:
        _evict_all(api, nodes, timeout_s)
        notify(f"{', '.join(nodes)} empty: {_extent(pods)} evicted")


@click.command("undrain")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", type=NODE_NAME)
@click.option("--force", is_flag=True, help="Open nodes also if HBox's health-monitor closed them.")
@dry_run_option
@platform_options
def undrain(ctx: Context, nodes: tuple[str, ...], *, force: bool, dry_run: str | None) -> None:
    """Open nodes for new pods again, as `kubectl uncordon`, and remove the reason.

    \b
    hbox node undrain node-0007
    """
    from ..access.cluster import NODE, cluster_of  # noqa: PLC0415
    from ..workloads.changes import Change, carry_out  # noqa: PLC0415

    api = cluster_of(ctx)
    changes = []
    for name in nodes:
        node = _node(api, name)
        by = (node["metadata"].get("annotations") or {}).get("hbox.io/cordoned-by", "")
        if not (node.get("spec") or {}).get("unschedulable"):
            notify(f"node {name} is open")
            continue
        if by not in ("", OWNER) and not force:
            raise Conflict(
                f"node {name} was closed by {by}", hint=f"`hbox health show {name}` has the reason; --force opens it"
            )
        marks = dict.fromkeys(("hbox.io/cordoned-by", "hbox.io/cordon-reason"))
        body = {"metadata": {"annotations": marks}, "spec": {"unschedulable": None}}
        changes.append(Change("patch", NODE, "", name, f"node {name} open", body))
    carry_out(api, changes, dry_run)


def _node(api: "ClusterApi", name: str) -> "Object":
    from ..access.cluster import NODE  # noqa: PLC0415

    try:
        return api.get(NODE, "", name)
    except NotFound as e:
        raise NotFound(f"there is no node {name}", hint="`hbox nodes` lists them") from e


def _closable(api: "ClusterApi", name: str) -> "Object":
    """The node. Raises Conflict if a service of HBox closed it, whose reason would be lost."""
    node = _node(api, name)
    by = (node["metadata"].get("annotations") or {}).get("hbox.io/cordoned-by", "")
    if (node.get("spec") or {}).get("unschedulable") and by not in ("", OWNER):
        raise Conflict(f"node {name} is closed by {by} already", hint=f"hbox health show {name}")
    return node


def _evictable(api: "ClusterApi", node: str) -> list[Any]:
    """Pods that a drain evicts: neither ended, nor of a DaemonSet, nor static."""
    from ..access.cluster import POD  # noqa: PLC0415
    from ..workloads.targets import ENDED, controller_of, phase_of  # noqa: PLC0415

    return [
        pod
        for pod in api.listed(POD, fieldSelector=f"spec.nodeName={node}")
        if phase_of(pod) not in ENDED
        and (controller_of(pod) or {}).get("kind") not in ("DaemonSet", "Node")
        and "kubernetes.io/config.mirror" not in (pod["metadata"].get("annotations") or {})
    ]


def _extent(pods: list[Any]) -> str:
    spaces = {pod["metadata"]["namespace"] for pod in pods}
    return f"{len(pods)} pod{'s' if len(pods) > 1 else ''} of {len(spaces)} namespace{'s' if len(spaces) > 1 else ''}"


def _evict_all(api: "ClusterApi", nodes: tuple[str, ...], timeout_s: float) -> None:
    """Until no pod is left. Raises TimeoutError with the last refusal, Faulty where the user may not evict."""
    deadline = time.monotonic() + timeout_s
    refused = ""
    while left := [pod for name in nodes for pod in _evictable(api, name)]:
        for pod in left:
            if "deletionTimestamp" not in pod["metadata"]:
                refused = _evict(api, pod) or refused
        if time.monotonic() > deadline:
            names = ", ".join(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in left[:SHOWN])
            raise TimeoutError(f"{_extent(left)} left after {timeout_s:g} s: {names}{'; ' * bool(refused)}{refused}")
        time.sleep(POLL_S)


def _evict(api: "ClusterApi", pod: Any) -> str:
    """Why the eviction was refused for now; empty if it was not."""
    from ..access.cluster import POD  # noqa: PLC0415

    metadata = pod["metadata"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
    }
    try:
        api.server.send("POST", POD.path(metadata["namespace"], metadata["name"], "eviction"), body)
    except NotFound:
        return ""
    except InvalidRequest as e:
        raise Faulty(f"pod {metadata['namespace']}/{metadata['name']} cannot be evicted: {e.message}", hint=e.hint) from e
    except HBoxError as e:  # 429: a disruption budget
        return e.message
    return ""
