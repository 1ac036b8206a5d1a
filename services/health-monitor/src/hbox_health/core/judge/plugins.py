"""Device plugins that hand out cards that are out of use.

Under a plugin without HAMi's protocol the kubelet chooses the cards, and the ledger moves the claim to them. If the plugin keeps on offering a sick card, each
pod that leaves it may be followed by another one, on the same card. Once a pod that came after the fault was given such a card, the node takes no work until
each card that was handed out so is well, or no longer offered by the plugin. The pods on these cards leave; while the breaker keeps the node open they stay,
since others would follow.
"""

from collections.abc import Sequence

from .courses import PLUGIN
from .finding import Action, Blame, Finding, Scope, Severity
from .happenings import Found, PodOnCards
from .intake import replace_source, take
from .memory import NodeMemory
from .work import NODE, Site, hold, key_of

REQUIREMENTS = "hbox-requirements"


#: Seconds that the first report of a pod may be late: its claim reaches health-monitor a moment after the kubelet gave it cards, and later while the ledger's
#: list of claims is read anew. A pod of that time that got the card after all leaves, and its successor counts.
REPORT_DELAY_S = 10.0


def record_kubelet_choice(node: NodeMemory, pods: Sequence[PodOnCards], now: float) -> bool:
    """Record cards out of use that the kubelet gave to pods; True: there are new ones. `pods`: the next `node.pods`.

    A pod that is now on such a card counts only if it was first seen after the card went out of use: the ledger may move the claim of an earlier pod late.
    """
    first_seen = {pod.uid: node.pods_seen.get(pod.uid, 0.0) for pod in node.pods}
    new = 0.0 if node.known is not None else now  # the first report of a node's pods states nothing about when they came
    node.pods_seen = {pod.uid: first_seen.get(pod.uid, new) for pod in pods}
    earlier = {(pod.uid, pod.cards) for pod in node.pods}
    chosen = {
        card: pod.given
        for pod in pods
        if pod.given and (pod.uid, pod.cards) not in earlier
        for card in pod.cards
        if card in node.cards_out
        and card not in node.sick_allocations
        and node.pods_seen[pod.uid] > node.cards_out[card] + REPORT_DELAY_S
    }
    node.sick_allocations |= chosen
    return bool(chosen)


def review_plugin(site: Site) -> None:
    """Find that the plugin hands out cards that are out of use, until none of them is both out of use and offered."""
    node = site.node
    node.sick_allocations = {
        card: by
        for card, by in node.sick_allocations.items()
        if card in node.verdict.cards and (node.offered is None or card in node.offered)
    }
    key = key_of(NODE, PLUGIN)
    if not node.sick_allocations and key not in node.open:
        return
    cards, by = sorted(node.sick_allocations), sorted(set(node.sick_allocations.values()))
    why = (
        f"The device plugin of {', '.join(by)} hands out {', '.join(cards)}, out of use: the node takes no work until the card is well, "
        "or the plugin does not offer it."
    )
    found = Finding(NODE, PLUGIN, "", Severity.MISCONFIGURED, Blame.SOFTWARE, Scope.NODE, Action.CORDON, REQUIREMENTS, why)
    event = Found(site.name, "", (found,) if cards else (), PLUGIN)
    replace_source(site, event)
    for finding in event.findings:
        take(site, event, finding)
    if (incident := node.open.get(key)) is not None:
        incident.cards = cards


def keep_pods(site: Site) -> None:
    """Keep pods on the cards while the breaker keeps the node open."""
    node = site.node
    if any(card not in node.verdict.cards for card in node.sick_allocations):
        site.work.dirty[site.name] = None  # a card is well again: review what its plugin did
    incident = node.open.get(key_of(NODE, PLUGIN))
    if incident is None or "breaker" not in incident.held_by:
        return
    for other in node.open.values():
        staying = [card for card in other.leaving if card in node.sick_allocations]
        if staying:
            other.leaving = [card for card in other.leaving if card not in node.sick_allocations]
            hold(other, "breaker")
