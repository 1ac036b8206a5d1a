"""The text of `hbox why` about pods on sick hardware: card, code, policy and next step."""

from dataclasses import replace

import pytest

from hbox_common.events import HealthEvictionAsked
from hbox_common.model import (
    CardId,
    CardSlice,
    Claim,
    ClaimId,
    Generation,
    Incident,
    IncidentState,
    JobId,
    NodeName,
    PlanId,
    PodUid,
    QueueName,
    Verdict,
)
from hbox_common.model.sickhardware import SickPolicy
from hbox_common.views.sickpods import Item, Sickness, sick_pods

NODE, CARD, OTHER = NodeName("n1"), CardId("gpu:GPU-1"), CardId("gpu:GPU-2")
VERDICT = Verdict(NODE, Generation(1), healthy=True, bad_cards=(1,), reason="a fault", since=0.0, cards=(CARD,))
INCIDENT = Incident(
    "i1",
    NODE,
    CARD,
    "card",
    "94",
    IncidentState.DRAINING,
    "fatal-gpu",
    "hardware",
    "gpu",
    "reset-when-idle",
    1.0,
    1.0,
    why="A fault.",
)
ASKED = HealthEvictionAsked(node=NODE, incident="i1", cards=(CARD,), reason="A fault.")
SICK = Sickness({NODE: VERDICT}, [INCIDENT], [ASKED])


def claim(pod: str, card: CardId) -> Claim:
    return Claim(
        ClaimId(pod),
        PodUid(f"uid-{pod}"),
        "ml",
        pod,
        JobId("j"),
        PlanId(""),
        QueueName("q"),
        0,
        NODE,
        {},
        (CardSlice(0, 100, 10_000, card=card),),
    )


def shown(sickness: Sickness = SICK, policy: str = "", queue: SickPolicy | None = None) -> list[Item]:
    claims = [claim("b", OTHER), claim("a", CARD)]
    return sick_pods(claims, {"uid-a": policy}, lambda _: queue, sickness)


def test_a_pod_on_a_sick_card_is_shown_with_card_code_policy_and_its_neighbour_is_not() -> None:
    [item] = shown()
    assert (item["pod"], item["cards"], item["code"], item["incident"]) == ("ml/a", [CARD], "card 94", "i1")
    assert (item["policy"], item["policyOf"], item["state"]) == ("restart", "default", "leaves")
    assert "reset-when-idle" in item["next"]


def test_all_pods_of_a_closed_node_are_shown() -> None:
    closed = replace(SICK, verdicts={NODE: replace(VERDICT, healthy=False)}, requests=[ASKED.model_copy(update={"cards": ()})])
    assert [item["pod"] for item in shown(closed)] == ["ml/a", "ml/b"]


@pytest.mark.parametrize(
    ("policy", "queue", "expected"),
    [
        ("ignore", SickPolicy.RESTART, ("ignore", "job", "stays")),
        ("", SickPolicy.IGNORE, ("ignore", "queue", "stays")),
        ("unknown", SickPolicy.SHRINK, ("shrink", "queue", "leaves")),
    ],
)
def test_the_policy_of_the_job_precedes_that_of_its_queue(
    policy: str, queue: SickPolicy, expected: tuple[str, str, str]
) -> None:
    [item] = shown(policy=policy, queue=queue)
    assert (item["policy"], item["policyOf"], item["state"]) == expected


def test_a_pod_that_the_breaker_or_paused_evictions_hold_is_shown_as_held() -> None:
    [item] = shown(replace(SICK, incidents=[replace(INCIDENT, held_by=("breaker",))], requests=[]))
    assert (item["state"], "limit" in item["next"]) == ("held", True)
    [item] = shown(replace(SICK, paused="too many"))
    assert (item["state"], "too many" in item["next"]) == ("held", True)


def test_a_request_that_concerns_other_cards_or_jobs_does_not_apply() -> None:
    for other in (ASKED.model_copy(update={"cards": (OTHER,)}), ASKED.model_copy(update={"jobs": ("k",)})):
        [item] = shown(replace(SICK, requests=[other]))
        assert (item["state"], item["policy"]) == ("stays", "")


def test_a_closed_incident_is_not_the_reason() -> None:
    [item] = shown(replace(SICK, incidents=[replace(INCIDENT, state=IncidentState.CLOSED)]))
    assert (item["incident"], item["reason"]) == ("", "a fault")
