"""`hbox why --vs`: the first difference of two jobs by which one started and the other waits."""

import json
from typing import Any

import pytest

from hbox_cli.__main__ import cli
from hbox_cli.commands import why
from hbox_cli.versus import TEXTS, Relation, compared
from hbox_common.errors import InvalidRequest
from hbox_common.reasons import Language

NOW = 1000.0
LATER = 1e12


def item(name: str, **given: Any) -> dict[str, Any]:
    pods = {"bound": 0, "members": 1, "min": 1}
    return {
        "name": f"ml/{name}", "id": name, "queue": "research", "priority": 5, "ageSeconds": 100.0, "cards": 8, "pods": pods,
        "state": "WAITING", "placed": {}, "waiting": [f"{name}-0"], "reason": "CardsInUse: no room", "explanation": None, **given,
    }  # fmt: skip


def placed(name: str, *, at: float | None = 950.0, **given: Any) -> dict[str, Any]:
    decisions = [] if at is None else [{"at": at + 10}, {"at": at}]
    return item(name, placed={f"{name}-0": "n1"}, waiting=[], decisions=decisions, **given)


@pytest.mark.parametrize(
    ("mine", "other", "relation"),
    [
        (item("a", waiting=[]), placed("b"), Relation.NOT_WAITING),
        (item("a"), item("b", decisions=[]), Relation.OTHER_WAITS),
        (item("a"), placed("b", at=899.0, priority=9), Relation.PLACED_BEFORE),
        (item("a"), placed("b", at=901.0, priority=9), Relation.PRIORITY),
        (item("a"), placed("b", queue="prod", priority=9), Relation.OTHER_QUEUE),
        (item("a"), placed("b", ageSeconds=101.0), Relation.AGE),
        (item("a"), placed("b", at=None, ageSeconds=101.0), Relation.AGE),
        (item("a"), placed("b", ageSeconds=99.0), Relation.FITS),
        (item("a"), placed("b", priority=4, ageSeconds=101.0), Relation.FITS),
    ],
)
def test_first_difference_counts(mine: dict[str, Any], other: dict[str, Any], relation: Relation) -> None:
    assert compared(mine, other, now=NOW).relation is relation


def test_each_relation_has_a_text_in_both_languages() -> None:
    assert set(TEXTS) == set(Relation)
    found = compared(item("a"), placed("b", priority=9), now=NOW)
    assert found.text(Language.EN) == "ml/b has a higher priority: 9 against 5"
    assert found.text(Language.ZH) == "ml/b 的优先级更高：9 对 5"


class Source:
    def why(self, job: str) -> dict[str, Any]:
        return item(job)

    def placement(self, job: str) -> dict[str, Any]:
        return placed(job, at=LATER, queue="prod")


def test_both_jobs_and_what_the_first_waits_for_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(why, "source_of", lambda _: Source())
    monkeypatch.setenv("HBOX_LANG", "en")
    cli.main(["why", "a", "--vs", "b"], prog_name="hbox", standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[0] for line in lines[:2]] == ["ml/a", "ml/b"]
    assert lines[2].startswith("  ml/b is in another queue, prod")
    assert "CardsInUse" in lines[3]
    cli.main(["why", "a", "--vs", "b", "-o", "json"], prog_name="hbox", standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["relation"], document["placedAt"]) == ("JobComparison", "OtherQueue", LATER)


def test_job_is_not_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "source_of", lambda _: Source())
    with pytest.raises(InvalidRequest, match="the same job"):
        cli.main(["why", "a", "--vs", "a"], prog_name="hbox", standalone_mode=False)
