"""What more than one node shows: groups of nodes with one cause, and jobs that fault on many cards."""

from hbox_common.model import IncidentState

from .blame import UserFault
from .finding import Action, Blame, Finding, Scope, Severity
from .happenings import Found, PodOnCards, TellOwner
from .intake import take
from .memory import MOST_EVIDENCE, NodeMemory, Open, Reason
from .work import CONTROL_PLANE, Site, Work, code_of

#: A fault of a job that is not known after so long belongs to none.
JOB_UNKNOWN_S = 600.0


def review_cluster(work: Work) -> list[float]:
    """Open, update and dissolve incidents of groups, and forget what is too old to count."""
    due: list[float] = []
    for key, group in list(work.memory.groups.items()):
        if group.incident is None:
            if not group.members:
                del work.memory.groups[key]
            continue
        if len(group.members) > work.group_limit(key):
            group.below_since = None
        elif group.below_since is None:
            group.below_since = work.now
        clean = 0.0 if key == CONTROL_PLANE else work.policies.clean["port"]
        if group.below_since is not None and work.now - group.below_since >= clean:
            work.close("", group.incident, "fewer nodes are affected than one cause explains")
            group.incident, group.below_since = None, None
            work.dirty |= dict.fromkeys(group.members)
            if not group.members:
                del work.memory.groups[key]
            continue
        if group.below_since is not None:
            due.append(group.below_since + clean)
        control = key == CONTROL_PLANE
        finding = Finding(
            key,
            "agents-silent" if control else "shared",
            "",
            Severity.UNKNOWN if control else Severity.DEGRADED,
            Blame.UNKNOWN if control else Blame.HARDWARE,
            Scope.NODE if control else Scope.SWITCH,
            Action.REPORT if control else Action.TICKET,
            "hbox",
            f"{len(group.members)} nodes show it: one cause, not {len(group.members)} faults",
            evidence=tuple(sorted(group.members)[:MOST_EVIDENCE]),
        )
        group.incident.reasons = {"": Reason(finding, group.incident.opened, work.now, 0.0, confirmed=True)}
        group.incident.action = finding.action
        work.publish("", group.incident, None)
    for job, incident in list(work.memory.jobs.items()):
        last = max(reason.last for reason in incident.reasons.values())
        if work.now - last >= work.policies.expire_s:
            work.close("", work.memory.jobs.pop(job), "no fault for a day")
        else:
            due.append(last + work.policies.expire_s)
            work.publish("", incident, None)
    work.memory.blame.expire(work.now)
    work.memory.ended_jobs = {job: at for job, at in work.memory.ended_jobs.items() if work.now - at < JOB_UNKNOWN_S}
    work.changed.add("")
    return due


def faults(site: Site) -> None:
    """Assign faults to jobs; suspect a card only after the burst, when it is known which jobs fault on many cards."""
    blame = site.work.memory.blame
    kept = []
    for fault in site.node.faults:
        card = fault.finding.entity
        if not fault.job:
            pod = pod_of(site.node, card, fault.pid)
            if pod is None:
                if site.now - fault.at < JOB_UNKNOWN_S:
                    kept.append(fault)
                    site.due.append(fault.at + JOB_UNKNOWN_S)
                continue
            if pod.job in site.work.memory.ended_jobs:
                continue
            fault.job = pod.job
            blame.fault(f"{site.name}/{card}", UserFault(fault.at, pod.job, pod.queue, fault.finding.code))
            incident = job_fault(site.work, site.name, pod.job, fault.finding)
            if blame.notifies(pod.job, fault.finding.code, site.now):
                what = f"{fault.finding.kind} {fault.finding.code} on {card} of {site.name}"
                text = f"{what}: {fault.finding.why}: an error of the program, unless it follows the card"
                site.work.out.append(TellOwner(site.name, pod.pod, pod.job, card, fault.finding.code, text, incident.id))
        if site.now < fault.at + site.work.policies.burst_s:
            kept.append(fault)
            site.due.append(fault.at + site.work.policies.burst_s)
        elif len(queues := blame.queues(f"{site.name}/{card}", site.now)) >= 2:
            why = f"jobs of {len(queues)} queues fault on this card"
            suspect = Finding(
                card,
                "user-faults",
                fault.finding.code,
                Severity.SUSPECT,
                Blame.HARDWARE,
                Scope.NONE,
                Action.RUN_DIAGNOSTICS,
                "nvidia-xid-catalogue",
                why,
            )
            take(site, Found(site.name, site.node.boot_id, (suspect,)), suspect)
    site.node.faults = kept


def job_fault(work: Work, name: str, job: str, finding: Finding) -> Open:
    incident = work.memory.jobs.get(job)
    if incident is None:
        work.memory.count += 1
        incident = work.memory.jobs[job] = Open(
            f"{job}-{int(work.now * 1000):x}-{work.memory.count}", f"job:{job}", "user-fault", work.now
        )
        incident.state, incident.action = IncidentState.CONFIRMED, Action.NOTIFY_OWNER
    reason = incident.reasons.setdefault(code_of(finding), Reason(finding, work.now, work.now, 0.0, confirmed=True))
    reason.last = work.now
    where = f"{name} {finding.entity}"
    if where not in incident.notified and len(incident.notified) < MOST_EVIDENCE:
        incident.notified.append(where)
    work.dirty[""] = None
    return incident


def pod_of(node: NodeMemory, card: str, pid: int | None) -> PodOnCards | None:
    on_card = [pod for pod in node.pods if card in pod.cards]
    if pid is not None:
        by_pid = next((pod for pod in on_card if pid in pod.pids), None)
        if by_pid is not None:
            return by_pid
    return next(iter(on_card), None)
