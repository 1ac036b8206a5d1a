"""Accounts of replicas and fixed partitions: thousandths of the card that they are a part of."""

from hbox_common.model import (
    Card,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    Generation,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    QueueName,
    Resources,
)
from hbox_ledger.core.accounts.usage import cards_of

GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


def claim(requests: Resources, *slices: CardSlice) -> Claim:
    return Claim(
        ClaimId("c"), PodUid("u"), "ml", "p", JobId("j"), PlanId("p"), QueueName("lab"), 0, NodeName("n"), requests,
        slices, ClaimState.POSTED,
    )  # fmt: skip


def node(allocatable: Resources, labels: dict[str, str], *cards: Card) -> NodeState:
    return NodeState(NodeName("n"), "u", Generation(1), True, labels=labels, allocatable=allocatable, cards=cards)


def test_a_replica_uses_its_part_of_a_card() -> None:
    cards = [Card(i, f"n-{i}", "T4-SHARED", 16_384) for i in range(8)]
    sliced = node({GPU: 8}, {f"{GPU}.count": "2", f"{GPU}.replicas": "4"}, *cards)
    assert cards_of(claim({GPU: 1}, CardSlice(5, 100, 16_384)), sliced) == {"T4-SHARED": 250}
    assert cards_of(claim({GPU: 1}, CardSlice(5, 100, 16_384)), node({GPU: 8}, {}, *cards)) == {"T4-SHARED": 1000}
    assert cards_of(claim({"cpu": 1000}), sliced) == {}


def test_a_partition_uses_its_slices_of_a_card() -> None:
    mixed = node({SLICE: 14}, {"nvidia.com/mig.strategy": "mixed", f"{GPU}.product": "NVIDIA-A100-SXM4-80GB"})
    assert cards_of(claim({SLICE: 2}), mixed) == {"NVIDIA-A100-SXM4-80GB": 285}
    assert cards_of(claim({SLICE: 2}), None) == {}
