"""Explanations as items of the API and of `-o json`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model.explanation import Change, ChangeKind, Explanation, Owner
from hbox_common.reasons import lines
from hbox_common.views.explanations import explanation_item, explanation_of

from .test_render import FULL

PAIR = Change(ChangeKind.PODS, Owner.USER, {"pods": 16}, "a", (Change(ChangeKind.MODEL, Owner.USER, {"model": "H100"}, "b"),))


def through_json(explanation: Explanation) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(explanation_item(explanation)))
    return read


@pytest.mark.parametrize(
    "explanation", [FULL, replace(FULL, changes=(PAIR,)), replace(FULL, start=None, stages=(), revision=0)]
)
def test_item_of_an_explanation_is_rendered_as_the_explanation(explanation: Explanation) -> None:
    read = explanation_of(through_json(explanation))
    assert list(lines(read)) == list(lines(explanation))
    assert explanation_item(read) == explanation_item(explanation)


def test_item_names_verdict_code_owner_and_text() -> None:
    item = through_json(FULL)
    assert (item["verdict"], item["code"], item["owner"]) == ("wait", "CardsInUse", "system")
    assert item["text"].startswith("all 128 cards that the pod may use are in use")
    assert item["nodes"]["names"] == {"NodeUnschedulable": ["node-0001", "node-0002"]}


def test_unknown_revision_is_no_field() -> None:
    assert (through_json(FULL)["revision"], "revision" in through_json(replace(FULL, revision=0))) == (88_123, False)


def test_changes_and_stages_of_a_newer_service_are_left_out() -> None:
    item = through_json(replace(FULL, changes=(PAIR,)))
    item["changes"][0]["also"][0]["kind"] = "moon"
    item["stages"][0]["stage"] = "moon"
    item["moon"] = 1
    read = explanation_of(item)
    assert (read.changes, len(read.stages)) == ((), len(FULL.stages) - 1)


@pytest.mark.parametrize(
    "broken", [{"verdict": "moon"}, {"at": "x"}, {"nodes": 3}, {"start": {"p50Seconds": 1}}, {"owner": None}]
)
def test_broken_item_is_an_invalid_request(broken: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        explanation_of(through_json(FULL) | broken)
