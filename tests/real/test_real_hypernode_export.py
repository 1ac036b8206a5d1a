"""Domains of a fabric as HyperNodes on a real API server, under Volcano's definition and its admission policy."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.errors import InvalidRequest
from hbox_common.kube import HYPERNODES, KubeClient, apply, wait_established
from hbox_common.model import HyperNode, NodeName
from hbox_sandbox.fabric import FabricPlan
from hbox_topology.adapters.export import EXPORTED, HyperNodeExport
from hbox_topology.core.fabric.build import build
from hbox_topology.core.fabric.domains import domains_of, hypernode_object

from ..waiting import until
from .control_plane import control_plane

pytestmark = [pytest.mark.timeout(300)]

NAME = "hypernodes.topology.volcano.sh"
#: What Volcano 1.14's definition asks of a member, and of a HyperNode.
DNS = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}


def _object(required: Sequence[str] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": [*required]} if required else {})}


SELECTOR = _object(
    exactMatch=_object(["name"], name={**_TEXT, "minLength": 1, "maxLength": 253, "pattern": DNS}),
    regexMatch=_object(["pattern"], pattern={**_TEXT, "minLength": 1}),
    labelMatch=_object(matchLabels={"type": "object", "additionalProperties": _TEXT}),
) | {
    "x-kubernetes-validations": [
        {
            "rule": "(has(self.exactMatch) ? 1 : 0) + (has(self.regexMatch) ? 1 : 0) + (has(self.labelMatch) ? 1 : 0) == 1",
            "message": "one selector",
        }
    ]
}
MEMBERS = {
    "type": "array",
    "minItems": 1,
    "items": _object(["type"], selector=SELECTOR, type={**_TEXT, "enum": ["Node", "HyperNode"]}),
}
SPEC = _object(["tier"], tier=_COUNT, tierName={**_TEXT, "maxLength": 253}, members=MEMBERS)
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": NAME},
    "spec": {
        "group": "topology.volcano.sh",
        "names": {"kind": "HyperNode", "listKind": "HyperNodeList", "plural": "hypernodes", "singular": "hypernode"},
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1alpha1", "served": True, "storage": True, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": _object(metadata={"type": "object"}, spec=SPEC, status=_object(nodeCount=_COUNT))},
            }
        ],
    },
}  # fmt: skip
#: As its policy does, it takes names of members for qualified names, which have 63 characters at most.
RULES = {
    "apiGroups": ["topology.volcano.sh"],
    "apiVersions": ["v1alpha1"],
    "resources": ["hypernodes"],
    "operations": ["CREATE", "UPDATE"],
}
POLICY: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "hypernodes"},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [RULES]},
        "validations": [
            {
                "expression": "object.spec.members.all(m, !has(m.selector.exactMatch) || "
                "!format.qualifiedName().validate(m.selector.exactMatch.name).hasValue())",
                "message": "the name of a member is too long",
            }
        ],
    },
}  # fmt: skip
BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "hypernodes"},
    "spec": {"policyName": "hypernodes", "validationActions": ["Deny"]},
}
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("export"), programs=()) as plane:
        yield plane


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        await apply(client, DEFINITION, field_manager="test")
        await wait_established(client, NAME)
        yield client
        for name in await there(client):
            await client.json("DELETE", HYPERNODES.path(name=name))


def domains(plan: FabricPlan = FabricPlan(pods=2, units=2, hosts=(4,), cores=2)) -> tuple[HyperNode, ...]:  # noqa: B008  a frozen value
    graph = build(plan.snapshot())
    return domains_of(graph, [host for unit in graph.units for host in unit.hosts])[0]


async def there(client: KubeClient) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in (await client.json("GET", HYPERNODES.path()))["items"]}


def exporting(client: KubeClient, *of: HyperNode) -> HyperNodeExport:
    export = HyperNodeExport(client, frozenset({"ib"}))
    export.put("ib", of)
    return export


async def test_domains_are_written_as_volcano_takes_them_and_the_statuses_of_others_stay(client: KubeClient) -> None:
    of = domains()
    assert sorted(one.tier for one in of) == [1, 1, 1, 1, 2, 2, 3]
    export = exporting(client, *of)
    await export.reconcile()
    found = await there(client)
    assert {name: one["spec"] for name, one in found.items()} == {one.name: hypernode_object(one)["spec"] for one in of}
    assert all(one["metadata"]["labels"] == {EXPORTED: "true"} for one in found.values())
    counted = next(one.name for one in of if one.tier == 1)
    await client.json(
        "PATCH", HYPERNODES.path(name=counted, subresource="status"), body={"status": {"nodeCount": 4}}, content_type="application/merge-patch+json"
    )  # fmt: skip
    before = {name: one["metadata"]["resourceVersion"] for name, one in (await there(client)).items()}
    await export.reconcile()
    assert {name: one["metadata"]["resourceVersion"] for name, one in (await there(client)).items()} == before
    assert (await there(client))[counted]["status"] == {"nodeCount": 4}


async def test_only_ours_are_changed_and_deleted(client: KubeClient, caplog: pytest.LogCaptureFixture) -> None:
    first, *others = domains()
    rack = HyperNode("rack-7", 7, "rack", nodes=(NodeName("somebody"),))
    for theirs in (rack, replace(first, tier=9, tier_name="theirs")):
        await client.json(
            "POST", HYPERNODES.path(), body=hypernode_object(theirs, {"volcano.sh/network-topology-source": "label"})
        )
    export = exporting(client, first, *others)
    with caplog.at_level(logging.WARNING):
        await export.reconcile()
    assert f"HyperNode {first.name} has another owner" in caplog.text
    found = await there(client)
    assert (found["rack-7"]["spec"]["tier"], found[first.name]["spec"]["tier"]) == (7, 9)
    await client.json("DELETE", HYPERNODES.path(name=others[0].name))
    body = {"spec": {"tier": 5}}
    await client.json("PATCH", HYPERNODES.path(name=others[1].name), body=body, content_type="application/merge-patch+json")
    await export.reconcile()
    found = await there(client)
    assert (found[others[0].name]["spec"]["tier"], found[others[1].name]["spec"]["tier"]) == (others[0].tier, others[1].tier)
    export.put("ib", ())
    await export.reconcile()
    assert set(await there(client)) == {"rack-7", first.name}


async def test_a_domain_that_the_cluster_refuses_is_left_out_and_the_others_are_written(
    client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    await apply(client, POLICY, field_manager="test")
    await apply(client, BINDING, field_manager="test")
    long = HyperNode("leaf-long", 1, "leafgroup", nodes=(NodeName("n" * 70),))

    async def refused() -> bool:
        dry = {"dryRun": "All"}
        try:
            await client.json("POST", HYPERNODES.path(), body=hypernode_object(long), params=dry)
        except InvalidRequest as e:
            return "too long" in str(e)
        return False

    try:
        await until(refused, "the policy is in force", timeout_s=60)
        export = exporting(client, long, *domains())
        with caplog.at_level(logging.WARNING):
            await export.reconcile()
            await export.reconcile()
        assert set(await there(client)) == {one.name for one in domains()}
        said = [one.message for one in caplog.records if "leaf-long" in one.message]
        assert len(said) == 1
        assert "too long" in said[0]
    finally:
        await client.json("DELETE", f"{BINDINGS}/hypernodes")
        await client.json("DELETE", f"{POLICIES}/hypernodes")
