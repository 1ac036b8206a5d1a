"""Device plugins that hand out cards that are out of use.

Under a plugin without HAMi's protocol the kubelet chooses the cards, and the ledger moves the claim to them. If the plugin keeps on offering a sick card, each
pod that leaves it may be followed by another one, on the same card. Once a pod was given such a card, the node takes no work until each card that was handed
out so is well, or no longer offered by the plugin. The pods on these cards leave; while the breaker keeps the node open they stay, since others would follow.
"""

from collections.abc import Sequence

from .courses import PLUGIN
from .finding import Action, Blame, Finding, Scope, Severity
from .happenings import Found, PodOnCards
from .intake import replace_source, take
from .memory import NodeMemory
from .work import NODE, Site, hold, key_of

REQUIREMENTS = "hbox-requirements"


def note_given(node: NodeMemory, pods: Sequence[PodOnCards]) -> bool:
    """Note cards out of use that the kubelet gave to pods that were not there before; True: there are new ones. `pods`: the next `node.pods`."""
    if not node.verdict.cards:
        return False
    there = {(pod.uid, pod.cards) for pod in node.pods}
    given = {
        card: pod.given
        for pod in pods
        if pod.given and (pod.uid, pod.cards) not in there
        for card in pod.cards
        if card in node.verdict.cards and card not in node.handed_out
    }
    node.handed_out |= given
    return bool(given)


def handed_out(site: Site) -> None:
    """Find that the plugin hands out cards that are out of use, until none of them is both out of use and offered."""
    node = site.node
    node.handed_out = {
        card: by
        for card, by in node.handed_out.items()
        if card in node.verdict.cards and (node.offered is None or card in node.offered)
    }
    key = key_of(NODE, PLUGIN)
    if not node.handed_out and key not in node.open:
        return
    cards, by = sorted(node.handed_out), sorted(set(node.handed_out.values()))
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


def spare(site: Site) -> None:
    """Keep pods on the cards while the breaker keeps the node open."""
    node = site.node
    if any(card not in node.verdict.cards for card in node.handed_out):
        site.work.dirty[site.name] = None  # a card is well again: review what its plugin did
    incident = node.open.get(key_of(NODE, PLUGIN))
    if incident is None or "breaker" not in incident.held_by:
        return
    for other in node.open.values():
        staying = [card for card in other.leaving if card in node.handed_out]
        if staying:
            other.leaving = [card for card in other.leaving if card not in node.handed_out]
            hold(other, "breaker")
