"""Plans that wait for the ledger's answer, and verdicts that wait to be published."""

from collections import OrderedDict
from collections.abc import Iterable

from hbox_common.events import JobVerdict, Plan
from hbox_common.model import Index, JobId, PlanId


class InFlight:
    """Plans from proposal to the ledger's answer, oldest first, so that overdue ones are at the front."""

    def __init__(self, resend_after_s: float) -> None:
        self._resend_after_s = resend_after_s
        self._open: OrderedDict[PlanId, tuple[float, Plan]] = OrderedDict()
        self._committed: dict[PlanId, tuple[Index, Plan]] = {}
        self.placements = 0  #: in open plans

    def open(self, plan: Plan, now: float) -> None:
        self._open[plan.id] = (now, plan)
        self.placements += len(plan.placements)

    def get(self, plan: PlanId) -> Plan | None:
        """The plan, if it has no answer yet."""
        found = self._open.get(plan)
        return None if found is None else found[1]

    def close(self, plan: PlanId) -> None:
        """It was refused."""
        _, closed = self._open.pop(plan)
        self.placements -= len(closed.placements)

    def commit(self, plan: PlanId, index: Index) -> None:
        """It was accepted in the transaction `index`: its claims are known in a view as new."""
        committed = self._open[plan][1]
        self.close(plan)
        self._committed[plan] = (index, committed)

    def reached(self, index: Index) -> list[Plan]:
        """Accepted plans whose claims a view at `index` knows; each is named once."""
        if not self._committed:
            return []
        reached = [plan for at, plan in self._committed.values() if at <= index]
        for plan in reached:
            del self._committed[plan.id]
        return reached

    def restart(self) -> list[Plan]:
        """A new epoch began: all plans of the old one, which are not in flight any more."""
        plans = [plan for _, plan in self._open.values()] + [plan for _, plan in self._committed.values()]
        self._open.clear()
        self._committed.clear()
        self.placements = 0
        return plans

    def outstanding(self) -> list[Plan]:
        return [plan for _, plan in self._open.values()]

    def due(self, now: float) -> list[Plan]:
        """Plans to be sent again, with the same id: the ledger answers each only once."""
        again: list[Plan] = []
        while self._open:
            first = next(iter(self._open))
            sent, plan = self._open[first]
            if sent + self._resend_after_s > now:
                break
            self._open[first] = (now, plan)
            self._open.move_to_end(first)
            again.append(plan)
        return again

    def next_at(self) -> list[float]:
        """When `due` has something next."""
        return [self._open[next(iter(self._open))][0] + self._resend_after_s] if self._open else []


class Verdicts:
    """Why jobs wait: published when it changes, for one job at most every `every_s` seconds."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._sent: dict[JobId, tuple[float, JobVerdict | None]] = {}  #: None: it counts as unpublished
        self._fresh: dict[JobId, JobVerdict] = {}
        self._late: OrderedDict[JobId, tuple[float, JobVerdict]] = OrderedDict()

    def put(self, verdict: JobVerdict, now: float) -> None:
        sent = self._sent.get(verdict.job)
        if sent is None or sent[0] + self._every_s <= now:
            self._late.pop(verdict.job, None)
            if sent is None or sent[1] != verdict:
                self._fresh[verdict.job] = verdict
            return
        if sent[1] == verdict:
            self._late.pop(verdict.job, None)
        else:
            self._late[verdict.job] = (sent[0] + self._every_s, verdict)

    def put_all(self, verdicts: Iterable[JobVerdict], now: float) -> None:
        for verdict in verdicts:
            self.put(verdict, now)

    def code_of(self, job: JobId) -> str | None:
        """The code of its last published verdict; None: there is none."""
        sent = self._sent.get(job)
        return None if sent is None or sent[1] is None else sent[1].code

    def unpublished(self, verdict: JobVerdict, now: float) -> None:
        """It could not be sent: due again, unless there is a newer one."""
        self._sent.pop(verdict.job, None)
        if verdict.job not in self._fresh:
            self._late.setdefault(verdict.job, (now + self._every_s, verdict))

    def republish(self, job: JobId) -> None:
        """The job was published again: its verdict is due again, since another process may have published it that does not have the verdict."""
        sent = self._sent.get(job)
        if sent is not None and sent[1] is not None:
            self._sent[job] = (sent[0], None)
            self._late.setdefault(job, (sent[0] + self._every_s, sent[1]))

    def drop(self, job: JobId) -> None:
        """The job is gone, or runs."""
        self._sent.pop(job, None)
        self._fresh.pop(job, None)
        self._late.pop(job, None)

    def due(self, now: float) -> list[JobVerdict]:
        """What is to be sent now."""
        for job in [job for job, (at, _) in self._late.items() if at <= now]:
            self._fresh[job] = self._late.pop(job)[1]
        out = list(self._fresh.values())
        for verdict in out:
            self._sent[verdict.job] = (now, verdict)
        self._fresh.clear()
        return out

    def next_at(self) -> list[float]:
        """When `due` has something next."""
        return [min(at for at, _ in self._late.values())] if self._late else []
