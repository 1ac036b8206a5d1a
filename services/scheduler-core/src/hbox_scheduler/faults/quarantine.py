"""Jobs and nodes at which the scheduler failed: it continues without them, and retries them later.

Theory of operation. After a fault the scheduler restarts from its inputs, without the suspect. That costs as much as a restart of the process: a second or two
without placements. If the suspect was the right one, the fault is over. If not, the same place fails again, and the faults known by then decide:

- the third job that fails at one place over one node: the node is put in quarantine, and the jobs are released;
- so are more nodes at that place, up to `MOST_NODES`: if there are more, the jobs are to blame, and the nodes are released;
- the fifth job of a namespace within an hour: the whole namespace is put in quarantine, so that one tenant cannot cause all others a restart for each job.

Each is released after a minute, and after twice as long each time in a row. Quarantine does not outlive the process: what fails, fails once more in the next
one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from hbox_common.events import JobVerdict
from hbox_common.model import JobId, NodeName
from hbox_common.model.explanation import Outcome

from ..core.explain.outcomes import judged
from .guard import SchedulingFault
from .suspects import Kind, Suspect

#: The first time, and at most.
FIRST_S, MOST_S = 60.0, 3600.0
#: Code of a job that is left out.
JOB_QUARANTINED = "JobQuarantined"
#: For how long a fault is remembered as one of several.
RECENT_S = 3600.0
#: After so many failed jobs, their node is suspected, or their namespace.
OVER_A_NODE, OF_A_NAMESPACE = 3, 5
#: Nodes at one place, after which they are not to blame.
MOST_NODES = 4
#: Faults that cost no pause beyond the restart itself; each further one within `RECENT_S` twice the pause of the one before.
FREE, PAUSE_S, MOST_PAUSE_S = 8, 1.0, 60.0


@dataclass(slots=True)
class Case:
    """Of one that was put in quarantine. Times are monotonic seconds."""

    suspect: Suspect
    place: str
    nodes: frozenset[str]  #: that were at hand, too
    message: str
    at: float
    until: float
    times: int = 1


class Quarantine:
    """The jobs, nodes and namespaces that this process leaves out, for how long, and why."""

    def __init__(self) -> None:
        self._cases: dict[Suspect, Case] = {}  #: those that came back among them, while they are remembered
        self._in_force: dict[tuple[Kind, str], Case] = {}
        self._faults: list[float] = []
        self._held: dict[JobId, str] = {}  #: jobs held back whose reasons are not published yet

    # Faults.

    def take(self, fault: SchedulingFault, now: float, wall: float) -> Case | None:
        """Put one of the suspects in quarantine; None: all of them are already, and it did not help. `wall`: seconds since the epoch."""
        self._forget(now)
        self._faults.append(now)
        nodes = frozenset(one.name for one in fault.suspects if one.kind is Kind.NODE)
        suspect = self._choose(fault)
        if suspect is None:
            return None
        before = self._cases.get(suspect)
        times = 1 if before is None else before.times + 1
        lasts_s = min(MOST_S, FIRST_S * 2 ** (times - 1))
        until = datetime.fromtimestamp(wall + lasts_s, UTC).strftime("%H:%M:%S")
        whole = " with its namespace" if suspect.kind is Kind.NAMESPACE else ""
        message = f"in quarantine{whole}: the scheduler fails at it ({fault.kind}); tried again at {until} UTC"
        case = Case(suspect, fault.place, nodes, message, now, now + lasts_s, times)
        self._cases[suspect] = self._in_force[suspect.kind, suspect.name] = case
        return case

    def pause_s(self) -> float:
        """Seconds to wait before the scheduler restarts: longer if it restarts repeatedly."""
        return 0.0 if len(self._faults) <= FREE else min(MOST_PAUSE_S, PAUSE_S * 2.0 ** (len(self._faults) - FREE - 1))

    def _choose(self, fault: SchedulingFault) -> Suspect | None:
        fresh = [one for one in fault.suspects if (one.kind, one.name) not in self._in_force and not self._covered(one)]
        here = [case for case in self._cases.values() if case.place == fault.place]
        blamed = [case for case in here if case.suspect.kind is Kind.NODE]
        if (job := next((one for one in fresh if one.kind is Kind.JOB), None)) is None:
            return next(iter(fresh), None)
        if len(blamed) >= MOST_NODES:
            self._acquit(blamed)
        elif node := _node_behind(fresh, here, among_more=bool(blamed)):
            self._acquit(case for case in here if case.suspect.kind is not Kind.NODE)
            return node
        others = [one for one in self._cases if one.namespace == job.namespace and one != job]
        if job.namespace and len(others) + 1 >= OF_A_NAMESPACE:
            return Suspect(Kind.NAMESPACE, job.namespace, job.namespace)
        return job

    def _covered(self, one: Suspect) -> bool:
        return one.kind is Kind.JOB and (Kind.NAMESPACE, one.namespace) in self._in_force

    def _acquit(self, cases: Iterable[Case]) -> None:
        for case in list(cases):
            self._in_force.pop((case.suspect.kind, case.suspect.name), None)
            del self._cases[case.suspect]

    def _forget(self, now: float) -> None:
        self._faults = [at for at in self._faults if at > now - RECENT_S]
        for suspect, case in list(self._cases.items()):
            if case.until + RECENT_S <= now:
                del self._cases[suspect]

    # What may be scheduled.

    def __bool__(self) -> bool:
        return bool(self._in_force)

    def holds_job(self, job: JobId, namespace: str) -> bool:
        """True if the job is in quarantine; records the reason, to be published."""
        case = self._in_force.get((Kind.JOB, job)) or self._in_force.get((Kind.NAMESPACE, namespace))
        if case is None:
            return False
        self._held[job] = case.message
        return True

    def holds_node(self, node: NodeName) -> bool:
        """Whether the node is in quarantine."""
        return (Kind.NODE, node) in self._in_force

    def verdicts(self) -> list[JobVerdict]:
        """Why jobs wait that were held back since the last time."""
        held, self._held = self._held, {}
        head = judged(JOB_QUARANTINED, Outcome.ESCALATE)
        return [
            JobVerdict(job=job, message=message, code=head.code, outcome=head.outcome, owner=head.owner)
            for job, message in held.items()
        ]

    def release(self, now: float) -> list[Suspect]:
        """Those whose time is over, each once."""
        over = [key for key, case in self._in_force.items() if case.until <= now]
        return [self._in_force.pop(key).suspect for key in over]

    def next_at(self) -> float | None:
        """When `release` has something next."""
        return min((case.until for case in self._in_force.values()), default=None)

    def counts(self) -> dict[Kind, int]:
        """How many there are."""
        kinds = [kind for kind, _ in self._in_force]
        return {kind: kinds.count(kind) for kind in Kind}

    def summary(self) -> str:
        """What is in quarantine, for pages that need no credentials: nodes by name, jobs and namespaces by number; "" = nothing."""
        nodes = sorted(case.suspect.label for case in self._in_force.values() if case.suspect.kind is Kind.NODE)
        found = [f"{kind}s: {count}" for kind, count in self.counts().items() if count and kind is not Kind.NODE]
        found += [f"nodes: {', '.join(nodes)}"] if nodes else []
        return "; ".join([*found, "the log has the errors"]) if found else ""


def _node_behind(fresh: Iterable[Suspect], here: Iterable[Case], *, among_more: bool) -> Suspect | None:
    """The node over which several jobs failed at this place."""
    for node in fresh:
        over_it = [case for case in here if node.name in case.nodes]
        if node.kind is Kind.NODE and (among_more or len(over_it) + 1 >= OVER_A_NODE):
            return node
    return None
