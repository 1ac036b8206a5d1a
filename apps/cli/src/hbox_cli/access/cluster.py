"""The Kubernetes API with the user's own rights, for commands that read and change the objects of jobs.

The synchronous client of `http`: a short command starts in a third of the time that the services' client takes to import.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hbox_common.errors import InvalidRequest, NotFound

from . import kubeconfig
from .choice import Choice
from .kubeconfig import KubeAccess
from .objectsource import kube_server

if TYPE_CHECKING:
    from ..context import Context

Object = Mapping[str, Any]

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Kind:
    """Where the objects of one kind are."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        within = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        parts = [f"{root}{within}/{self.plural}", *(quote(part, safe="") for part in (name, sub) if part)]
        return "/".join(parts)

    @property
    def resource(self) -> str:
        """As kubectl takes it: `pods`, `jobs`, `podgroups.scheduling.volcano.sh`."""
        group = self.api_version.rpartition("/")[0]
        return self.plural if group in ("", "apps", "batch") else f"{self.plural}.{group}"


POD = Kind("v1", "Pod", "pods")
NODE = Kind("v1", "Node", "nodes", namespaced=False)
EVENT = Kind("v1", "Event", "events")
JOB = Kind("batch/v1", "Job", "jobs")
POD_GROUP = Kind("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups")


class ClusterApi:
    """One cluster as one user. Methods raise NotFound, Conflict, InvalidRequest (`HTTP 403` in the message where it is not allowed) and Unavailable."""

    def __init__(self, access: KubeAccess) -> None:
        self.access = access
        self.server = kube_server(access)
        self._kinds: dict[tuple[str, str], Kind] = {}

    @property
    def namespace(self) -> str:
        """Of the context, where the user names none."""
        return self.access.namespace

    def kind(self, api_version: str, kind: str) -> Kind:
        """By discovery. Raises NotFound where the cluster does not serve it."""
        known = next(
            (one for one in (POD, NODE, EVENT, JOB, POD_GROUP) if (one.api_version, one.kind) == (api_version, kind)), None
        )
        if known is not None:
            return known
        if (found := self._kinds.get((api_version, kind))) is None:
            path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            try:
                listed = self.server.get(path)
            except NotFound:
                listed = {}
            for one in listed.get("resources") or ():
                if "/" not in one["name"]:
                    self._kinds[api_version, one["kind"]] = Kind(api_version, one["kind"], one["name"], bool(one["namespaced"]))
            if (found := self._kinds.get((api_version, kind))) is None:
                raise NotFound(f"the cluster serves no {kind} of {api_version}", hint="kubectl api-resources")
        return found

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        found: Object = self.server.get(kind.path(namespace, name))
        return found

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        try:
            return self.get(kind, namespace, name)
        except NotFound:
            return None

    def listed(self, kind: Kind, namespace: str = "", **params: str) -> list[Object]:
        """All objects, by pages. `params`: labelSelector, fieldSelector."""
        pages = self.server.pages(kind.path(namespace), params, limit=_PAGE)
        named = {"apiVersion": kind.api_version, "kind": kind.kind}
        return [{**named, **one} for page in pages for one in page["items"]]

    def log_lines(self, namespace: str, pod: str, params: Mapping[str, str]) -> Iterator[bytes]:
        return self.server.lines(POD.path(namespace, pod, "log"), params)

    def kubectl(self) -> list[str]:
        """`kubectl` with the options that select the same cluster and user."""
        line = ["kubectl"]
        if self.access.files and os.environ.get("KUBECONFIG", "") != self.access.files:
            line += ["--kubeconfig", self.access.files] if os.pathsep not in self.access.files else []
        return line + (["--context", self.access.name] if self.access.files and self.access.name else [])


def cluster_of(ctx: "Context") -> ClusterApi:
    """The cluster of the platform that the command reads. Raises InvalidRequest where none is known, as with `--server` alone."""
    from . import choice_of  # noqa: PLC0415  it imports this package

    return ClusterApi(_access_of(choice_of(ctx)))


def _access_of(choice: Choice) -> KubeAccess:
    if choice.state is not None:
        from ..platform.layout import Layout  # noqa: PLC0415  0.2 s, for platforms of `hbox up`

        return _read(Layout(choice.state).running().kubeconfig)
    if (found := choice.kube or choice.account) is not None:
        return found
    if choice.kubeconfig and (found := kubeconfig.read_context([Path(one) for one in choice.kubeconfig.split(os.pathsep)])):
        return found
    raise InvalidRequest(
        f"{choice.name} names no Kubernetes cluster, whose objects this command reads or changes",
        hint="name a context of kubectl: --context NAME",
    )


def _read(path: str) -> KubeAccess:
    found = kubeconfig.read_context([Path(path)]) if path else kubeconfig.in_pod(os.environ)
    if found is None:
        raise InvalidRequest(
            f"kubeconfig {path or 'of the pod'}: it names no current context", hint="kubectl config get-contexts"
        )
    return found
