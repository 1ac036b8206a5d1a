"""Jobs and nodes for the output: plain dictionaries, made from the platform's messages. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from hbox_common.model import (
    Claim,
    GroupPhase,
    GroupState,
    Job,
    JobId,
    KindRest,
    NodeRest,
    NodeState,
    PodFact,
    PodPhase,
    RequestKind,
    Resources,
    Verdict,
    is_host_port,
    pool_of,
    quantity,
)
from hbox_common.model.cardparts import parts_on
from hbox_common.model.devices import ALL_CORES, VENDORS

from .node.cards import allocation_of, free_percent, named_claims
from .node.firstreport import report_item, report_text

Item = dict[str, Any]


def job_items(
    jobs: Iterable[Job],
    pods: Iterable[PodFact],
    verdicts: Mapping[JobId, str],
    *,
    groups: Iterable[GroupState] = (),
    shards: Mapping[JobId, str] = {},
    now: float,
) -> list[Item]:
    """One item a job, oldest first. `groups`: of them those are jobs too that are not enqueued yet and have no pods. `shards`: whose schedulers place them,
    where there are several. `now`: seconds since the epoch."""
    placed: dict[JobId, list[PodFact]] = defaultdict(list)
    for pod in pods:
        if pod.phase.holds:
            placed[pod.job].append(pod)
    items = []
    known = list(jobs)
    named = {job.id for job in known}
    outside = {one.id: one for one in groups if one.phase is GroupPhase.PENDING and one.id not in named}
    known += [_job_of(group) for group in outside.values()]
    for job in sorted(known, key=lambda job: (job.created_at, job.name)):
        own = placed[job.id]
        waiting = sum(len(task.pods) for task in job.tasks) or int(job.id in outside)
        asked = sum(len(task.pods) * (task.cards.count if task.cards else 0) for task in job.tasks)
        items.append(
            {
                "name": f"{job.namespace}/{job.name}",
                "id": job.id,
                "queue": job.queue,
                "priority": job.priority,
                "state": _job_state(job, own, waiting, verdicts),
                "pods": {"bound": job.bound, "members": job.members, "min": job.min_member},
                "placed": {pod.name: pod.node for pod in own},
                "waiting": [pod.name for task in job.tasks for pod in task.pods],
                "cards": VENDORS.asked(outside[job.id].min_resources)
                if job.id in outside
                else sum(pod.cards for pod in own) + asked,
                "ageSeconds": round(max(0.0, now - job.created_at), 1),
                "reason": job.problem or (verdicts.get(job.id, "") if waiting else ""),
                **({"shard": shard} if (shard := shards.get(job.id)) is not None else {}),
            }
        )
    return items


def _job_of(group: GroupState) -> Job:
    return Job(
        id=group.id,
        namespace=group.namespace,
        name=group.name,
        queue=group.queue,
        priority=group.priority,
        min_member=group.min_member,
        members=0,
        bound=0,
        created_at=group.created_at,
        revision=group.revision,
        tasks=(),
        gang=True,
    )


def _job_state(job: Job, own: Sequence[PodFact], waiting: int, verdicts: Mapping[JobId, str]) -> str:
    if job.problem:
        return "WAITING" if job.waits_for_others else "INVALID"
    if waiting and job.bound < job.min_member:
        return "WAITING" if job.id in verdicts else "PENDING"
    if waiting:
        return "GROWING"
    return "RUNNING" if own and all(pod.phase is PodPhase.RUNNING for pod in own) else "BOUND"


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
        free = [free_percent(card, given.get(card.id)) for card in node.cards]
        items.append(
            {
                "name": node.name,
                "state": _node_state(node),
                "pool": pool_of(node.labels),
                "model": ",".join(sorted({card.model for card in node.cards})),
                "cards": _cards(node, own, free),
                "healthy": verdict is None or (verdict.healthy and not verdict.bad_cards),
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


def _cards(node: NodeState, own: Iterable[Claim], free: list[int]) -> Item:
    """Free and all cards of the node; free ones with fractions, and all of the machine, where its resources count parts of cards."""
    parts = parts_on(node)
    if parts is None:
        return {"free": sum(f == ALL_CORES for f in free), "total": len(node.cards), "freePercent": free}
    left = parts.held(node.allocatable) - sum((parts.held(claim.requests) for claim in own), Fraction(0))
    return {"free": round(float(max(left, Fraction(0))), 2), "total": parts.total, "freePercent": []}


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
