"""Each service's own identity in a cluster: an account with the least rights it needs, and a token that is renewed in time.

The rights are the files in `rbac/`, which the Helm chart has too. Tokens come from the TokenRequest API and live in files that only their
owner may read; kubeconfigs name those files, so that a renewal reaches a running service without a restart.
"""

import asyncio
import base64
import json
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import yaml

from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.kube import KubeClient, Resource, apply
from hbox_common.kube.definitions import FIELD_MANAGER
from hbox_common.yamltext import settings_of

from ..exits import leaf
from ..services import SERVICES, SHARDED

T = TypeVar("T")

NAMESPACE = "hbox-system"

#: Asked for; servers may give longer ones. An hour bounds what a stolen token is good for, as the kubelet's do.
TOKEN_S = 3600

#: Of a token's life, as the kubelet renews: a fifth of it is left for an API server that is away.
_RENEW_AT = 0.8
_RETRY_S = 10.0
_SHORTEST_S = 60.0

#: For rights just given to reach the authorizer, which watches them.
_EFFECT_S = 10.0

_ACCOUNTS = Resource("", "v1", "serviceaccounts", namespaced=True)
_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)


@dataclass(frozen=True, slots=True)
class Identity:
    """One service's account."""

    service: str
    manifests: tuple[Mapping[str, Any], ...]  #: the account, and where it has rights, roles and bindings

    @property
    def rights(self) -> tuple[Mapping[str, str], ...]:
        """All that it may do, one by one, as the `resourceAttributes` of a SubjectAccessReview."""
        return tuple(
            {"group": group, "resource": resource, "subresource": sub, "verb": verb, "name": name}
            | ({"namespace": manifest["metadata"]["namespace"]} if manifest["kind"] == "Role" else {})
            for manifest in self.manifests
            if manifest["kind"] in ("ClusterRole", "Role")
            for rule in manifest["rules"]
            for group in rule["apiGroups"]
            for resource, _, sub in (plural.partition("/") for plural in rule["resources"])
            for name in rule.get("resourceNames") or ("",)
            for verb in rule["verbs"]
        )

    @property
    def user(self) -> str:
        """As the API server calls it."""
        return f"system:serviceaccount:{NAMESPACE}:{self.service}"


def identities(schedulers: Sequence[str] = (SHARDED,)) -> tuple[Identity, ...]:
    """Those of all services, by name. `schedulers`: what they, and their leases, are called; several where there are shards."""
    files = sorted((f for f in resources.files(__package__).joinpath("rbac").iterdir() if f.name.endswith(".yaml")), key=str)
    found = {f.name.removesuffix(".yaml"): tuple(yaml.safe_load_all(f.read_text())) for f in files}
    for rule in (rule for manifest in found[SHARDED] for rule in manifest.get("rules", ())):
        if "resourceNames" in rule:
            rule["resourceNames"] = list(schedulers)
    return tuple(Identity(service, manifests) for service, manifests in found.items())


async def bring(client: KubeClient, notify: Callable[[str], None], *, schedulers: Sequence[str] = (SHARDED,)) -> None:
    """Apply accounts and rights by server-side apply, and return when they are in effect. `schedulers`: as in `identities`.

    Raises InvalidRequest, with a hint, if the user lacks the rights, and Unavailable.
    """
    every = identities(schedulers)
    try:
        await bring_namespace(client)
        await _together(_give(client, identity) for identity in every)
    except InvalidRequest as e:
        raise _refused(e) from e
    notify(f"applied accounts and rights of {len(every)} services in namespace {NAMESPACE}")


async def bring_namespace(client: KubeClient) -> None:
    """Applies the namespace of our accounts and leases. Raises InvalidRequest, Unavailable."""
    await apply(client, _NAMESPACE_MANIFEST, field_manager=FIELD_MANAGER)


class Tokens:
    """Tokens and kubeconfigs, in `folder`, of the services that `hbox up` starts and that have rights. No process would use one of another service."""

    def __init__(self, folder: Path, given: Path) -> None:
        self._folder = folder
        self._given = given
        self._services = tuple(
            identity.service for identity in identities() if identity.rights and identity.service in SERVICES
        )

    async def issue(self, client: KubeClient) -> float:
        """Writes a new token for each service and returns after how many seconds the next ones are due. Raises InvalidRequest, Unavailable."""
        try:
            lives = await _together(self._issue(client, service) for service in self._services)
        except InvalidRequest as e:
            raise _refused(e) from e
        return min(lives) * _RENEW_AT

    async def _issue(self, client: KubeClient, service: str) -> float:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_S},
        }
        answer = await client.json("POST", _ACCOUNTS.path(NAMESPACE, service, "token"), body=body)
        try:
            # A duration, since the server's clock may differ from ours; at least _SHORTEST_S, so that requests have a pause.
            token, life_s = str(answer["status"]["token"]), max(_SHORTEST_S, float(answer["spec"]["expirationSeconds"]))
        except (KeyError, TypeError, ValueError) as e:
            raise Unavailable(f"the API server gives no token for {service}: its answer has no {e}") from e
        _replace_secret(self._folder / f"{service}.token", token)
        return life_s

    def write_kubeconfigs(self) -> dict[str, str]:
        """One for each service with rights, with the cluster as in the given kubeconfig; service -> path. Raises InvalidRequest."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        cluster = cluster_of(self._given)
        paths = {}
        for service in self._services:
            content = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "cluster", "cluster": cluster}],
                "users": [{"name": service, "user": {"tokenFile": f"{service}.token"}}],
                "contexts": [{"name": "hbox", "context": {"cluster": "cluster", "user": service, "namespace": NAMESPACE}}],
                "current-context": "hbox",
            }
            path = self._folder / f"{service}.kubeconfig"
            _replace_secret(path, json.dumps(content, indent=2) + "\n")
            paths[service] = str(path)
        return paths

    async def renew(self, due_s: float, notify: Callable[[str], None]) -> None:
        """Renew the tokens until cancelled, first after `due_s`. A failure is printed once and retried."""
        failed = False
        while True:
            await asyncio.sleep(due_s)
            try:
                # The kubeconfig is read anew: its own credentials may have been renewed since.
                async with KubeClient.connect(str(self._given), user_agent="hbox") as client:
                    due_s = await self.issue(client)
            except (HBoxError, OSError) as e:  # also a disk that is full
                if not failed:
                    notify(f"the services' tokens could not be renewed, tried again every {_RETRY_S:g} s: {e}")
                failed, due_s = True, _RETRY_S
            else:
                if failed:
                    notify("the services' tokens are renewed")
                failed = False


def cluster_of(kubeconfig: Path) -> dict[str, Any]:
    """The cluster of the kubeconfig's current context, with the content of the certificate authority's file.

    Raises InvalidRequest if there is no current context, or a file cannot be read.
    """
    try:
        content = settings_of(kubeconfig.expanduser())
        context = next(c["context"] for c in content["contexts"] if c["name"] == content["current-context"])
        cluster: dict[str, Any] = dict(next(c["cluster"] for c in content["clusters"] if c["name"] == context["cluster"]))
        if file := cluster.pop("certificate-authority", None):
            authority = (kubeconfig.expanduser().parent / file).read_bytes()
            cluster.setdefault("certificate-authority-data", base64.b64encode(authority).decode())
    except (OSError, InvalidRequest, KeyError, TypeError, StopIteration) as e:
        raise InvalidRequest(
            f"kubeconfig {kubeconfig}: no cluster of a current context can be read from it ({type(e).__name__}: {e})",
            hint=f"`kubectl --kubeconfig {kubeconfig} version` should work",
        ) from e
    return cluster


_NAMESPACE_MANIFEST: Mapping[str, Any] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "hbox"}},
}


async def _give(client: KubeClient, identity: Identity) -> None:
    for manifest in identity.manifests:
        await apply(client, manifest, field_manager=FIELD_MANAGER)
    await _in_effect(client, identity)


async def _in_effect(client: KubeClient, identity: Identity) -> None:
    """Returns when the API server would let the service do what its rules say. A service that asked before that would be refused."""
    try:
        async with asyncio.timeout(_EFFECT_S):
            for attributes in identity.rights:
                review = {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SubjectAccessReview",
                    "spec": {"user": identity.user, "resourceAttributes": attributes},
                }
                while True:
                    if (await client.json("POST", _REVIEWS.path(), body=review))["status"]["allowed"]:
                        break
                    await asyncio.sleep(0.02)
    except TimeoutError as e:
        raise Unavailable(
            f"the rights of {identity.user} are not in effect after {_EFFECT_S:g} s",
            hint="does the cluster authorize by RBAC? if not, start with --as-given",
        ) from e


def _refused(e: InvalidRequest) -> InvalidRequest:
    if "HTTP 403" not in e.message:
        return e
    return InvalidRequest(
        e.message,
        hint="accounts and rights of the services can only be made by a cluster administrator: use one's kubeconfig, "
        "or start with --as-given, where all services act as the kubeconfig's user",
    )


async def _together(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All at once; raises the first one's error as it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(job) for job in jobs]
    except BaseExceptionGroup as group:
        raise leaf(group) from None
    return [task.result() for task in running]


def _replace_secret(path: Path, content: str) -> None:
    """For our user's eyes only, from its first byte on; readers see the old file or the new one."""
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
    draft.replace(path)
