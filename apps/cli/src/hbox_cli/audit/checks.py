"""The checks of one reading of cluster and ledger. The audit counts each check and names each fault.

Checks of the cluster alone: no card is allocated beyond its capacity, no whole card is shared, no node is allocated beyond its allocatable, every pod is on
the cards that it requests, no gang started in part. Checks of cluster and ledger: each bound pod has exactly one posted claim, on the same node and cards,
each posted claim has its pod, and no claim is pending for too long.

If node-agent runs: each pod's claim is on the cards that its kubelet allocated. A card that left its node while one pod holds it is a finding about hardware
and gets a note: no second pod got the card.

A pod's tenant can write its annotations. They count only if the ledger has a claim of this pod on this node. A pod whose annotations differ gets a note, no
fault: it holds what the ledger allocated, or else what it requests. A gang that lost members to reclaim or preemption gets a note, too.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from hbox_common.model import CardId, CardSlice, Claim, ClaimId, ClaimState, PodUid, any_names_model, format_slices
from hbox_common.model.claim import KUBELET_GAVE
from hbox_common.model.devices import VENDORS, number_in, short_card, short_cards

from .cluster import AuditGang, AuditNode, AuditPod
from .invariants import CardUse, Violation, over_allocated, over_booked, partial_gang
from .published import Published


@dataclass(slots=True)
class Audit:
    """The result. `faults` and `notes` are sentences; notes are of what others did, and break no promise."""

    checks: int = 0
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def check(self, good: bool, fault: str) -> None:
        self.checks += 1
        if not good:
            self.faults.append(fault)

    def judge(self, checks: int, violations: Iterable[Violation]) -> None:
        """Count `checks` of an invariant, and what it found."""
        self.checks += checks
        self.faults += [one.message for one in violations]

    def add(self, other: "Audit") -> None:
        """What another look found."""
        self.checks += other.checks
        self.faults += other.faults
        self.notes += other.notes


def audit(
    nodes: Iterable[AuditNode],
    pods: Iterable[AuditPod],
    gangs: Iterable[AuditGang],
    claims: Sequence[Claim],
    published: Mapping[str, Published] = MappingProxyType({}),
    *,
    unbound: Container[str] = (),
) -> Audit:
    """All checks. `claims`: the ledger's live ones; `published`: by node, what topology-collector and node-agent publish of its cards; `unbound`:
    PersistentVolumeClaims without a volume, as namespace/name."""
    result = Audit()
    by_name = {node.name: node for node in nodes}
    everyone = list(pods)
    holding = [pod for pod in everyone if pod.node and pod.holds]
    placed = _placed(holding, claims)
    _nodes(result, by_name, holding, placed, published)
    _ports(result, holding, placed)
    followed = placed | _given_by_kubelets(holding, claims)
    _cards(result, by_name, holding, followed, published)
    _wishes(result, by_name, holding, placed)
    _given(result, by_name, holding, placed, published)
    _kubelets(result, holding, followed, published)
    _gangs(result, gangs, everyone)
    waiting = waits_for_volumes(everyone, claims, unbound)
    _ledger(result, by_name, holding, claims, waiting)
    return result


def _placed(holding: Sequence[AuditPod], claims: Iterable[Claim]) -> dict[str, Claim]:
    """By uid of the pod: the claims by which the ledger placed it where it is. Those that were found bound are not among them."""
    nodes = {pod.uid: pod.node for pod in holding}
    return {claim.pod_uid: claim for claim in claims if claim.plan and nodes.get(claim.pod_uid) == claim.node}


def _given_by_kubelets(holding: Sequence[AuditPod], claims: Iterable[Claim]) -> dict[str, Claim]:
    """By uid of the pod: the claims that the ledger moved to the cards which the kubelet gave."""
    nodes = {pod.uid: pod.node for pod in holding}
    return {c.pod_uid: c for c in claims if c.reason == KUBELET_GAVE and nodes.get(c.pod_uid) == c.node}


def _nodes(
    result: Audit,
    nodes: Mapping[str, AuditNode],
    holding: Sequence[AuditPod],
    placed: Mapping[str, Claim],
    published: Mapping[str, Published],
) -> None:
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in holding:
        result.check(pod.node in nodes, f"pod {pod.name} is bound to {pod.node}, which is no node")
        used[pod.node].update(pod.requests)
        lost = published[pod.node].lost if pod.uid in placed and pod.node in published else ()
        if on_lost := sum(piece.slots for piece in placed[pod.uid].slices if piece.card in lost) if lost else 0:
            # The node's allocatable amounts are without cards that it lost.
            used[pod.node].subtract({resource: on_lost for resource in pod.requests if resource in VENDORS.cards})
    for name, amounts in used.items():
        if name not in nodes:
            continue
        result.judge(len(amounts), over_allocated(nodes[name], amounts))


def _ports(result: Audit, holding: Sequence[AuditPod], placed: Mapping[str, Claim]) -> None:
    """Pods that HBox placed share no host port of a node. Pods of other schedulers may clash, since HBox does not check them before they start."""
    holders: dict[tuple[str, str, int], list[tuple[str, str]]] = defaultdict(list)
    for pod in holding:
        for protocol, port, address in sorted(pod.ports) if pod.uid in placed else ():
            held = holders[pod.node, protocol, port]
            clash = next((name for name, other in held if not address or not other or address == other), "")
            result.check(not clash, f"node {pod.node}: {protocol} port {port} is held by {clash} and by {pod.name}")
            held.append((pod.name, address))


def _cards(
    result: Audit,
    nodes: Mapping[str, AuditNode],
    holding: Sequence[AuditPod],
    placed: Mapping[str, Claim],
    published: Mapping[str, Published],
) -> None:
    uses: dict[tuple[str, CardId], CardUse] = defaultdict(CardUse)
    strangers: Counter[str] = Counter()
    holders: dict[tuple[str, CardId], set[str]] = defaultdict(set)
    for pod in holding:
        if pod.uid not in placed:
            strangers[pod.node] += pod.cards
            continue
        for piece in placed[pod.uid].slices:
            card = (pod.node, nodes[pod.node].canonical(piece.card) if pod.node in nodes else piece.card)
            uses[card].add(piece)
            holders[card].add(pod.name)
    taken: Counter[str] = Counter()
    for (name, id_), use in uses.items():
        card, index = (name, id_), short_card(id_)
        known = nodes[name].card(id_) if name in nodes else None
        # A Node object without UUIDs does not show which of its cards is lost.
        lost = (known is None or not known.named) and name in published and id_ in published[name].lost
        taken[name] += not lost
        names = ", ".join(sorted(holders[card]))
        result.check(known is not None or lost, f"node {name} has no card {index}, which {names} holds")
        if lost:
            result.notes.append(f"node {name} lost card {index}, which {names} holds: the card is given to no other pod")
        result.judge(2 if known is None else 4, over_booked(name, id_, known, use))
    for name, cards in strangers.items():
        if cards and name in nodes:
            # The cards of other schedulers' pods are unknown: the node needs enough cards in addition to those of HBox's pods.
            room = max(len(nodes[name].cards), VENDORS.asked(nodes[name].allocatable))
            result.check(
                cards + taken[name] <= room, f"node {name}: {cards} cards of others' pods and {taken[name]} of ours, of {room}"
            )


def _wishes(result: Audit, nodes: Mapping[str, AuditNode], holding: Sequence[AuditPod], placed: Mapping[str, Claim]) -> None:
    for pod in holding:
        if pod.uid not in placed:
            continue
        pieces = placed[pod.uid].slices
        if pod.by_containers:
            slots, memory = sum(piece.slots for piece in pieces), sum(piece.memory_mib for piece in pieces)
            result.check(slots >= pod.cards, f"pod {pod.name} asked for {pod.cards} cards and holds {slots}")
            result.check(
                memory >= pod.least_mib,
                f"pod {pod.name} holds {memory} MiB of its cards, its containers ask for {pod.least_mib}",
            )
            continue
        result.check(
            len({piece.card for piece in pieces}) == pod.cards == len(pieces),
            f"pod {pod.name} asked for {pod.cards} cards and holds {len(pieces)}",
        )
        for piece in pieces:
            card = nodes[pod.node].card(piece.card) if pod.node in nodes else None
            size = card.memory_mib if card else 0
            wanted = pod.memory_mib or -(-size * pod.memory_percent // 100)
            result.check(
                piece.cores >= pod.cores and (size == 0 or piece.memory_mib >= min(wanted, size)),
                f"pod {pod.name} holds {piece.cores} % and {piece.memory_mib} MiB of card {short_card(piece.card)}: less than it asked for",
            )
            if card and pod.models:
                fits = any_names_model(pod.models, card.model)
                result.check(fits, f"pod {pod.name} runs on a {card.model}, and asked for {' or '.join(pod.models)}")


def _given(
    result: Audit,
    nodes: Mapping[str, AuditNode],
    holding: Sequence[AuditPod],
    placed: Mapping[str, Claim],
    published: Mapping[str, Published],
) -> None:
    """The UUIDs in the device plugin's annotation are those of the claim. A plugin gives out no card that its node lacks, so an annotation that names such a
    UUID was written by someone else: that is noted."""
    for pod in holding:
        node = nodes.get(pod.node)
        if node is None or pod.uid not in placed or not pod.given or not any(card.named for card in node.cards.values()):
            continue
        held = {node.canonical(piece.card) for piece in placed[pod.uid].slices}
        lost = published[pod.node].lost if pod.node in published else frozenset()
        claimed = short_cards(sorted(held))
        if strange := pod.given - node.cards.keys() - lost - held:
            result.notes.append(
                f"pod {pod.name}: its device plugin's annotation names {short_cards(sorted(strange))[:200]}, which node {pod.node} does not have; "
                f"its claim is on {claimed}"
            )
            continue
        result.check(
            pod.given == held,
            f"pod {pod.name} runs on {short_cards(sorted(pod.given))} by its device plugin's annotation, but its claim is on {claimed}",
        )


def _kubelets(
    result: Audit, holding: Sequence[AuditPod], claims: Mapping[str, Claim], published: Mapping[str, Published]
) -> None:
    """Each claim is on the cards that the kubelet gave its pod, by UUID."""
    for pod in holding:
        given = published[pod.node].given.get(PodUid(pod.uid)) if pod.node in published else None
        if given is None or pod.uid not in claims:
            continue
        held = {piece.card for piece in claims[pod.uid].slices}
        if any(number_in(card) is not None for card in held):
            continue  # an older program wrote the claim
        result.check(
            given == held,
            f"the kubelet of node {pod.node} gave pod {pod.name} {short_cards(sorted(given))}, but its claim is on {short_cards(sorted(held))}",
        )


def _gangs(result: Audit, gangs: Iterable[AuditGang], pods: Sequence[AuditPod]) -> None:
    """No gang starts in part. One that started whole and has fewer than its minimum since broke no promise: that is noted.

    Members were lost to a drain or a deletion, or the minimum was raised: a PodGroup does not say what it asked for when it started."""
    members = Counter((pod.gang, bool(pod.node)) for pod in pods if pod.gang)
    for gang in gangs:
        bound, waiting = members[gang.name, True], members[gang.name, False]
        partial = 0 < bound < gang.min_member
        result.judge(1, () if gang.ran else partial_gang(gang.name, bound, gang.min_member))
        if partial and gang.ran:
            short = gang.min_member - bound
            waits = min(short, waiting)
            result.notes.append(
                f"gang {gang.name} started whole, and {short} of its {gang.min_member} members have no node now, since a drain or a deletion "
                f"took them or its minMember was raised: {waits} wait for nodes"
                + (f", {short - waits} are not there" if short > waits else "")
            )


def waits_for_volumes(pods: Iterable[AuditPod], claims: Iterable[Claim], unbound: Container[str]) -> dict[ClaimId, str]:
    """The pending claims whose pods wait for a volume, with the PersistentVolumeClaim: the binder binds these pods after their volumes."""
    wanted = {pod.uid: pod.volume_claims for pod in pods if pod.volume_claims and pod.holds and not pod.node}
    named = (
        (claim.id, next((one for one in wanted.get(claim.pod_uid, ()) if one in unbound), ""))
        for claim in claims
        if claim.state is ClaimState.PENDING
    )
    return {id_: one for id_, one in named if one}


def _ledger(
    result: Audit,
    nodes: Mapping[str, AuditNode],
    holding: Sequence[AuditPod],
    claims: Sequence[Claim],
    waiting: Mapping[ClaimId, str],
) -> None:
    by_pod: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_pod[claim.pod_uid].append(claim)
        pod_name = f"{claim.namespace}/{claim.pod}"
        if volume := waiting.get(claim.id):
            result.notes.append(
                f"pod {pod_name} has its place on node {claim.node} and waits for persistentvolumeclaim {volume}"
            )
        result.check(
            claim.state is ClaimState.POSTED or bool(volume), f"claim {claim.id} of pod {pod_name} is {claim.state} still"
        )
    for pod in holding:
        own = by_pod.get(pod.uid, [])
        result.check(len(own) == 1, f"pod {pod.name} is bound and has {len(own)} claims")
        for claim in own:
            result.check(claim.node == pod.node, f"pod {pod.name} is on {pod.node}, its claim on {claim.node}")
            if difference := _differs(pod, claim, nodes.get(pod.node)):
                result.notes.append(difference)
    alive = {pod.uid for pod in holding}
    for claim in claims:
        if claim.state is ClaimState.POSTED:
            result.check(
                claim.pod_uid in alive, f"claim {claim.id} is posted, and its pod {claim.namespace}/{claim.pod} is not there"
            )


def _differs(pod: AuditPod, claim: Claim, node: AuditNode | None) -> str:
    """The difference between the pod's annotations and its claim; empty if they agree, or if a pod that was found bound has no annotations.

    If a pod was bound before the kubelet reported the UUIDs of the cards, its annotation has names that the inventory generated. The claim has the UUIDs by
    then, so only the amounts are compared.
    """
    made_up = {id for id, card in node.cards.items() if not card.named} if node is not None else set()
    amounts = any(s.card in made_up for s in pod.slices or ()) and not any(s.card in made_up for s in claim.slices)
    held = _written(claim.slices, amounts=amounts)
    annotated = None if pod.slices is None else _written(pod.slices, amounts=amounts)
    if claim.reason == KUBELET_GAVE:  # the annotation names the planned cards
        return ""
    if claim.plan:
        if annotated == held and pod.claim == claim.id:
            return ""
    elif not (pod.claim or annotated != "") or annotated == held:
        return ""
    written = "nothing that can be read" if annotated is None else annotated or "no cards"
    return (
        f"pod {pod.name}: its annotations say claim {pod.claim[:64] or 'none'} and {written[:200]}, the ledger has {claim.id} and {held or 'no cards'}: "
        "another writer changed them; HBox ignores them"
    )


def _written(slices: Iterable[CardSlice], *, amounts: bool) -> str:
    """The slices, sorted; `amounts`: without the ids of their cards."""
    return format_slices(tuple(sorted((replace(s, card=CardId("0")) if amounts else s for s in slices), key=repr)))
