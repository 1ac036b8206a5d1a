"""Items of cards for the output: how much of each is allocated, to which pods, and the links between cards. Pure.

If the cards of a node have no identity, claims hold counts (`devices.identity`): all such cards of one model are one item, with the number that each pod
holds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hbox_common.model import VENDORS, Claim, NodeAllocation, NodeState, Verdict, name_slices, pool_of
from hbox_common.model.cardparts import WHOLE, part_of_share, share_on
from hbox_common.model.devices import ALL_CORES, Card, CardAllocation
from hbox_common.model.devices.identity import made_up
from hbox_common.model.devices.partitions import CARD

Item = dict[str, Any]

_IDLE = CardAllocation()


def allocation_of(claims: Iterable[Claim]) -> NodeAllocation:
    """What is given away of one node by these claims of it."""
    found = NodeAllocation()
    for claim in claims:
        found.book(claim.requests, claim.slices)
    return found


def free_percent(card: Card, held: CardAllocation | None) -> int:
    """What is left of a card for others, in percent: of its cores or of its memory, whichever is less; 0 where no share is left."""
    if held is None or held.pods == 0:
        return ALL_CORES
    if held.pods >= card.shares or not card.memory_mib:
        return 0
    left = (ALL_CORES * (card.memory_mib - held.memory_mib) + card.memory_mib // 2) // card.memory_mib
    return max(0, min(left, ALL_CORES - held.cores))


def named_claims(node: NodeState, claims: Iterable[Claim]) -> list[Claim]:
    """The claims on this node, with the current indices of their cards; -1: the node no longer has the card."""
    return [
        replace(claim, slices=name_slices(claim.slices, node.cards)) if claim.slices else claim
        for claim in claims
        if claim.node == node.name
    ]


def kind_of(node: NodeState, card: Card) -> str:
    """HAMi's common word for the kind of a card."""
    return card.kind or (VENDORS.of(node.allocatable) or VENDORS.default).kind


def card_items(nodes: Iterable[NodeState], verdicts: Mapping[str, Verdict], claims: Iterable[Claim]) -> list[Item]:
    """One item for each card, by node and index; one for all cards of a kind and model of a node if they have no identity."""
    by_node: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_node[claim.node].append(claim)
    items: list[Item] = []
    for node in sorted(nodes, key=lambda node: node.name):
        if node.gone or not node.cards:
            continue
        verdict = verdicts.get(node.name)
        groups: dict[tuple[object, ...], list[Card]] = defaultdict(list)
        for card in sorted(node.cards, key=lambda card: card.index):
            unknown = made_up(node.name, card, node.registered)
            key = (kind_of(node, card), card.model, _health(node, card, verdict)) if unknown else (card.index,)
            groups[key].append(card)
        own = named_claims(node, by_node[node.name])
        allocation = allocation_of(own)
        items += (_item(node, cards, verdict, allocation, own, known=len(key) == 1) for key, cards in groups.items())
    return items


def _item(
    node: NodeState,
    cards: Sequence[Card],
    verdict: Verdict | None,
    allocation: NodeAllocation,
    claims: Sequence[Claim],
    *,
    known: bool,
) -> Item:
    first, indices = cards[0], {card.index for card in cards}
    held = [allocation.cards.get(card.id, _IDLE) for card in cards]
    share = share_on(node)
    return {
        "name": f"{node.name}/{_span([card.index for card in cards])}",
        "node": node.name,
        "pool": pool_of(node.labels),
        "indices": [card.index for card in cards],
        "known": known,
        "kind": kind_of(node, first),
        "model": first.model,
        "uuid": first.uuid if known else None,
        "mode": first.effective_traits.mode or (f"{share.partition(':')[2]} of a card" if share else ""),
        "part": part_of_share(share or WHOLE) / CARD,
        "numa": first.numa if known and first.numa >= 0 else None,
        "health": _health(node, first, verdict),
        "reason": verdict.reason if verdict is not None and _condemned(first, verdict) else "",
        "idle": sum(one.pods == 0 for one in held),
        "slots": {"used": sum(one.pods for one in held), "total": sum(max(card.shares, 1) for card in cards)},
        "memoryMib": {"used": sum(one.memory_mib for one in held), "total": sum(card.memory_mib for card in cards)},
        "cores": {"used": sum(one.cores for one in held), "total": ALL_CORES * len(cards)},
        "owners": [owner for claim in claims if (owner := _owner(claim, indices)) is not None],
    }


def _owner(claim: Claim, indices: set[int]) -> Item | None:
    own = [piece for piece in claim.slices if piece.index in indices]
    if not own:
        return None
    return {
        "pod": f"{claim.namespace}/{claim.pod}",
        "queue": claim.queue,
        "cards": len(own),
        "slots": sum(piece.slots for piece in own),
        "memoryMib": sum(piece.memory_mib for piece in own),
        "cores": sum(piece.cores for piece in own),
        "part": "+".join(piece.part for piece in own if piece.part),
    }


def owner_text(owner: Mapping[str, Any]) -> str:
    """`ml/train-0 30% 4000Mi 3g.20gb@4`; a whole card, or several, by their number."""
    if owner["cores"] >= ALL_CORES * owner["cards"]:
        return str(owner["pod"]) if owner["cards"] == 1 else f"{owner['pod']} x{owner['cards']}"
    amounts = [f"{owner['cores']}%"] if owner["cores"] else []
    amounts += [f"{owner['memoryMib']}Mi"] if owner["memoryMib"] else []
    amounts += [owner["part"]] if owner["part"] else []
    return " ".join((owner["pod"], *amounts))


def _health(node: NodeState, card: Card, verdict: Verdict | None) -> str:
    if not card.healthy or (verdict is not None and _condemned(card, verdict)):
        return "bad"
    if not node.ready:
        return "node not ready"
    return "cordoned" if card.effective_traits.cordoned or node.unschedulable else "ok"


def _condemned(card: Card, verdict: Verdict) -> bool:
    return not verdict.healthy or verdict.marks_unhealthy(card)


def _span(indices: Sequence[int]) -> str:
    """`0-7`, `0-3,16-19`."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][-1] + 1 == index:
            runs[-1] = [runs[-1][0], index]
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def kind_items(cards: Iterable[Item]) -> list[Item]:
    """One item for each kind and model, of the items of cards."""
    found: dict[tuple[str, str], Item] = {}
    nodes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for card in cards:
        key = card["kind"], card["model"]
        kind = found.setdefault(
            key,
            {
                "name": f"{card['kind']}/{card['model']}",
                "kind": card["kind"],
                "model": card["model"],
                "cards": {"total": 0, "idle": 0, "out": 0},
                **{what: {"used": 0, "total": 0} for what in ("slots", "memoryMib", "cores")},
                "queues": Counter(),
            },
        )
        nodes[key].add(card["node"])
        part, well = card["part"], card["health"] == "ok"
        kind["cards"]["total"] += len(card["indices"]) * part
        kind["cards"]["idle"] += card["idle"] * part if well else 0
        kind["cards"]["out"] += 0 if well else len(card["indices"]) * part
        for what in ("slots", "memoryMib", "cores"):
            for which in ("used", "total"):
                kind[what][which] += card[what][which]
        for owner in card["owners"]:
            kind["queues"][owner["queue"] or "-"] += owner["cards"] * part
    return [
        {
            **kind,
            "cards": _rounded(kind["cards"]),
            "nodes": len(nodes[key]),
            "queues": _rounded(dict(sorted(kind["queues"].items()))),
        }
        for key, kind in sorted(found.items())
    ]


def _rounded(cards: Mapping[str, float]) -> dict[str, float]:
    """Numbers of cards with two decimals, and none where they are whole."""
    return {
        name: int(units) if float(units).is_integer() else units for name, units in ((n, round(u, 2)) for n, u in cards.items())
    }


def link_items(node: NodeState) -> list[Item]:
    """For each kind whose device plugin publishes links: the score of each pair of cards, by index; higher is better."""
    by_kind: dict[str, list[Card]] = defaultdict(list)
    for card in sorted(node.cards, key=lambda card: card.index):
        by_kind[kind_of(node, card)].append(card)
    return [
        {
            "kind": kind,
            "cards": [card.index for card in cards],
            "scores": [
                list(card.effective_traits.links[: len(cards)]) + [0] * (len(cards) - len(card.effective_traits.links))
                for card in cards
            ],
        }
        for kind, cards in by_kind.items()
        if any(any(card.effective_traits.links) for card in cards)
    ]


def link_lines(found: Mapping[str, Any]) -> list[str]:
    """The matrix as it is drawn in a terminal, a line a card."""
    cards = found["cards"]
    cells = [["", *map(str, cards)]]
    for place, (index, row) in enumerate(zip(cards, found["scores"], strict=True)):
        cells.append([str(index), *("-" if other == place else str(score) for other, score in enumerate(row))])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
