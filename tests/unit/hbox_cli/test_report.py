"""The report of a replay, from what was measured and audited."""

import pytest

from hbox_cli import report
from hbox_cli.audit import Audit, AuditCard, AuditNode, AuditPod
from hbox_common.model import CardId, CardSlice
from hbox_sandbox.replay import Measured
from hbox_sandbox.trace import Trace, TraceNode, TracePod

TRACE = Trace(
    "openb_pod_list_default",
    (TraceNode("n", 16_000, 65_536, 2, "T4"), TraceNode("m", 16_000, 65_536, 2, "T4")),
    tuple(TracePod(f"p{i}", 8000, 1024, 1, 500) for i in range(4)),
)
NODES = [
    AuditNode(name, {"cpu": 16_000}, {CardId(str(i)): AuditCard(15_300, 20, "T4", i) for i in range(2)}) for name in ("n", "m")
]


def pod(name: str, node: str, *slices: CardSlice) -> AuditPod:
    return AuditPod(name, f"x/{name}", node, True, True, "", "", {"cpu": 8000}, len(slices), 50, 0, 50, (), slices)


def measured() -> Measured:
    return Measured(
        created_at={f"p{i}": float(i) for i in range(4)},
        bound_at={"p0": 0.5, "p1": 1.25, "p2": 4.0},
        job_of={f"p{i}": f"u{i}" for i in range(4)},
        verdicts={"u3": "0/2 nodes are available: 1 Insufficient cpu, 1 CardInsufficientMemory"},
        settled=True,
    )


PODS = [
    pod("p0", "n", CardSlice(0, 50, 7650)),
    pod("p1", "n", CardSlice(0, 50, 7650)),
    pod("p2", "m", CardSlice(1, 50, 7650)),
    pod("other", "elsewhere", CardSlice(0, 100, 1)),
]


def made(**other: object) -> dict[str, object]:
    given: dict[str, object] = {"nodes": NODES, "pods": PODS, "policy": "fgd", "whole": True, **other}
    return report.make(TRACE, measured(), Audit(checks=9), **given)  # type: ignore[arg-type]


def test_the_report_has_the_fields_that_others_read() -> None:
    content = made()
    assert content["pods"] == {"submitted": 4, "bound": 3, "waiting": 1, "without_verdict": 0}
    assert content["latency_ms"] == {"p50": 500.0, "p99": 2000.0}
    assert content["pods_per_s"] == 0.8  # three pods in four seconds
    assert content["allocation"] == 37.5  # one and a half of four cards
    # n has no core left: its free card is a fragment for everyone. m has cores for one more: its halves and wholes can be used.
    assert content["fragmentation"] == 25.0
    assert content["waiting_reasons"] == {"CardInsufficientMemory or Insufficient cpu": 1}
    assert content["audit"] == {"checks": 9, "faults": 0, "faults_found": [], "notes": []}


def test_published_figures_stand_beside_a_whole_trace_alone() -> None:
    assert "95.23" in report.text(made())
    assert "95.23" not in report.text(made(whole=False))


def test_an_empty_replay_has_no_latency() -> None:
    content = report.make(TRACE, Measured(), Audit(), nodes=[], pods=[], policy="fgd", whole=False)
    assert content["latency_ms"] == {"p50": None, "p99": None}
    assert "p50 -" in report.text(content)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            "0/40 nodes are available: 14 Insufficient cpu, 26 CardInsufficientMemory.",
            "CardInsufficientMemory or Insufficient cpu",
        ),
        (
            "0/40 nodes are available: 3 CardInsufficientMemory, 37 Insufficient cpu",
            "CardInsufficientMemory or Insufficient cpu",
        ),
        (
            "1 of 4 pods fit; for the next one 0/9 nodes are available: 9 Insufficient cpu",
            "gang, for its next pod: Insufficient cpu",
        ),
        (
            "0/9 nodes are available: 8 Insufficient cpu, 1 CardInsufficientMemory; in the way alone: Insufficient cpu on 3, CardInsufficientMemory on 1",
            "CardInsufficientMemory or Insufficient cpu; alone in the way: CardInsufficientMemory, Insufficient cpu",
        ),
        ("queue a: 12 of 8 cards", "queue a: N of N cards"),
    ],
)
def test_verdicts_on_the_same_want_are_counted_together(message: str, kind: str) -> None:
    assert report.kind_of(message) == kind
