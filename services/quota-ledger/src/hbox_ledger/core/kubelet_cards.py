"""The cards that kubelets actually allocated to pods: the books follow them.

Under a device plugin without HAMi's protocol the kubelet chooses the cards: a plan determines their number and only guesses their ids. node-agent publishes
the allocation by device ids and pod uids; the claims of those pods are moved to these cards: voided, and entered again as found, as after a resize. Such a
plugin does not divide cards: pods that ask for parts have a card each, though the plan put them on one.

A claim moves if no other claim holds its new cards, except claims that move as well: otherwise a card would be counted twice until the other pod's report
arrives, and a plan could use capacity that does not exist. A lasting mismatch is reported as a conflict: two pods on one card, another number of cards, or a
card that the kubelet and the books assign to different pods.

Allocations are ignored if their ids are no cards of the inventory (slots of HAMi's plugin, whose cards HBox chooses itself), or if the pod's uid is unknown: a
pod name may be reused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hbox_common.model import (
    CardId,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    NodeDevices,
    NodeState,
    PlanId,
    Resources,
    cards_by_model,
)
from hbox_common.model.cardparts import is_share
from hbox_common.model.claim import KUBELET_GAVE
from hbox_common.model.devices import short_card
from hbox_common.model.nodedevices import cards_by_pod

from .claimids import found_claim_id
from .claimrecord import ClaimRecord, Decision
from .ledgerstate import LedgerState
from .lifecycle import end
from .step import Step

ACTOR = "node-agent"


@dataclass(slots=True)
class Moves:
    """What follows from a kubelet's word. `waits`: more may follow from the same word, once claims are posted or others move."""

    slices: dict[ClaimId, tuple[CardSlice, ...]] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)
    waits: bool = False


def moves(state: LedgerState, devices: NodeDevices) -> Moves:
    """Claims of a node that are on other cards than the kubelet reported."""
    found = Moves()
    node = state.nodes.get(devices.node)
    if node is None or node.gone:
        return found
    wanted: dict[ClaimId, list[CardId]] = {}
    for uid, given in cards_by_pod(devices, node).items():
        cards = sorted(given)
        id_ = state.by_pod.get(uid)
        record = state.live[id_] if id_ is not None else None
        if record is None or record.claim.state is ClaimState.PENDING:
            found.waits = True
            continue
        claim = record.claim
        if claim.node != devices.node or sorted(s.card for s in claim.slices) == cards:
            continue
        if len(claim.slices) != len(cards) or not all(_follows(node, s) for s in claim.slices):
            found.conflicts.append(
                f"the kubelet gave {_name(claim)} {len(cards)} cards, and its claim has {len(claim.slices)} cards or parts of cards"
            )
        elif record.decision is not Decision.NONE or claim.id in state.evicting or claim.job in state.gangs:
            found.waits = True
        else:
            wanted[claim.id] = cards
    if wanted:
        _settle(state, node, wanted, found)
    return found


def move(state: LedgerState, step: Step, found: Moves) -> int:
    """Moves them; how many."""
    records = [state.live[id_] for id_ in found.slices if id_ in state.live]
    classes = {record.claim.job: state.class_quotas.classes.get(record.claim.job, "") for record in records}
    for record in records:
        end(state, step, record, actor=ACTOR, cause=KUBELET_GAVE)
    for job, named in classes.items():  # `end` of a job's last claim removes its class, and with it the quota that its pods use
        state.class_quotas.name(job, named)
    for record in records:
        claim = record.claim
        slices = found.slices[claim.id]
        moved = replace(
            claim,
            id=found_claim_id(claim.pod_uid, state.epoch, state.index),
            plan=PlanId(""),
            slices=slices,
            state=ClaimState.POSTED,
            reason=KUBELET_GAVE,
            claimed_at=step.now,
            models=_models(state.nodes.get(claim.node), claim, slices),
        )
        entered = ClaimRecord(moved, record.resource_version, deadline=0.0, changed_at=step.now, forced=True)
        state.enter(step, entered, actor=ACTOR, cause=KUBELET_GAVE)
    return len(records)


def _models(node: NodeState | None, claim: Claim, slices: tuple[CardSlice, ...]) -> Resources:
    """What the claim counts on these cards by model. Its units stay the parts of cards that they were when it was made, whatever the node's labels are now."""
    models = {name: units for name, units in cards_by_model(node, slices).items() if not is_share(name)}
    return models | {name: units for name, units in claim.models.items() if is_share(name)}


def _settle(state: LedgerState, node: NodeState, wanted: dict[ClaimId, list[CardId]], found: Moves) -> None:
    """Those of `wanted` that can move together."""
    holders: dict[CardId, set[ClaimId]] = {}
    for id_ in state.with_cards.get(node.name, ()):
        for s in state.live[id_].claim.slices:
            holders.setdefault(s.card, set()).add(id_)
    target: dict[CardId, ClaimId] = {}
    for id_, cards in list(wanted.items()):
        twice = [card for card in cards if card in target]
        if twice:
            other = state.live[target[twice[0]]].claim
            found.conflicts.append(
                f"the kubelet gave card {short_card(twice[0])} to {_name(state.live[id_].claim)} and to {_name(other)}"
            )
            del wanted[id_]
        else:
            target |= dict.fromkeys(cards, id_)
    while blocked := _blocked(wanted, holders):
        for id_, card in blocked.items():
            other = state.live[min(holders[card] - wanted.keys())].claim
            found.conflicts.append(
                f"the kubelet gave card {short_card(card)} to {_name(state.live[id_].claim)}, and the ledger to {_name(other)}"
            )
            found.waits = True
            del wanted[id_]
    for id_, cards in wanted.items():
        found.slices[id_] = tuple(_on(node, s, card) for s, card in zip(state.live[id_].claim.slices, cards, strict=True))


def _blocked(wanted: Mapping[ClaimId, list[CardId]], holders: Mapping[CardId, set[ClaimId]]) -> dict[ClaimId, CardId]:
    """Claims whose new cards include one that another claim keeps, each with that card."""
    kept = {card for card, own in holders.items() if own - wanted.keys()}
    return {id_: min(kept.intersection(cards)) for id_, cards in wanted.items() if kept.intersection(cards)}


def _follows(node: NodeState, held: CardSlice) -> bool:
    """Whether the kubelet's word counts for this slice: for whole cards; for parts only if no plugin registered the node's cards. A plugin that shares cards
    registers them and takes a pod's cards from its annotations; any other plugin gives each pod cards of its own."""
    return held.whole or not node.registered


def _on(node: NodeState, held: CardSlice, id_: CardId) -> CardSlice:
    """The slice moved to another card: the whole of it, or the same part."""
    card = node.card(id_)
    if card is None:
        return replace(held, index=-1, card=id_)
    memory_mib = card.memory_mib if held.whole else min(held.memory_mib, card.memory_mib)
    return replace(held, index=card.index, card=id_, memory_mib=memory_mib)


def _name(claim: Claim) -> str:
    return f"{claim.namespace}/{claim.pod}"
