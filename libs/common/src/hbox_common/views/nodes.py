"""Nodes and pools for the output. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from hbox_common.model import (
    Claim,
    KindRest,
    NodeRest,
    NodeState,
    RequestKind,
    Resources,
    Verdict,
    is_host_port,
    pool_of,
    quantity,
)
from hbox_common.model.cardparts import parts_on
from hbox_common.model.devices import ALL_CORES
from hbox_common.model.devices.cardids import numbered

from .cards import allocation_of, free_percent, named_claims
from .firstreport import report_item, report_text

Item = dict[str, Any]


#: Seconds for which a kubelet's refusal of a pod is shown.
FAILURES_SHOWN_S = 300.0


def node_items(
    nodes: Iterable[NodeState],
    verdicts: Mapping[str, Verdict],
    claims: Iterable[Claim],
    rests: Mapping[str, NodeRest] = MappingProxyType({}),
    *,
    now: float = 0.0,
) -> list[Item]:
    """One item a node, by name. `now`: seconds since the epoch."""
    held: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        held[claim.node].append(claim)
    items = []
    for node in sorted(nodes, key=lambda node: node.name):
        if node.gone:
            continue
        own = named_claims(node, held[node.name])
        given = allocation_of(own).cards
        verdict = verdicts.get(node.name)
        usable = [verdict is None or not verdict.marks_unhealthy(card) for card in node.cards]
        free = [free_percent(card, given.get(card.id)) if well else 0 for card, well in zip(node.cards, usable, strict=True)]
        items.append(
            {
                "name": node.name,
                "state": _node_state(node),
                "pool": pool_of(node.labels),
                "model": ",".join(sorted({card.model for card in node.cards})),
                "cards": _cards(node, own, free) if _takes_work(node, verdict) else _closed(node, free),
                "healthy": verdict is None or not verdict.restricts,
                "health": scopes_item(verdict),
                "badCards": list(verdict.bad_cards) if verdict else [],
                "pods": len(own),
                "cardsByQueue": _cards_by_queue(own),
                "used": {name: n for name, n in _sum(claim.requests for claim in own).items() if not is_host_port(name)},
                "allocatable": node.allocatable,
                "refuses": (refuses := _rest_items(rests.get(node.name), now)),
                "devicePlugin": next((one for one in refuses if one["kind"] == RequestKind.CARDS), None),
                "kubeletReport": report_item(node, now),
                "reason": (verdict.reason if verdict else "")
                or node.cordon_reason
                or rest_text(rests.get(node.name), now)
                or report_text(node, now),
            }
        )
    return items


def scopes_item(verdict: Verdict | None) -> Item:
    """What of a node may not be used, by health-monitor's verdict."""
    return {
        "node": verdict is None or verdict.healthy,
        "sickCards": list(verdict.cards or map(numbered, verdict.bad_cards)) if verdict else [],
        "railsOff": list(verdict.rails_off) if verdict else [],
        "multiGpu": verdict is None or verdict.multi_gpu,
        "multiNode": verdict is None or verdict.multi_node,
        "incidents": list(verdict.incidents) if verdict else [],
    }


def scopes_text(item: Item) -> str:
    """`scopes_item` in a few words; `ok` if all may be used."""
    if not item["node"]:
        return "bad"
    sick = len(item["sickCards"])
    parts = [f"{sick} card{'s' if sick > 1 else ''} off"] if sick else []
    parts += [f"{', '.join(item['railsOff'])} off"] if item["railsOff"] else []
    parts += ["no multi-card pods"] if not item["multiGpu"] else []
    parts += ["no multi-node gangs"] if not item["multiNode"] else []
    return "; ".join(parts) or "ok"


def _cards(node: NodeState, own: Iterable[Claim], free: list[int]) -> Item:
    """Free and all cards of the node; free ones with fractions, and all of the machine, where its resources count parts of cards."""
    parts = parts_on(node)
    if parts is None:
        return {"free": sum(f == ALL_CORES for f in free), "total": len(node.cards), "freePercent": free}
    left = parts.held(node.allocatable) - sum((parts.held(claim.requests) for claim in own), Fraction(0))
    return {"free": round(float(max(left, Fraction(0))), 2), "total": parts.total, "freePercent": []}


def _takes_work(node: NodeState, verdict: Verdict | None) -> bool:
    return node.ready and not node.unschedulable and (verdict is None or verdict.healthy)


def _closed(node: NodeState, free: list[int]) -> Item:
    """No card of a node that takes no pods is free."""
    parts = parts_on(node)
    if parts is None:
        return {"free": 0, "total": len(node.cards), "freePercent": [0] * len(free)}
    return {"free": 0, "total": parts.total, "freePercent": []}


def _rest_items(rest: NodeRest | None, now: float) -> list[Item]:
    return [
        {
            "kind": one.kind,
            "amounts": dict(one.amounts),
            "only": dict(one.only),
            "failures": one.failures,
            "restsSeconds": round(one.until - now, 1) if one.lasts(now) else 0.0,
            "pod": one.pod,
            "message": one.message,
        }
        for one in _shown(rest, now)
    ]


def _shown(rest: NodeRest | None, now: float) -> list[KindRest]:
    """Recent refusals of the node's kubelet: those of all pods of a kind; if there are none, those of single requests, the newest first."""
    recent = [one for one in rest.refused if one.at <= now < one.at + FAILURES_SHOWN_S] if rest is not None else []
    return [one for one in recent if not one.only] or sorted(recent, key=lambda one: -one.at)


_KINDS: Mapping[str, str] = {
    RequestKind.CARDS: "pods with cards",
    RequestKind.ALIGNED: "pods with NUMA alignment",
    RequestKind.SELECTED: "pods with a node selector or affinity",
    RequestKind.ANY: "pods",
}


def rest_text(rest: NodeRest | None, now: float) -> str:
    """Which pods the node's kubelet refused, and how long the node takes no such pods; empty if it refused none recently."""
    texts = []
    for one in _shown(rest, now):
        kind = _KINDS.get(one.kind) or _asking(one)
        times = f"{one.failures} times in a row, the last " if one.failures > 1 else ""
        others = "no pods with exactly these requests" if one.only else "no such pods"
        waits = f"; it takes {others} for {max(1, round(one.until - now))}s" if one.lasts(now) else ""
        texts.append(f"its kubelet refused {kind}, {times}{one.pod}: {one.message}{waits}")
    return f"{texts[0]} (and {len(texts) - 1} more)" if len(texts) > 1 else "".join(texts)


def _asking(one: KindRest) -> str:
    least = one.amounts.get(one.kind, 0)
    return f"pods that request {quantity(one.kind, least)} {one.kind} or more" if least else f"pods that request {one.kind}"


def pool_items(nodes: Iterable[Item]) -> list[Item]:
    """One item a pool, by name, of the items of nodes."""
    found: dict[str, Item] = {}
    for node in nodes:
        start: Item = {"name": node["pool"], "nodes": 0, "ready": 0, "cards": {"free": 0, "total": 0}, "queues": Counter()}
        pool = found.setdefault(node["pool"], start)
        pool["nodes"] += 1
        pool["ready"] += node["state"] == "READY"
        for which in ("free", "total"):
            pool["cards"][which] += node["cards"][which]
        pool["queues"].update(node["cardsByQueue"])
    return [{**pool, "queues": dict(sorted(pool["queues"].items()))} for _, pool in sorted(found.items())]


def _cards_by_queue(claims: Iterable[Claim]) -> dict[str, int]:
    cards: Counter[str] = Counter()
    for claim in claims:
        if claim.slices:
            cards[claim.queue or "-"] += len(claim.slices)
    return dict(sorted(cards.items()))


def _node_state(node: NodeState) -> str:
    if not node.ready:
        return "NOT-READY"
    return "CORDONED" if node.unschedulable else "READY"


def _sum(amounts: Iterable[Resources]) -> Resources:
    total: Counter[str] = Counter()
    for amount in amounts:
        total.update(amount)
    return dict(total)
