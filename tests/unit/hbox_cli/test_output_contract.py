"""Options of output that all commands have: templates, columns, order, changes."""

from typing import Any

import pytest

from hbox_cli.jsonpath import rendered, values
from hbox_cli.output import Changes, Column, Form, Output
from hbox_common.errors import InvalidRequest

ITEMS: list[dict[str, Any]] = [
    {"name": "b", "cards": 8, "queue": "ml", "placed": {"b-0": "n1"}},
    {"name": "a", "cards": 16, "queue": "", "placed": {}},
]
COLUMNS = (
    Column("NAME", lambda item: item["name"]),
    Column("CARDS", lambda item: item["cards"]),
    Column("QUEUE", lambda item: item["queue"], wide=True),
)
LIST = {"kind": "JobList", "items": ITEMS}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.kind}", "JobList"),
        (".kind", "JobList"),
        ("{.items[*].name}", "b a"),
        ("{.items[0].cards}", "8"),
        ("{.items[-1].name}", "a"),
        ("{.items[0:1].name}", "b"),
        ("{.items[0].placed['b-0']}", "n1"),
        ("{.items[0].placed}", '{"b-0":"n1"}'),
        ("{..cards}", "8 16"),
        ("{.items[?(@.cards>8)].name}", "a"),
        ('{.items[?(@.queue=="ml")].name}', "b"),
        ('{range .items[*]}{.name}={.cards}{"\\n"}{end}', "b=8\na=16\n"),
        ('{range .items[?(@.cards>99)]}{.name}{end}none{"!"}', "none!"),
        ("{.absent}", ""),
        ("kind: {.kind}", "kind: JobList"),
    ],
)
def test_templates_are_those_of_kubectl(template: str, text: str) -> None:
    assert rendered(template, LIST) == text


@pytest.mark.parametrize("template", ["{.items[}", "{.items", "{range .items[*]}{.name}", "{end}", "{.items[?(}"])
def test_a_template_that_cannot_be_read_is_named(template: str) -> None:
    with pytest.raises(InvalidRequest, match="jsonpath"):
        rendered(template, LIST)


def test_a_path_may_lack_the_leading_dot() -> None:
    assert values("items[0].name", LIST) == ["b"]


def test_columns_are_chosen_by_title_also_wide_ones(capsys: pytest.CaptureFixture[str]) -> None:
    Output(only=("queue", "NAME")).rows("Job", ITEMS, COLUMNS)
    assert capsys.readouterr().out.splitlines() == ["QUEUE  NAME", "ml     b", "-      a"]
    with pytest.raises(InvalidRequest, match="--columns AGE") as caught:
        Output(only=("AGE",)).rows("Job", ITEMS, COLUMNS)
    assert caught.value.hint == "columns: NAME, CARDS, QUEUE"


@pytest.mark.parametrize(
    ("by", "names"), [("NAME", "ab"), ("-name", "ba"), ("CARDS", "ba"), (".cards", "ba"), ("-.cards", "ab"), ("QUEUE", "ba")]
)
def test_rows_are_sorted_by_a_column_or_a_field(by: str, names: str, capsys: pytest.CaptureFixture[str]) -> None:
    Output(Form.NAME, sort_by=by).rows("Job", ITEMS, COLUMNS)
    assert "".join(line[-1] for line in capsys.readouterr().out.splitlines()) == names


def test_an_unknown_column_to_sort_by_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="--sort-by AGE"):
        Output(sort_by="AGE").rows("Job", ITEMS, COLUMNS)


def test_a_watch_prints_what_changed_and_what_is_gone() -> None:
    changes = Changes()
    assert changes.take([{"name": "a", "ageSeconds": 1}, {"name": "b", "state": "WAITING"}]) == [
        {"name": "a", "ageSeconds": 1},
        {"name": "b", "state": "WAITING"},
    ]
    assert changes.take([{"name": "a", "ageSeconds": 3}, {"name": "b", "state": "RUNNING"}]) == [
        {"name": "b", "state": "RUNNING"}
    ]
    assert changes.take([{"name": "b", "state": "RUNNING"}]) == [{"name": "a", "gone": True}]
