"""Usage as people see it: times, prices, sums, bars; and what is told of wrong options."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from hbox_cli.output import Column, Form, Output
from hbox_cli.usage import read_prices
from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.events import Budget, Usage, UsageKey
from hbox_common.model import QueueName
from hbox_common.views.usage import add_budgets, bar, budget_text, items_of, keys_of, moment, total_of

from .test_command import hbox

NOW = datetime(2026, 11, 21, 19, 30, tzinfo=UTC).timestamp()
HOUR = 3_600_000


def used(queue: str, own: int, borrowed: int = 0, idle: int = 0, *, user: str = "", model: str = "") -> Usage:
    return Usage(queue=QueueName(queue), user=user, model=model, own=own * HOUR, borrowed=borrowed * HOUR, idle=idle * HOUR)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("month", "2026-11-01T00:00"),
        ("today", "2026-11-21T00:00"),
        ("36h", "2026-11-20T07:30"),
        ("7d", "2026-11-14T19:30"),
        ("2026-10-05", "2026-10-05T00:00"),
        ("2026-10-05T08:00+02:00", "2026-10-05T06:00"),
    ],
)
def test_times_are_read_as_people_write_them(text: str, meant: str) -> None:
    assert moment(text, now=NOW) == datetime.fromisoformat(meant).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize("text", ["", "yesterday", "7x", "2026-13-01", "-3d"])
def test_what_is_no_time_is_told_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 36h, 7d, today, month, 2026-11-01"):
        moment(text, now=NOW)


def test_keys_are_told_where_they_are_wrong() -> None:
    assert keys_of("queue, model,queue") == (UsageKey.QUEUE, UsageKey.MODEL)
    with pytest.raises(ValueError, match="'team' is none of department, queue, user, model, hour"):
        keys_of("queue,team")


def test_queues_have_own_borrowed_and_idle_hours_the_largest_first() -> None:
    items = items_of([used("a", 10, idle=30), used("b", 10, 20)], [UsageKey.QUEUE], {})
    assert [(i["name"], i["cardHours"], i["own"], i["borrowed"], i["idle"], i["bar"]) for i in items] == [
        ("b", 30.0, 10.0, 20.0, 0.0, "█████▒▒▒▒▒▒▒▒▒▒"),
        ("a", 10.0, 10.0, 0.0, 30.0, "█████···············"),
    ]
    assert total_of(items) == {"name": "total", "cardHours": 40.0, "own": 20.0, "borrowed": 20.0, "idle": 30.0}


def test_a_queues_budget_of_the_month_stands_beside_its_use() -> None:
    items = items_of([used("a", 10), used("b", 5)], [UsageKey.QUEUE], {})
    month = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
    add_budgets(items, [Budget(queue=QueueName("a"), card_hours=1000, spent=839 * HOUR, month=month)])
    assert items[0]["budget"] == {"month": "2026-11", "cardHours": 1000, "used": 839.0}
    assert [budget_text(item.get("budget")) for item in items] == ["83 % of 1000", ""]


def test_users_and_models_have_no_idle_time() -> None:
    usage = [used("", 0, idle=30), used("", 4, user="ml", model="A100")]
    [item] = items_of(usage, [UsageKey.USER, UsageKey.MODEL], {})
    assert (item["name"], item["user"], item["model"], "idle" in item) == ("ml/A100", "ml", "A100", False)


def test_cost_is_card_hours_by_the_price_of_their_model() -> None:
    usage = [used("a", 10, model="A100"), used("a", 4, 1, model="H100"), used("a", 0, idle=50)]
    [item] = items_of(usage, [UsageKey.QUEUE], {"H100": Decimal("6.5"), "*": Decimal(2)})
    assert item["cost"] == "52.50"
    assert total_of([item, item])["cost"] == "105.00"
    with pytest.raises(InvalidRequest, match="model A100 was used and has no price"):
        items_of(usage, [UsageKey.QUEUE], {"H100": Decimal(1)})


def test_prices_come_from_a_file_and_are_overruled_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("NVIDIA-A100: 2.5\nNVIDIA-H100: 6\n")
    assert read_prices(["NVIDIA-A100=3", "*=1"], file) == {"NVIDIA-A100": 3, "NVIDIA-H100": 6, "*": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [("- 1\n", "holds no prices"), ("A100: cheap\n", "A100: 'cheap' is no number"), ("A100: -1\n", "-1 is no price"), ("{", "line 2, column 1")],
)  # fmt: skip
def test_a_wrong_file_of_prices_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=said):
        read_prices([], file)
    with pytest.raises(NotFound, match="no such file"):
        read_prices([], tmp_path / "none")
    with pytest.raises(InvalidRequest, match="write it as MODEL=PRICE"):
        read_prices(["2.5"], None)


def test_a_bar_is_as_wide_as_its_part_of_the_largest() -> None:
    assert bar(1, 0, 0, 4) == "█████"
    assert bar(0, 0, 0, 0) == ""


def test_csv_has_what_is_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column("A", lambda i: i["a"]), Column("W", lambda i: i["w"], wide=True), Column("P", lambda i: "██", drawn=True)]
    Output(Form.CSV).rows("X", [{"name": "x", "a": "one,two", "w": 3}], columns)
    assert capsys.readouterr().out == 'A,W\n"one,two",3\n'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--by", "team"), "--by: 'team' is none of department, queue, user, model, hour"),
        (("--since", "soon"), "--since: 'soon' is no time"),
        (("--since", "2026-11-02", "--until", "2026-11-01"), "--since 2026-11-02 is not before --until 2026-11-01"),
        (("--since", "2999-01-01"), "is not before now"),
    ],
)
def test_wrong_options_are_told_in_three_lines_with_status_2(words: tuple[str, ...], said: str) -> None:
    done = hbox("usage", *words)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 3)
    assert said in done.stderr
