"""Kinds of workloads that the cluster serves and that job-controller may not read: their pods would be single pods, not gangs."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hbox_common.errors import NotFound
from hbox_common.kube import KubeClient, NotAllowed, Resource
from hbox_common.workloads import Kind, Kinds

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False)
#: Of job-controller, and of its binding.
ROLE = "hbox:job-controller"
VERBS = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """`verbs`: those that job-controller lacks."""

    kind: Kind
    verbs: tuple[str, ...]

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}.{self.kind.group}" if self.kind.group else self.kind.plural


@dataclass(frozen=True, slots=True)
class Answer:
    """`message`: what was found; `remedy`: what to do if kinds are unreadable."""

    message: str
    unreadable: tuple[Unreadable, ...] = ()
    remedy: str = ""


async def found(client: KubeClient) -> Answer:
    """Raises Unavailable."""
    here = await served(client, Kinds.builtin())
    kinds = f"{len(here)} kinds of workloads" if len(here) != 1 else "1 kind of workloads"
    try:
        user = await _user(client)
        lacking = await unreadable(client, user, here) if user else []
    except NotAllowed:
        return Answer(f"the cluster serves {kinds}; this user may not ask what job-controller may read")
    except NotFound:
        return Answer(f"the cluster serves {kinds}; the API server does not review access")
    if not user:
        return Answer(f"the cluster serves {kinds}; job-controller has no role of its own ({ROLE})")
    if not lacking:
        return Answer(f"the cluster serves {kinds}, and job-controller may read them")
    named = ", ".join(f"{one.kind.kind} ({'/'.join(one.verbs)} of {one.resource})" for one in lacking)
    rules = "; ".join(f"{one.resource}: get, list, watch" for one in lacking)
    return Answer(
        f"the cluster has kinds that job-controller may not read: {named}; their pods are single pods, not gangs",
        tuple(lacking),
        f"`helm upgrade` (or `hbox up`) brings the rights of built-in kinds; else add to ClusterRole {ROLE}: {rules}",
    )


async def _user(client: KubeClient) -> str:
    """Job-controller's name at the API server, by the binding of its role; empty if there is none."""
    try:
        binding = await client.json("GET", _BINDINGS.path(name=ROLE))
    except NotFound:
        return ""
    accounts = [one for one in binding.get("subjects") or () if one.get("kind") == "ServiceAccount"]
    return f"system:serviceaccount:{accounts[0].get('namespace', '')}:{accounts[0].get('name', '')}" if accounts else ""


async def served(client: KubeClient, kinds: Iterable[Kind]) -> list[Kind]:
    """Those that the cluster serves in a version that HBox reads, by discovery: one request for each version of an API group."""
    wanted = list(kinds)
    paths = sorted({_path(kind.group, version) for kind in wanted for version in kind.versions})
    found = dict(zip(paths, await asyncio.gather(*(_plurals(client, path) for path in paths)), strict=True))
    return [kind for kind in wanted if any(kind.plural in found[_path(kind.group, version)] for version in kind.versions)]


async def unreadable(client: KubeClient, user: str, kinds: Iterable[Kind]) -> list[Unreadable]:
    """`user`: job-controller's, as the API server names it. Raises NotFound if the API server does not review access, NotAllowed if the current user may not
    ask about others."""
    asked = [(kind, verb) for kind in kinds for verb in VERBS]
    if not asked:
        return []
    # The first one alone: if it is refused, no other request is under way.
    first = await _may(client, user, *asked[0])
    answers = [first, *await asyncio.gather(*(_may(client, user, kind, verb) for kind, verb in asked[1:]))]
    lacking: dict[str, Unreadable] = {}
    for (kind, verb), yes in zip(asked, answers, strict=True):
        if not yes:
            known = lacking.get(f"{kind.group}/{kind.kind}")
            lacking[f"{kind.group}/{kind.kind}"] = Unreadable(kind, (*(known.verbs if known else ()), verb))
    return list(lacking.values())


def _path(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


async def _plurals(client: KubeClient, path: str) -> set[str]:
    try:
        answer: Mapping[str, Any] = await client.json("GET", path)
    except NotFound:
        return set()
    return {str(one.get("name", "")) for one in answer.get("resources") or ()}


async def _may(client: KubeClient, user: str, kind: Kind, verb: str) -> bool:
    resource = {"group": kind.group, "resource": kind.plural, "verb": verb}
    groups = ["system:serviceaccounts", "system:authenticated"]
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": resource},
    }
    answer = await client.json("POST", _REVIEWS, body=body)
    return bool(answer["status"]["allowed"])
