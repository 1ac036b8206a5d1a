"""Unknown fields of Queues and PodGroups, and the fields that their authors meant."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from hbox_common.kube import Metadata, Queue
from hbox_common.kube.definitions import POD_GROUP, QUEUE
from hbox_common.kube.reflector import Emit, Lines, Page, Reflector
from hbox_common.kube.unknownfields import LAST_APPLIED, MOST, SpecFields

from ....volcano_objects import POD_GROUP as WHOLE_GROUP
from ....volcano_objects import QUEUE as WHOLE_QUEUE

Json = dict[str, Any]
WEIGHT = "spec.wieght: unknown field, ignored; did you mean spec.weight?"


def found(definition: Any, spec: Json) -> tuple[str, ...]:
    return SpecFields(definition).unknown(spec)


@pytest.mark.parametrize(
    ("definition", "spec", "path", "near"),
    [
        (QUEUE, {"guaranteed": {"resource": {"cpu": "2"}}}, "spec.guaranteed", "spec.guarantee"),
        (QUEUE, {"wieght": 3}, "spec.wieght", "spec.weight"),
        (QUEUE, {"deserve": {"cpu": "2"}}, "spec.deserve", "spec.deserved"),
        (QUEUE, {"guarantee": {"cpu": "2"}}, "spec.guarantee.cpu", "spec.guarantee.resource.cpu"),
        (QUEUE, {"guarantee": {"resources": {"cpu": "2"}}}, "spec.guarantee.resources", "spec.guarantee.resource"),
        (
            QUEUE,
            {"guarantee": {"nvidia.com/gpu": 2}},
            "spec.guarantee.nvidia.com/gpu",
            "spec.guarantee.resource.nvidia.com/gpu",
        ),
        (QUEUE, {"capabilities": {"cpu": "2"}}, "spec.capabilities", "spec.capability"),
        (QUEUE, {"Weight": 3}, "spec.Weight", "spec.weight"),
        (QUEUE, {"resource": {"cpu": 2}}, "spec.resource", "spec.guarantee.resource"),
        (QUEUE, {"colour": "red"}, "spec.colour", ""),
        (POD_GROUP, {"minMembers": 3}, "spec.minMembers", "spec.minMember"),
        (POD_GROUP, {"min_member": 3}, "spec.min_member", "spec.minMember"),
        (POD_GROUP, {"priorityClass": "high"}, "spec.priorityClass", "spec.priorityClassName"),
        (POD_GROUP, {"highestTierAllowed": 1}, "spec.highestTierAllowed", "spec.networkTopology.highestTierAllowed"),
        (POD_GROUP, {"networkTopology": {"moed": "hard"}}, "spec.networkTopology.moed", "spec.networkTopology.mode"),
        (
            POD_GROUP,
            {"subGroupPolicy": [{"name": "a"}, {"groupSize": 2}]},
            "spec.subGroupPolicy[1].groupSize",
            "spec.subGroupPolicy[1].subGroupSize",
        ),
    ],
)
def test_an_unknown_field_is_named_with_the_nearest_known_one(definition: Any, spec: Json, path: str, near: str) -> None:
    assert found(definition, spec) == (f"{path}: unknown field, ignored" + (f"; did you mean {near}?" if near else ""),)


def test_volcanos_fields_are_all_known() -> None:
    assert (found(QUEUE, WHOLE_QUEUE["spec"]), found(POD_GROUP, WHOLE_GROUP["spec"])) == ((), ())


def test_only_the_first_unknown_fields_are_named() -> None:
    said = found(QUEUE, {f"field\n{number}" * 20: number for number in range(500)})
    assert (len(said), said[-1]) == (MOST + 1, "more unknown fields")
    assert all(len(one) < 200 and "\n" not in one for one in said)


@pytest.mark.parametrize(
    ("applied", "said"),
    [
        ('{"spec": {"wieght": 3}}', (f"{WEIGHT} (in the manifest that kubectl applied last)",)),
        ('{"spec": {"weight": 3}}', ()),
        ('{"spec": {"guaranteed": 3, "x": "' + "x" * 40_000 + '"}}', ()),
        ('{"spec": {"wieght": ' + "[" * 5000, ()),
        ("no JSON", ()),
    ],
)
def test_fields_that_a_definition_dropped_are_found_in_the_manifest_applied_last(applied: str, said: tuple[str, ...]) -> None:
    queue = Queue(metadata=Metadata(name="q", uid="u", annotations={LAST_APPLIED: applied}))
    assert SpecFields(QUEUE).note(queue, b'{"spec": {"weight": 1}}').unknown_fields == said


def test_an_object_names_few_unknown_fields_with_those_of_its_manifest() -> None:
    applied = json.dumps({"spec": dict.fromkeys("abcdefgh", 1)})
    queue = Queue(metadata=Metadata(name="q", uid="u", annotations={LAST_APPLIED: applied}))
    assert len(SpecFields(QUEUE).note(queue, b'{"spec": {"wieght": 1}}').unknown_fields) == MOST


def test_a_long_spec_is_not_examined() -> None:
    """A tenant's PodGroup of 1.5 MB took 1.2 s for each change of its status."""
    raw = json.dumps({"spec": {"wieght": 1, "extendClusters": [{}] * 20_000}}).encode()
    assert SpecFields(QUEUE).note(Queue(metadata=Metadata(name="q", uid="u")), raw).unknown_fields == ()


def test_a_long_name_gets_no_suggestion() -> None:
    assert found(QUEUE, {"weight" + "x" * 3: 1}) == ("spec.weightxxx: unknown field, ignored; did you mean spec.weight?",)
    assert found(QUEUE, {"reclaimable" * 3: 1}) == (f"spec.{'reclaimable' * 3}: unknown field, ignored",)


def test_an_informer_notes_unknown_fields_of_lists_and_watches() -> None:
    reflector = Reflector(Queue, Random(1), enrich=SpecFields(QUEUE).note)

    def raw(name: str, version: int, **spec: Any) -> Json:
        return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}, "spec": spec}

    def said(effects: Any) -> list[Any]:
        deltas = [delta for effect in effects if isinstance(effect, Emit) for delta in effect.deltas]
        return [delta.new.unknown_fields for delta in deltas if delta.new is not None]

    listed = {"metadata": {"resourceVersion": "3"}, "items": [raw("a", 1, weight=2), raw("b", 2, wieght=2)]}
    assert said(reflector.step(Page(json.dumps(listed).encode()))) == [(), (WEIGHT,)]
    lines = [
        json.dumps({"type": kind, "object": one}).encode()
        for kind, one in (("MODIFIED", raw("b", 4, weight=2)), ("ADDED", raw("c", 5, wieght=2)))
    ]
    assert said(reflector.step(Lines(lines))) == [(), (WEIGHT,)]
