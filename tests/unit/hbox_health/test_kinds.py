"""Families of kinds of incidents: bounded, and each has a page."""

import pytest

from hbox_health.core.judge.courses import course_of
from hbox_health.core.judge.finding import Action, Blame, Finding, Scope, Severity
from hbox_health.core.judge.kinds import OTHER, family_of
from hbox_health.data import shipped_rules


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("card", "card"),
        ("nvml-return-999", "nvml"),
        ("user-faults-13", "user-faults"),
        ("user-fault", "user-fault"),
        ("agent-silent", "agent-silent"),
        ("multi-gpu", "multi-gpu"),
        ("what an agent invents", OTHER),
        ("cardinal", OTHER),
        ("", OTHER),
    ],
)
def test_the_family_is_the_longest_name_with_which_the_kind_begins(kind: str, family: str) -> None:
    assert family_of(kind) == family


@pytest.mark.parametrize("name", sorted(shipped_rules().messages))
def test_each_kernel_message_that_opens_an_incident_has_a_family(name: str) -> None:
    rule, kind = shipped_rules().messages[name], name.partition(" ")[0]
    for entity in ("node", "gpu:GPU-0", "rail:mlx5_0"):
        found = Finding(entity, kind, kind, rule.severity, rule.blame, rule.scope, rule.action, "", "")
        if rule.blame is not Blame.USER and rule.action is not Action.NONE:
            assert family_of(course_of(found).kind) != OTHER


@pytest.mark.parametrize("action", Action)
def test_each_action_of_an_xid_leads_to_a_family(action: Action) -> None:
    for entity in ("node", "gpu:GPU-0", "switch:0000:05:00"):
        found = Finding(entity, "xid", "1", Severity.DEGRADED, Blame.HARDWARE, Scope.GPU, action, "", "")
        assert family_of(course_of(found).kind) != OTHER
