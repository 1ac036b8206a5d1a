"""How long incidents take: from a fault to its judgement, to its isolation, and to the return of what it took out of use.

    step     from                                       until
    -------  -----------------------------------------  -------------------------------------------------------------------------
    detect   the agent read the fault, by its clock     the incident is confirmed
    isolate  the verdict takes something out of use     the verdict is read back from the stream; a node: its cordon is observed
    return   the same                                   all that the incident took may take work again, and the node is schedulable

An incident that is part of another, and one that a worse one of the same card absorbs, is not measured. What an agent states as time changes nothing but these
figures: a time in the future, or over a day ago, is no duration.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import isfinite

from hbox_common.model import IncidentState

from . import work
from .finding import Blame
from .happenings import Measured, Scopes, Step
from .kinds import family_of
from .memory import Memory, NodeMemory, Open, Timed
from .work import NODE, Site, is_card

#: A report waits for its reader for a day at most; clocks of nodes differ by seconds.
LONGEST_S, SKEW_S = 86_400.0, 5.0
#: Ended incidents of a node whose hardware another incident keeps out of use.
MOST_ENDED = 64


def review(site: Site) -> None:
    """Measure what the review of the node changed. `site.taken`: what each incident takes out of use."""
    node = site.node
    for incident in node.open.values():
        if not incident.detected and incident.state is not IncidentState.SUSPECT:
            incident.detected = True
            if not incident.part_of and incident.read_at is not None:
                _measure(site, Step.DETECT, incident.kind, duration(incident.read_at, site.now))
        parts = [] if incident.part_of else sorted(site.taken.get(incident.id, ()))
        if parts:
            timed = node.timed.get(incident.id)
            if timed is None:
                timed = node.timed[incident.id] = Timed(incident.kind, "", parts, site.now)
            timed.parts, timed.blame = parts, blame_of(incident)
        elif incident.part_of:
            node.timed.pop(incident.id, None)
    for id_, timed in list(node.timed.items()):
        if not timed.isolated and _by_cordon(site, timed) and node.unschedulable:
            _isolated(site, timed)
        if id_ not in site.taken and not _closed(node, timed.parts):
            del node.timed[id_]
            _measure(site, Step.RETURN, timed.kind, site.now - timed.since)
    ended = [id_ for id_ in node.timed if id_ not in site.taken]
    for id_ in ended[: max(0, len(ended) - MOST_ENDED)]:
        del node.timed[id_]


def read_back(site: Site, scopes: Scopes) -> None:
    """A verdict has reached its readers."""
    for timed in site.node.timed.values():
        if not timed.isolated and not _by_cordon(site, timed) and all(_is_out(scopes, part) for part in timed.parts):
            _isolated(site, timed)


def _by_cordon(site: Site, timed: Timed) -> bool:
    return NODE in timed.parts and site.work.policies.cordon


def _isolated(site: Site, timed: Timed) -> None:
    timed.isolated = True
    _measure(site, Step.ISOLATE, timed.kind, site.now - timed.since)


def duration(read_at: float, now: float) -> float | None:
    """Seconds since an agent read a fault; None if its clock is wrong."""
    if not isfinite(read_at) or not -SKEW_S <= now - read_at <= LONGEST_S:
        return None
    return max(0.0, now - read_at)


def blame_of(incident: Open) -> str:
    """One of `Blame`, so that the label is bounded."""
    found = incident.published.blame if incident.published is not None else ""
    return found if found in set(Blame) else Blame.UNKNOWN


def _measure(site: Site, step: Step, kind: str, seconds: float | None) -> None:
    site.work.out.append(Measured(step, family_of(kind), seconds))


def _closed(node: NodeMemory, parts: Iterable[str]) -> bool:
    return not node.verdict.node or node.unschedulable or any(_is_out(node.verdict, part) for part in parts)


def _is_out(scopes: Scopes, part: str) -> bool:
    match part:
        case work.NODE:
            return not scopes.node
        case work.MULTI_GPU:
            return not scopes.multi_gpu
    return part in scopes.cards or part in scopes.rails_off


def lost_cards(memory: Memory) -> dict[tuple[str, str], float]:
    """Cards out of use now, by family and blame of the incident that took them first; a MIG instance is its part of a card."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for node in memory.nodes.values():
        if not node.timed:
            continue
        weights = _weights(node)
        closed = (
            set(weights) if not node.verdict.node else {card for out in node.verdict.cards for card in _physical(node, out)}
        )
        for timed in sorted(node.timed.values(), key=lambda one: one.since):
            parts = {card for part in timed.parts if is_card(part) for card in _physical(node, part)}
            taken = closed if NODE in timed.parts else closed & parts
            closed = closed - taken
            if lost := sum(weights.get(card, 0.0) for card in taken):
                found[family_of(timed.kind), timed.blame] += lost
    return dict(found)


def _physical(node: NodeMemory, entity: str) -> list[str]:
    """What an entity consists of: a card of its MIG instances, if it has some."""
    instances = [instance for instance, card in node.parents.items() if card == entity]
    return instances or [entity]


def _weights(node: NodeMemory) -> dict[str, float]:
    """Each card, or each MIG instance of one -> which part of a card it is."""
    instances: dict[str, int] = defaultdict(int)
    for card in node.parents.values():
        instances[card] += 1
    return {
        entity: 1 / instances[node.parents[entity]] if entity in node.parents else 1.0
        for entity in dict.fromkeys((*node.cards, *node.parents))
        if entity not in instances
    }
