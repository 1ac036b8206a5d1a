"""`hbox why` if scheduler-core answers queries for card reasons slowly."""

from __future__ import annotations

from typing import Any

import pytest

from hbox_cli.access.brokersource import _cards
from hbox_common.errors import Unavailable
from hbox_scheduler.cardanswer import CardsAnswer, PodCards


class Slow:
    """A bus that loses the first answers."""

    def __init__(self, *lost: Unavailable) -> None:
        self.lost, self.calls = list(lost), 0

    async def call(self, *_: Any, **__: Any) -> CardsAnswer:
        self.calls += 1
        if self.lost:
            raise self.lost.pop(0)
        return CardsAnswer(tasks=(PodCards(pods=("p",), nodes=1, fitting=0, cards=0, labels={}, said="too small"),))


LATE = Unavailable("no answer on hbox.scheduler-core.cards within 5 s", outcome_unknown=True)


async def test_card_reasons_are_queried_again_after_a_lost_answer(capsys: pytest.CaptureFixture[str]) -> None:
    slow = Slow(LATE)
    assert [task["said"] for task in await _cards(slow, {"id": "j"})] == ["too small"]  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


async def test_missing_card_reasons_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert await _cards(Slow(LATE, LATE), {"id": "j"}) == []  # type: ignore[arg-type]
    assert "no reasons from the cards: no answer" in capsys.readouterr().err


async def test_older_scheduler_is_queried_once(capsys: pytest.CaptureFixture[str]) -> None:
    older = Slow(Unavailable("nobody answers on hbox.scheduler-core.cards"))
    assert (await _cards(older, {"id": "j"}), older.calls) == ([], 1)  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""
