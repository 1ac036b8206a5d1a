"""The verdict and the cordon of a node, derived from its open incidents, within the breaker."""

from hbox_common.model import IncidentState
from hbox_common.model.remedy import Verb

from .courses import MAINTENANCE, NEW_NODE, PLUGIN, Course, Isolation, course_of, decides
from .exemptions import covers
from .finding import Finding
from .happenings import Cordon, Found, Scopes, Uncordon, VerdictChanged
from .interventions import close
from .memory import Open
from .work import CARD, MULTI_GPU, NODE, Site, hold, is_card, key_of


def demands(site: Site, incident: Open) -> list[tuple[Course, Finding, bool]]:
    """What the incident's confirmed reasons ask for, without what is exempted; and whether a hand muted it."""
    out = []
    for code, reason in incident.reasons.items():
        if not reason.confirmed:
            continue
        exemptions = (e for e in site.work.memory.exemptions if site.now < e.until and incident.kind != MAINTENANCE)
        exempt = next((e for e in exemptions if covers(e, site.name, site.node.labels, reason.finding, incident.kind)), None)
        if exempt is not None:
            site.due.append(exempt.until)
            hold(incident, "exemption")
            continue
        muted = site.now < site.node.mutes.get(f"{key_of(incident.entity, incident.kind)}|{code}", 0.0)
        if muted:
            hold(incident, "hand")
        out.append((course_of(reason.finding), reason.finding, muted))
    return out


def restrict(site: Site) -> bool:
    """Derive the verdict and the cordon from the open incidents; True: the breaker admits what restricts the whole node."""
    cards: set[str] = set()
    rails: set[str] = set()
    ids: list[str] = []
    holding: list[Open] = []
    ordered: list[Open] = []  #: by operators, or before the first work: within no limit, and counted in none
    closes, multi_gpu = False, True
    site.taken = {}
    for incident in site.node.open.values():
        before = len(cards), len(rails), closes, multi_gpu
        takes: set[str] = set()
        for course, _, muted in demands(site, incident):
            match course.isolation:
                case Isolation.CARD:
                    takes |= {incident.entity, *incident.cards} if is_card(incident.entity) else set(incident.cards)
                case Isolation.RAIL:
                    takes.add(incident.entity)
                    rails.add(incident.entity)
                case Isolation.MULTI_GPU if not incident.part_of:
                    takes.add(MULTI_GPU)
                    multi_gpu = False
                case Isolation.NODE if incident.kind in (MAINTENANCE, NEW_NODE):
                    takes.add(NODE)
                    ordered.append(incident)
                    ids.append(incident.id)
                case Isolation.NODE if not incident.part_of:
                    takes |= set() if incident.kind == PLUGIN else set(incident.cards)  # these are out of use by themselves
                    takes |= set() if muted else {NODE}
                    closes = closes or not muted
                case _:
                    pass
        if incident.kind == "fabric-manager" and fm_hopeless(site, incident):
            takes.add(MULTI_GPU)
            multi_gpu = False
        if incident.kind == CARD and incident.state in (IncidentState.REPAIRING, IncidentState.VALIDATING):
            whole = site.node.parents.get(incident.entity, incident.entity)
            cards.add(whole)
            takes |= {whole} if is_card(whole) else set()
        cards |= {part for part in takes if is_card(part)}
        site.taken[incident.id] = takes
        if before != (len(cards), len(rails), closes, multi_gpu) or is_card(incident.entity):
            ids.append(incident.part_of or incident.id)
            if before[2:] != (closes, multi_gpu):
                holding.append(incident)
    breaker = site.work.memory.breaker
    admitted = True
    site.node.ordered = bool(ordered) or (site.node.ordered and not closes and site.node.unschedulable and site.node.ours)
    if site.node.unschedulable and not site.node.ours and closes:
        for incident in holding:
            hold(incident, "hand")  # closed by hand already: nothing to restrict, nothing to count
        breaker.release(site.name)
        closes = False
    if closes or not multi_gpu:
        admitted = breaker.admits(site.name, site.now)
        if not admitted:
            for incident in holding:
                hold(incident, "breaker")
            closes, multi_gpu = False, True
            room = breaker.next_room(site.now)
            if room is not None:
                site.due.append(room)
    elif site.node.unschedulable and site.node.ours and not site.node.ordered:
        breaker.take(site.name, site.now)  # until the uncordon is observed
    else:
        breaker.release(site.name)
    closes = closes or bool(ordered)
    ports = site.node.counted.ports
    _note_taken(site, closes=closes, multi_gpu=multi_gpu)
    scopes = Scopes(
        tuple(sorted(cards)),
        tuple(sorted(rails)),
        multi_gpu,
        not ports or not rails.issuperset(ports),  # without any adapter only work within the node is possible
        not closes,
        tuple(sorted(set(ids))) if cards or rails or closes or not multi_gpu else (),
        ordered=bool(ordered),
    )
    if scopes != site.node.verdict:
        site.node.cards_out = {card: site.node.cards_out.get(card, site.now) for card in scopes.cards}
        site.node.verdict = scopes
        site.work.out.append(VerdictChanged(site.name, site.node.boot_id, scopes))
    _cordon(site, closes, holding + ordered)
    return admitted


def _note_taken(site: Site, *, closes: bool, multi_gpu: bool) -> None:
    """Without what the breaker or a hand holds back, and without incidents that take nothing."""
    held = {NODE} if not closes else set()
    held |= {MULTI_GPU} if multi_gpu else set()
    site.taken = {id_: parts for id_, taken in site.taken.items() if (parts := taken - held)}


def _cordon(site: Site, closes: bool, holding: list[Open]) -> None:
    node, policies = site.node, site.work.policies
    if node.unschedulable and not node.ours:
        node.asked = ""
        return
    wanted = "cordon" if closes and policies.cordon else "uncordon"
    if wanted == "uncordon" and any(_may_close(incident) for incident in node.open.values()):
        return  # a debounce that may cordon it again has not ended
    if node.asked == wanted and site.now - node.asked_at < policies.repeat_s:
        site.due.append(node.asked_at + policies.repeat_s)
        return
    if node.unschedulable is (wanted == "cordon") and node.asked in ("", wanted):
        node.asked = ""
        return
    # The node is not as wanted, or a decision for the opposite may still take effect.
    node.asked, node.asked_at = wanted, site.now
    site.due.append(site.now + policies.repeat_s)
    if wanted == "cordon":
        site.work.out.append(Cordon(site.name, "; ".join(text_of(incident) for incident in holding)))
    else:
        site.work.out.append(Uncordon(site.name, "recovered"))


def _may_close(incident: Open) -> bool:
    waiting = (
        reason for reason in incident.reasons.values() if not reason.confirmed and reason.ended is None and not reason.cured
    )
    return not incident.part_of and any(course_of(reason.finding).isolation is Isolation.NODE for reason in waiting)


def mute(site: Site) -> None:
    """An operator uncordoned the node: the reasons of our cordon count for no cordon for a while, new ones do. A maintenance ends, without a check."""
    until = site.now + site.work.policies.mute_s
    for key, incident in list(site.node.open.items()):
        if incident.kind == MAINTENANCE:
            close(site, "", incident.id)
            continue
        muted = [code for code, reason in incident.reasons.items() if course_of(reason.finding).isolation is Isolation.NODE]
        for code in muted:
            site.node.mutes[f"{key}|{code}"] = until
        if muted and not incident.cards and len(muted) == len(incident.reasons):
            for code, reason in incident.reasons.items():
                if reason.state:
                    site.node.held[f"{key}|{code}"] = Found(site.name, "", (reason.finding,), reason.source, group=reason.group)
            site.work.close(site.name, incident, "uncordoned by hand")
            del site.node.open[key]


def fm_hopeless(site: Site, incident: Open) -> bool:
    """The fabric manager failed again after a restart, or may not be restarted by us."""
    failing = [r for r in incident.reasons.values() if r.confirmed]
    if not failing:
        return False
    if Verb.RESTART_FM not in site.work.policies.verbs:
        return True
    if incident.failures > 0:
        return True
    last = max((at for at, verb, _ in site.node.repairs if verb == Verb.RESTART_FM), default=None)
    if last is None:
        return False
    return any(r.since > last or (r.ended is None and site.now - last >= site.work.policies.fm_answer_s) for r in failing)


def text_of(incident: Open) -> str:
    worst = max((reason.finding for reason in incident.reasons.values()), key=decides)
    return f"{worst.kind} {worst.code} on {', '.join(incident.cards) or incident.entity}: {worst.why}"
