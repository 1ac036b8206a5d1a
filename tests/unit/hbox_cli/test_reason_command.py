"""`hbox reason`: the catalogue in all forms, without a cluster."""

from __future__ import annotations

import json
import os

import pytest

from hbox_cli.exits import Exit
from hbox_common.reasons import CODES

from ... import forked


def hbox(*arguments: str, language: str = "en") -> tuple[int, str, str]:
    done = forked.run(*arguments, timeout_s=60, env={**os.environ, "HBOX_LANG": language})
    return done.returncode, done.stdout, done.stderr


def test_all_codes_are_listed() -> None:
    status, out, _ = hbox("reason", "ls", "-o", "json")
    listed = json.loads(out)
    assert (status, listed["kind"], [one["name"] for one in listed["items"]]) == (0, "ReasonList", list(CODES))
    assert hbox("reason", "ls", "-o", "name")[1].splitlines()[0] == f"reason/{next(iter(CODES))}"


def test_codes_of_one_stage_are_listed() -> None:
    lines = hbox("reason", "ls", "--stage", "quota", "--no-headers")[1].splitlines()
    assert lines
    assert all(" quota " in line for line in lines)
    status, _, err = hbox("reason", "ls", "--stage", "quotas")
    assert (status, "did you mean quota?" in err) == (Exit.NOT_FOUND, True)


@pytest.mark.parametrize("form", ["table", "wide", "csv", "json", "yaml", "ndjson", "name"])
def test_a_code_is_shown_in_each_form(form: str) -> None:
    status, out, err = hbox("reason", "show", "cardsinuse", "-o", form)
    assert (status, err) == (0, "")
    assert "CardsInUse" in out


def test_a_code_is_shown_in_chinese() -> None:
    out = hbox("reason", "show", "QueueClosed", language="zh")[1]
    assert "队列未开放" in out
    assert "cause" not in out
    rows = hbox("reason", "ls", "--stage", "hold", language="zh")[1].splitlines()
    assert len({line.index("hold") for line in rows[1:]}) == 1


def test_a_label_of_nodes_is_explained() -> None:
    assert hbox("reason", "show", "Insufficient cpu")[1].startswith("InsufficientResource ")


def test_an_unknown_code_is_answered_with_the_nearest() -> None:
    status, out, err = hbox("reason", "show", "CardInUse")
    assert (status, out) == (Exit.NOT_FOUND, "")
    assert "did you mean CardsInUse" in err
