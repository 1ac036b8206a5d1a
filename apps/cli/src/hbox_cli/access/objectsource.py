"""The last resort: jobs and queues from the Kubernetes API, with the user's own rights."""

import time
from collections.abc import Mapping
from typing import Any

from hbox_common.errors import InvalidRequest, NotFound

from .http import Endpoint, Server
from .jobnames import find
from .kubeconfig import KubeAccess
from .source import Item, Wanted

GROUPS, PODS, QUEUES = "podgroups", "pods", "queues"
_GROUP_PATH, _CORE_PATH = "/apis/scheduling.volcano.sh/v1beta1", "/api/v1"
PAGE = 500


def kube_server(kube: KubeAccess) -> Server:
    """Raises InvalidRequest for an address that is none."""
    endpoint = Endpoint(kube.server, kube.ca, kube.server_name, kube.proxy)
    return Server(endpoint, kube.credentials, what="the Kubernetes API")


class ObjectSource:
    """One cluster as one user. A user who may not list all namespaces gets those of the context's namespace."""

    def __init__(self, kube: KubeAccess) -> None:
        self._kube, self._server = kube, kube_server(kube)

    def jobs(self, wanted: Wanted) -> list[Item]:
        return wanted.of(self._jobs(wanted.namespace))

    def job(self, name: str) -> Item:
        return find(self._jobs(name.partition("/")[0] if "/" in name else None), name)

    def why(self, job: str) -> Item:
        return {
            **self.job(job),
            "explanation": None,
            "cardReasons": [],
            "latePods": [],
            "failingNodes": {},
            "unreportedNodes": {},
            "sickPods": [],
        }

    def queues(self) -> list[Item]:
        from .objects import queues_of  # noqa: PLC0415  the model takes 0.2 s to import

        return queues_of(self._listed(f"{_GROUP_PATH}/{QUEUES}"), now=time.time())

    def _jobs(self, namespace: str | None) -> list[Item]:
        from hbox_common.model import SCHEDULER_NAME  # noqa: PLC0415

        from .objects import job_items  # noqa: PLC0415

        try:
            groups, pods = self._in(namespace)
        except InvalidRequest as e:
            if namespace is not None or isinstance(e, NotFound):
                raise
            groups, pods = self._in(self._kube.namespace)
        return job_items(groups, pods, schedulers=(SCHEDULER_NAME,), now=time.time())

    def _in(self, namespace: str | None) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        within = f"/namespaces/{namespace}" if namespace is not None else ""
        live = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        groups = self._listed(f"{_GROUP_PATH}{within}/{GROUPS}")
        return groups, self._listed(f"{_CORE_PATH}{within}/{PODS}", live)

    def _listed(self, path: str, params: Mapping[str, str] = {}) -> list[Mapping[str, Any]]:
        pages = self._server.pages(path, params, limit=PAGE)
        return [one for page in pages for one in page["items"] if isinstance(one, Mapping)]
