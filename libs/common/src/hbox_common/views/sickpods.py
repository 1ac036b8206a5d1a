"""Pods that run on hardware which a verdict takes out of use: card, code, policy, and what happens next. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hbox_common.events import HealthEvictionAsked
from hbox_common.model import Claim, Incident, IncidentState, NodeName, QueueName, Verdict
from hbox_common.model.annotations import ON_SICK_HARDWARE
from hbox_common.model.sickhardware import SickPolicy, sick_policy

Item = dict[str, Any]

#: What `held_by` of an incident has while health-monitor holds evictions back.
BREAKER = "breaker"


@dataclass(frozen=True, slots=True)
class Sickness:
    """What is published about the health of nodes. `paused`: why the ledger pauses evictions; "": it does not."""

    verdicts: Mapping[NodeName, Verdict]
    incidents: Sequence[Incident]  #: the last state of each
    requests: Sequence[HealthEvictionAsked]  #: those that apply
    paused: str = ""


def sick_pods(
    claims: Iterable[Claim],
    policies: Mapping[str, str],
    queue_policy: Callable[[QueueName], SickPolicy | None],
    sickness: Sickness,
) -> list[Item]:
    """One item for each claim on hardware that is out of use, by pod. `policies`: the annotation of a pod's job by the pod's uid."""
    items = []
    for claim in sorted(claims, key=lambda claim: (claim.namespace, claim.pod)):
        verdict = sickness.verdicts.get(claim.node)
        if verdict is None:
            continue
        cards = [str(one.card) for one in claim.slices if one.card in verdict.cards]
        if verdict.healthy and not cards:
            continue
        incident = _incident(sickness.incidents, claim.node, cards)
        asked = next((one for one in sickness.requests if one.node == claim.node and _applies(one, claim)), None)
        policy, origin = _policy(claim, policies, queue_policy, asked)
        state, text = _next(policy, incident, asked, sickness.paused)
        items.append(
            {
                "pod": f"{claim.namespace}/{claim.pod}",
                "node": claim.node,
                "cards": cards,
                "code": f"{incident.kind} {incident.code}".strip() if incident else "",
                "incident": incident.id if incident else "",
                "reason": incident.why if incident else verdict.reason,
                "policy": policy.value if policy else "",
                "policyOf": origin,
                "state": state,
                "next": text,
            }
        )
    return items


def _incident(incidents: Sequence[Incident], node: NodeName, cards: Sequence[str]) -> Incident | None:
    """The open incident about one of the cards, else about the node."""
    open_ = [one for one in incidents if one.node == node and one.state is not IncidentState.CLOSED]
    of_cards = [one for one in open_ if one.entity in cards]
    of_node = [one for one in open_ if one.entity == "node"]
    return next(iter([*of_cards, *of_node, *([] if cards else open_)]), None)


def _applies(asked: HealthEvictionAsked, claim: Claim) -> bool:
    if asked.jobs:
        return str(claim.job) in asked.jobs
    return not asked.cards or any(one.card in asked.cards for one in claim.slices)


def _policy(
    claim: Claim,
    policies: Mapping[str, str],
    queue_policy: Callable[[QueueName], SickPolicy | None],
    asked: HealthEvictionAsked | None,
) -> tuple[SickPolicy | None, str]:
    """The policy in force, and whose it is; None: no request states a default."""
    if own := sick_policy({ON_SICK_HARDWARE: policies.get(str(claim.pod_uid), "")}):
        return own, "job"
    if of_queue := queue_policy(claim.queue):
        return of_queue, "queue"
    return (asked.policy, "default") if asked is not None else (None, "")


def _next(
    policy: SickPolicy | None, incident: Incident | None, asked: HealthEvictionAsked | None, paused: str
) -> tuple[str, str]:
    repair = f"; then: {incident.action}" if incident and incident.action not in ("", "none") else ""
    if policy is SickPolicy.IGNORE:
        return (
            "stays",
            f"it stays until it ends, and delays the repair: delete it, or set {ON_SICK_HARDWARE} to restart{repair}",
        )
    if incident is not None and BREAKER in incident.held_by:
        return (
            "held",
            "health-monitor's limit of restricted nodes and evictions holds it back; it continues by itself (hbox health incidents)",
        )
    if asked is None:
        return "stays", f"no eviction is requested for this fault: the pod may go on{repair}"
    if paused:
        return "held", f"evictions are paused: {paused} (hbox evictions)"
    return "leaves", f"its eviction is requested{repair}"
