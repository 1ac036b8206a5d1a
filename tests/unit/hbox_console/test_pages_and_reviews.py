"""Cursors, entity tags and kept answers of reviews."""

import base64
import json

import pytest

from hbox_common.errors import InvalidRequest
from hbox_console.core.cache import Expiring
from hbox_console.core.pages import MAX_LIMIT, cursor_of, key_of, limit_of, matches, tag_of

TYPES = (float, str, str)


def test_a_cursor_gives_its_key_back() -> None:
    assert key_of(cursor_of((1.5, "a", "ü")), TYPES) == (1.5, "a", "ü")


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "!",
        "e30",
        "W10",
        cursor_of(("a",)),
        cursor_of((1.0, "a", 3)),
        cursor_of((True, "a", "b")),
        "A" * 5000,
        "ä",
        "W1tbW1tb" * 200,
    ],
)
def test_a_cursor_of_others_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidRequest, match="continue"):
        key_of(cursor, TYPES)


@pytest.mark.parametrize("text", ["0", "-1", "501", "x", "1.5", "", "9" * 5000, "١"])
def test_a_limit_out_of_bounds_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="limit"):
        limit_of(text)


def test_limits_have_a_default() -> None:
    assert (limit_of(None), limit_of("7"), limit_of(str(MAX_LIMIT))) == (100, 7, 500)


def test_a_tag_changes_with_the_content_and_not_with_ages() -> None:
    one = {"metadata": {"revision": 3}, "items": [{"name": "a", "ageSeconds": 1.0}]}
    older = {"metadata": {"revision": 9}, "items": [{"name": "a", "ageSeconds": 7.0}]}
    assert tag_of(one) == tag_of(older)
    assert tag_of(one) != tag_of({"metadata": {"revision": 3}, "items": [{"name": "b", "ageSeconds": 1.0}]})


def test_a_tag_matches_weakly() -> None:
    tag = tag_of({"a": 1})
    assert matches(f'"x", {tag}', tag)
    assert matches(tag.removeprefix("W/"), tag)
    assert matches("*", tag)
    assert not matches('W/"x"', tag)
    assert not matches(None, tag)


def test_an_answer_counts_from_its_question() -> None:
    cache: Expiring[str, bool] = Expiring(size=2, lasts_s=60.0)
    cache.put("a", True, asked_at=100.0)
    assert cache.get("a", 159.9) is True
    assert cache.get("a", 160.0) is None
    assert len(cache) == 0


def test_the_answer_that_was_used_longest_ago_makes_room() -> None:
    cache: Expiring[str, int] = Expiring(size=2, lasts_s=60.0)
    cache.put("a", 1, 0.0)
    cache.put("b", 2, 0.0)
    cache.get("a", 1.0)
    cache.put("c", 3, 1.0)
    assert [cache.get(key, 2.0) for key in "abc"] == [1, None, 3]


def test_a_cursor_contains_the_key_of_its_item_alone() -> None:
    cursor = cursor_of((1.0, "seen", "id"))
    assert json.loads(base64.urlsafe_b64decode(cursor + "==")) == [1.0, "seen", "id"]
