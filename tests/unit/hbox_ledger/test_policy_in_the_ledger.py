"""The policy's file as the ledger reads it: whether queues have shares by weight."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from hbox_common.errors import InvalidRequest
from hbox_ledger.adapters.policyfile import by_weight, policy_file
from hbox_ledger.settings import LedgerSettings


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ('actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n- plugins:\n  - name: drf\n  - name: proportion\n', True),
        ('actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: capacity}]\n', False),
        ('{"tiers": [{"plugins": [{"name": "proportion", "enabledReclaimable": true}]}]}', True),
        ("actions: allocate  # proportion\n", False),
        ("tiers: proportion\n", False),
        ("tiers: [proportion, {plugins: proportion}, {plugins: [proportion, [], {name: [proportion]}]}]\n", False),
    ],
)
def test_queues_have_shares_by_weight_where_a_tier_has_proportion(text: str, weights: bool) -> None:
    assert by_weight(text) is weights


@pytest.mark.parametrize("text", ["", "proportion", "- tiers: []", "a: [", "a: 1\n---\nb: 2\n"])
def test_what_is_no_policy_is_refused_with_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=r"^HBOX_SCHEDULER_CONF: .*volcano-scheduler\.conf: "):
        policy_file(path)


def test_the_file_has_to_be_named_where_it_says_what_queues_have() -> None:
    with pytest.raises(ValidationError, match="shares: policy asks for scheduler_conf"):
        LedgerSettings(nats_url="nats://127.0.0.1:1", shares="policy")
