"""`hbox why` with explanations of scheduler-core, and with a scheduler that has none."""

from __future__ import annotations

from typing import Any

import pytest

from hbox_cli.explaining import explanation, rule_item, rules_of_node, show_explanation, show_rules, waiting_text
from hbox_common.errors import NotFound, Unavailable
from hbox_common.events.explain import ExplainAnswer, ExplainRequest, NodeRules
from hbox_common.model import JobId, NodeName, QueueName
from hbox_common.model.explanation import Explanation, Outcome, Owner
from hbox_common.views.explanations import explanation_item

JOB: dict[str, Any] = {
    "id": "j",
    "name": "ml/train",
    "reason": "0/2 nodes are available: 2 CardsInUse",
    "waitSeconds": {"CardsInUse": 90.0},
}
FOUND = Explanation(
    JobId("j"), "ml/train", QueueName("ml"), Outcome.WAIT, "CardsInUse", Owner.SYSTEM, 1_000.0, 7, facts={"total": 16}
)


class Scheduler:
    """A bus on which scheduler-core gives these answers, one after the other."""

    def __init__(self, *answers: ExplainAnswer | Unavailable) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, ExplainRequest]]()

    async def call(self, service: str, name: str, request: ExplainRequest, *_: Any, **__: Any) -> ExplainAnswer:
        self.asked.append((name, request))
        answer = self.answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        return answer


LATE = Unavailable("no answer within 5 s", outcome_unknown=True)
ABSENT = Unavailable("scheduler-core does not answer: no process serves explain")


async def test_explanation_of_the_scheduler_is_shown_with_the_waiting_by_code(capsys: pytest.CaptureFixture[str]) -> None:
    scheduler = Scheduler(LATE, ExplainAnswer(explanation=FOUND))
    found = await explanation(scheduler, {**JOB, "shard": "lab"})  # type: ignore[arg-type]
    assert found is not None
    assert [name for name, _ in scheduler.asked] == ["explain-lab"] * 2
    show_explanation({**JOB, "explanation": found})
    out = capsys.readouterr().out
    assert "  VERDICT   wait · CardsInUse" in out
    assert "  BLOCKED   all 16 cards" in out
    assert "  WAITED    1m30s = 1m30s CardsInUse" in out
    assert "nodes are available" not in out


async def test_scheduler_that_does_not_run_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    scheduler = Scheduler(ABSENT)
    assert await explanation(scheduler, JOB) is None  # type: ignore[arg-type]
    assert (len(scheduler.asked), "scheduler-core does not answer" in capsys.readouterr().err) == (1, True)


async def test_lost_explanation_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert await explanation(Scheduler(LATE, LATE), JOB) is None  # type: ignore[arg-type]
    assert "no explanation from scheduler-core: no answer" in capsys.readouterr().err


async def test_rules_of_a_node_have_titles(capsys: pytest.CaptureFixture[str]) -> None:
    failed = NodeRules(node=NodeName("n1"), failed=("NodeUnschedulable", "Insufficient cpu", "OfTheMoon"))
    scheduler = Scheduler(ExplainAnswer(node=failed))
    rules = [rule_item(label) for label in await rules_of_node(scheduler, JOB, "n1")]  # type: ignore[arg-type]
    assert (scheduler.asked[0][1].node, scheduler.asked[0][1].changes) == ("n1", False)
    assert [rule["code"] for rule in rules] == ["NodeUnschedulable", "InsufficientResource", ""]
    show_rules("n1", rules)
    assert capsys.readouterr().out.splitlines() == [
        "  n1 fails 3 rules:",
        "    NodeUnschedulable  Nodes are cordoned",
        "    Insufficient cpu   Nodes have too little of a resource free",
        "    OfTheMoon",
    ]
    show_rules("n1", [])
    assert "n1 has room" in capsys.readouterr().out


async def test_unknown_node_is_not_found() -> None:
    with pytest.raises(NotFound, match="no node moon"):
        await rules_of_node(Scheduler(ExplainAnswer()), JOB, "moon")  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="scheduler-core does not answer"):
        await rules_of_node(Scheduler(ABSENT), JOB, "n1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        ({"verdict": "wait", "code": "CardsInUse"}, f"wait: CardsInUse: all fitting cards are in use: {JOB['reason']}"),
        ({"verdict": "", "code": ""}, f"waits: {JOB['reason']}"),
        ({}, f"waits: {JOB['reason']}"),
        ({"reason": "wait: CardsInUse: all fitting cards are in use: 2"}, "wait: CardsInUse: all fitting cards are in use: 2"),
    ],
)
def test_waiting_job_without_an_explanation_has_the_line_of_its_verdict(verdict: dict[str, str], text: str) -> None:
    assert waiting_text({**JOB, **verdict}) == text


@pytest.mark.parametrize(
    ("code", "shown"), [("CardsInUse", True), ("CardsInUse: 2", True), ("", True), ("QueueClosed", False), ("OfTheMoon", False)]
)
def test_notes_of_a_verdict_of_another_code_are_not_shown(code: str, shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    job = {**JOB, "code": code, "reason": f"{JOB['reason']}; reserved until noon", "explanation": explanation_item(FOUND)}
    show_explanation(job)
    assert ("reserved until noon" in capsys.readouterr().out) is shown
