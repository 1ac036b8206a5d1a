"""Which decisions are for this node now, and how often a verb is executed."""

import pytest

from hbox_common.events import RemediesDecided
from hbox_common.model import NodeName
from hbox_common.model.remedy import Decision, Verb
from hbox_remedy.core.admission import Limit, exceeded, ignored
from hbox_remedy.settings import LIMITS

DECISION = Decision("i1", "node", Verb.REBOOT, 1, 100.0)


@pytest.mark.parametrize(
    ("node", "boot_id", "own_boot", "now", "reason"),
    [
        ("n1", "b1", "b1", 99.9, ""),
        ("n1", "b1", "b1", 100.0, "expired"),
        ("n2", "b1", "b1", 0.0, "foreign-node"),
        ("n1", "b0", "b1", 0.0, "other-boot"),
        ("n1", "", "", 0.0, "other-boot"),  # a node whose boot id cannot be read
    ],
)
def test_a_decision_is_for_one_node_and_boot_until_it_expires(
    node: str, boot_id: str, own_boot: str, now: float, reason: str
) -> None:
    decided = RemediesDecided(node=NodeName(node), boot_id=boot_id, decisions=(DECISION,))
    assert ignored(decided, DECISION, node="n1", boot_id=own_boot, now=now) == reason


def test_a_limit_counts_executions_of_its_period() -> None:
    limit = Limit(2, 60.0)
    assert exceeded(limit, [0.0, 50.0], now=59.0) == "limit of the node: 2 times in 60 s"
    assert exceeded(limit, [0.0, 50.0], now=60.0) == ""


def test_each_verb_has_a_limit() -> None:
    assert LIMITS.keys() == set(Verb)
