"""Explanations as text, in both languages, from facts that tenants chose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hbox_common.model import JobId, NodeName, QueueName
from hbox_common.model.explanation import (
    Change,
    ChangeKind,
    Explanation,
    Fact,
    NodeCounts,
    Outcome,
    Owner,
    Stage,
    StageResult,
    StartEstimate,
)
from hbox_common.reasons import Language, change_text, headline, language_of, lines, verdict_line, waited
from hbox_common.reasons.facts import filled
from hbox_common.reasons.phrases import CHANGES, OUTCOMES, OWNERS, STAGES
from hbox_common.reasons.render import duration, notes

FULL = Explanation(
    job=JobId("j"),
    name="ml/train",
    queue=QueueName("ml"),
    outcome=Outcome.WAIT,
    code="CardsInUse",
    owner=Owner.SYSTEM,
    at=1_772_460_720.0,
    since=1_772_460_720.0 - 4_320,
    revision=88_123,
    facts={"total": 128, "queues": ["research (96)", "vision (32)"]},
    need={"cards": 8.0},
    have={"cards": 3.0},
    position=3,
    queued=17,
    stages=(StageResult(Stage.SPEC), StageResult(Stage.DEVICE, "CardsInUse", {"total": 128})),
    nodes=NodeCounts(
        total=16,
        fitting=0,
        first={"CardsInUse": 14, "NodeUnschedulable": 2},
        only={"CardsInUse": 14},
        names={"NodeUnschedulable": (NodeName("node-0001"), NodeName("node-0002"))},
    ),
    changes=(Change(ChangeKind.PODS, Owner.USER, {"pods": 16, "of": 20}, "kubectl scale job/train --replicas 16"),),
    start=StartEstimate(600.0, 1_800.0, "walltime", "job abl-7 ends"),
    attribution={"CardsInUse": 4_000.0, "NotTriedYet": 320.0},
)


def test_explanation_has_verdict_need_counts_changes_and_start() -> None:
    assert list(lines(FULL)) == [
        "VERDICT   wait · CardsInUse · who acts: HBox, by itself · position 3 of 17 · waiting 1h12m",
        "BLOCKED   all 128 cards that the pod may use are in use, by research (96), vision (32)",
        "          needs 8 cards; the most that can be had is 3 cards",
        "          as of 2026-03-02 14:12 UTC, revision 88123",
        "STAGES    spec ok · device: CardsInUse",
        "NODES     16 nodes = 0 with room + 14 CardsInUse + 2 NodeUnschedulable (node-0001, node-0002)",
        "          alone in the way: CardsInUse 14",
        "START     2026-03-02 14:22 UTC to 2026-03-02 14:42 UTC (p50-p90, by walltime) · depends on job abl-7 ends",
        "WAITED    1h12m = 1h6m CardsInUse + 5m20s NotTriedYet",
        "SMALLEST CHANGE (any one of these, examined at this state, not reserved)",
        " 1 16 pods instead of 20  you  kubectl scale job/train --replicas 16",
    ]


def test_unknown_revision_is_left_out() -> None:
    shown = list(lines(replace(FULL, revision=0)))
    assert "          as of 2026-03-02 14:12 UTC" in shown


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "0/16 nodes are available: 16 CardsInUse; in the way alone: CardsInUse on 16; no node has room for it even when empty",
            [],
        ),
        ("12 of 14 pods fit that have to start together; for the next one 0/3 nodes are available: 2 CardsInUse", []),
        (
            "0/2 nodes are available: 2 CardsInUse; reserved for it: n1; there until then: 2 of queue ml",
            ["reserved for it: n1", "there until then: 2 of queue ml"],
        ),
        ("QueueCapabilityExceeded: queue ml may use 8", ["queue ml may use 8"]),
        ("QueueCapabilityExceeded: all 128 cards", []),
        ("", []),
        ("a\x1b[2J", ["a\\u001b[2J"]),
    ],
)
def test_notes_are_what_the_message_adds(message: str, shown: list[str]) -> None:
    assert notes(message, "all 128 cards that the pod may use are in use") == shown
    rows = [line[10:] for line in lines(FULL, message=message)]
    assert set(shown) <= set(rows)


def test_job_that_needs_a_change_has_no_notes_of_its_remedy() -> None:
    missing = replace(FULL, code="QueueNotFound", outcome=Outcome.CHANGE, facts={"queue": "reserch"})
    text = "\n".join(lines(missing, message="QueueNotFound: there is no queue reserch; create it, or name another in the job"))
    assert "NOTES" not in text
    zones = "0/2 nodes are available: 2 TopologyAffinityError; n1: zones 0 and 1 have 3 cores"
    assert "NOTES     n1: zones" in "\n".join(lines(replace(missing, code="TopologyAffinityError"), message=zones))


def test_detail_that_counts_nodes_is_left_out() -> None:
    message = "0/2 nodes are available: 2 ResourcesKeptForIdleCards; 2 nodes keep cores and memory for idle cards"
    kept = replace(FULL, code="ResourcesKeptForIdleCards", facts={"count": 2, "detail": message})
    assert headline(kept) == "wait: 2 nodes keep cores and memory for their idle cards"
    assert "NOTES     2 nodes keep cores and memory for idle cards" in list(lines(kept, message=message))


def test_short_waits_are_not_attributed() -> None:
    short = replace(FULL, attribution={"CardsInUse": 59.0, "NotTriedYet": 0.2})
    assert not any(line.startswith("WAITED") for line in lines(short))
    long = replace(FULL, attribution={"CardsInUse": 61.0, "NotTriedYet": 0.2})
    assert "WAITED    1m1s = 1m1s CardsInUse" in list(lines(long))


def test_explanation_is_in_chinese_throughout() -> None:
    text = "\n".join(lines(FULL, Language.ZH))
    for english in ("wait", "cards that", "needs", "nodes", "instead", "VERDICT", "SMALLEST"):
        assert english not in text
    assert "结论      等待 · CardsInUse" in text
    assert headline(FULL, Language.ZH) == "等待：Pod 可用的 128 张卡均在使用中，占用队列：research (96), vision (32)"


def test_explanation_without_changes_ends_with_the_fix_of_its_code() -> None:
    assert list(lines(replace(FULL, changes=())))[-1].startswith("FIX       Wait until a job ends")


def test_text_without_a_required_fact_is_the_title() -> None:
    assert headline(replace(FULL, facts={})) == "wait: all fitting cards are in use"
    assert headline(replace(FULL, code="NodeCpuLoadHigh")) == "wait: the CPU load of nodes is high"


def test_code_of_a_newer_scheduler_is_shown_as_it_is() -> None:
    assert headline(replace(FULL, code="CardsOnTheMoon")) == "wait: CardsOnTheMoon"


@pytest.mark.parametrize("hostile", ["\x1b[2Jx", "\u202ereversed", "a\nb", "{total}", "x" * 10_000, "[{queue}]"])
def test_hostile_facts_stay_within_one_line(hostile: str) -> None:
    name = NodeName(hostile)
    nodes = NodeCounts(2, 0, {"NodeNotReady": 2, hostile: 1}, {hostile: 1}, {"NodeNotReady": (name,)})
    one = replace(FULL, code="QueueNotFound", facts={"queue": hostile, "nearest": hostile}, nodes=nodes, need={hostile: 1.0})
    one = replace(one, changes=(Change(ChangeKind.QUEUE, Owner.USER, {"queue": hostile}, hostile),))
    for line in lines(one):
        assert line.isprintable()
        assert len(line) < 600
    assert len(headline(one)) < 300


def test_long_lists_are_cut() -> None:
    many = [f"queue-{i}" for i in range(10_000)]
    text = headline(replace(FULL, facts={"total": 128, "queues": many}))
    assert text.endswith("queue-19 and 9980 more")


def test_nodes_are_named_if_few_are_in_the_way() -> None:
    named = tuple(NodeName(f"n{i}") for i in range(20))
    few = replace(FULL, nodes=NodeCounts(30, 11, {"NodeNotReady": 19}, {}, {"NodeNotReady": named[:19]}))
    many = replace(FULL, nodes=NodeCounts(30, 10, {"NodeNotReady": 20}, {}, {"NodeNotReady": named}))
    assert any("19 NodeNotReady (n0 … n9, n10 … n18)" in line for line in lines(few))
    assert not any("n18" in line for line in lines(many))


CHANGES_OF_THE_ENGINE: list[tuple[ChangeKind, dict[str, Fact], str]] = [
    (ChangeKind.PODS, {"pods": 16, "of": 20}, "16 pods instead of 20"),
    (ChangeKind.CARDS, {"cards": 8, "of": 9}, "8 cards per pod instead of 9"),
    (ChangeKind.RESOURCES, {"resource": "cpu", "amount": "96", "of": "500"}, "cpu 96 per pod instead of 500"),
    (ChangeKind.MODEL, {"model": "H100", "of": "H1OO", "nodes": 16}, "card model H100 instead of H1OO"),
    (ChangeKind.TIER, {"mode": "hard", "tier": 2, "of": 1}, "topology tier 2 instead of 1"),
    (ChangeKind.TIER, {"mode": "soft", "tier": 0, "of": 0}, "one domain preferred instead of required"),
    (ChangeKind.SELECTOR, {"key": "zone", "value": "a", "of": "moon"}, "node label zone=a instead of moon"),
    (ChangeKind.SELECTOR, {"key": "zone", "value": "", "of": "moon"}, "no requirement on zone"),
    (ChangeKind.QUEUE, {"queue": "research", "of": "reserch"}, "queue research instead of reserch"),
    (
        ChangeKind.LIMIT,
        {"queue": "ml", "rule": "capability", "resource": "nvidia.com/gpu", "amount": "12", "of": "8", "more": "4"},
        "capability nvidia.com/gpu=12 of queue ml instead of 8",
    ),
    (ChangeKind.PRIORITY, {"class": "high", "value": 10, "of": ""}, "PriorityClass high"),
    (ChangeKind.WALLTIME, {"walltime": "30m", "of": "2h"}, "walltime 30m instead of 2h"),
    (ChangeKind.NODES, {"count": 1, "among": 2, "nodes": ["n1", "n2"]}, "1 of 2 nodes back in service: n1, n2"),
    (ChangeKind.MOVES, {"count": 2}, "move 2 running pods"),
]


@pytest.mark.parametrize(("kind", "facts", "text"), CHANGES_OF_THE_ENGINE)
def test_change_names_the_new_and_the_present_value(kind: ChangeKind, facts: dict[str, Fact], text: str) -> None:
    change = Change(kind, Owner.USER, facts)
    assert change_text(change) == text
    assert change_text(change, Language.ZH) not in (text, kind.value)


def test_each_kind_of_change_has_a_text() -> None:
    assert {kind for kind, _, _ in CHANGES_OF_THE_ENGINE} == set(ChangeKind) == set(CHANGES)


def test_changes_that_have_to_be_made_together_are_one_line_with_both_commands() -> None:
    without = Change(ChangeKind.SELECTOR, Owner.USER, {"key": "zone", "value": "", "of": "moon"}, "edit b")
    pair = Change(ChangeKind.CARDS, Owner.USER, {"cards": 8}, "edit a", also=(without,))
    (line,) = (line for line in lines(replace(FULL, changes=(pair,))) if "cards per pod" in line)
    assert line.split("  ") == [" 1 8 cards per pod and no requirement on zone", "you", "edit a and edit b"]


def test_all_outcomes_owners_and_stages_have_texts() -> None:
    assert (set(OUTCOMES), set(OWNERS), set(STAGES)) == (set(Outcome), set(Owner), set(Stage))


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, Language.EN),
        ({"LANG": "zh_CN.UTF-8"}, Language.ZH),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, Language.EN),
        ({"LANG": "zh_CN.UTF-8", "HBOX_LANG": "en"}, Language.EN),
        ({"LANG": "en_US.UTF-8", "HBOX_LANG": "zh"}, Language.ZH),
        ({"HBOX_LANG": "tlh"}, Language.EN),
    ],
)
def test_language_is_that_of_the_environment(environ: dict[str, str], language: Language) -> None:
    assert language_of(environ) is language


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (("wait", "CardsInUse", "0/2 nodes"), "wait: CardsInUse: all fitting cards are in use: 0/2 nodes"),
        (
            ("change", "QueueClosed", "QueueClosed: queue ml is not open"),
            "change: QueueClosed: the queue is not open: queue ml is not open",
        ),
        (("", "", "QueueClosed: queue ml is not open"), "change: QueueClosed: the queue is not open: queue ml is not open"),
        (("", "", "0/2 nodes are available"), "0/2 nodes are available"),
        (("later", "OfTheMoon", "far"), "later: OfTheMoon: far"),
        (("later", "CardsInUse", ""), "wait: CardsInUse: all fitting cards are in use"),
    ],
)
def test_verdict_line_names_outcome_and_code(verdict: tuple[str, str, str], line: str) -> None:
    assert verdict_line(*verdict) == line


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (-5, "0s"), (59.6, "1m"), (3_600, "1h"), (4_320, "1h12m"), (200_000, "2d7h")]
)
def test_duration_has_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (
            {"QueueShareSpent": 480.0, "CardsInUse": 3120.0, "Evicted": 720.0},
            "1h12m = 8m QueueShareSpent + 52m CardsInUse + 12m Evicted",
        ),
        ({"NotTriedYet": 0.2, "CardsInUse": 30.0}, "30s = 30s CardsInUse"),
        ({"NotTriedYet": 0.2}, "0s = 0s NotTriedYet"),
    ],
)
def test_waiting_is_a_sum_of_parts_in_the_order_in_which_they_began(seconds: dict[str, float], text: str) -> None:
    assert waited(seconds) == text


@pytest.mark.parametrize(
    ("template", "count", "text"),
    [
        ("{count} nodes have taints", 1, "1 node has taints"),
        ("{count} nodes have taints", 2, "2 nodes have taints"),
        ("the cards of {count} nodes are in use", 1, "the cards of 1 node are in use"),
        ("{count} of {count} pods that have to start", 1, "1 of 1 pod that has to start"),
        ("{count} pods that have to start", 1, "1 pod that has to start"),
        ("move {count} running pods[ of {among} nodes]", 1, "move 1 running pod"),
        ("{count} cardsets", 1, "1 cardsets"),
    ],
)
def test_counted_noun_and_its_verb_are_singular_for_one(template: str, count: int, text: str) -> None:
    assert filled(template, {"count": count}) == text


def test_amounts_of_one_are_singular() -> None:
    shown = "\n".join(lines(replace(FULL, need={"cards": 1.0}, have={"pods": 1.0}, nodes=NodeCounts(total=1))))
    assert "needs 1 card; the most that can be had is 1 pod" in shown
    assert "1 node = 0 with room" in shown
