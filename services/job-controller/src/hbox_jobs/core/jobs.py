"""All jobs, and which changes of them the bus has yet to receive.

Theory of operation. Every change of a pod, PodGroup or PriorityClass marks its job; `take` computes marked jobs and returns what differs from what was last
published. Changes are not queued: a job that changes ten times before the bus takes it is published once, and an outage of the bus costs no memory. A mark is
urgent if a placeable pod is new, changed or gone, and its gang is complete. It is lazy, published within LAZY_S, for a growing gang, pods that got their node
(the ledger has already reported it to the scheduler), and new resource versions of a gang's pods (they fence bindings, and the binder reads the pod again). So
a gang of a thousand, created or bound pod by pod, is published a few times, not a thousand times; a larger one less often (LAZY_S for each LARGE), since each
message contains all its pods. Facts about bound pods are published at once, and then every FACTS_S: the ledger waits for them, but commits once per message.
Facts that only confirm that an HBox pod is bound to its node wait for others up to CONFIRMED_S.

If a gang's pods are newer than the watch of PodGroups, its PodGroup is read before the gang is announced (ADR 88): the watch may lag behind an update that
raised the minimum before these pods were created. Most gangs need no read, since the watch has reached a newer resourceVersion in the meantime.

Revisions rise over all jobs and over restarts: previous + 1, at least the wall clock in microseconds.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from hbox_common.events import JobPhase, JobPhaseChanged, JobVerdict
from hbox_common.model import (
    VENDORS,
    GroupState,
    Job,
    JobId,
    LeavingPod,
    PodFact,
    PodPhase,
    PodUid,
    Queue,
    QueueName,
    SchedulerId,
)
from hbox_common.model.annotations import INDEXED_JOBS
from hbox_common.model.bounds import INT32_MAX
from hbox_common.model.ranks import rank_key
from hbox_common.model.shards import ONE_SHARD, shard_of
from hbox_common.model.traceids import traceparent_of
from hbox_common.reasons import CODES
from hbox_common.workloads import Kinds, Owner

from .admission import Admission
from .batch import FACT_PHASE, Batch, fact_phase
from .budgets import Budgets, BudgetView
from .claimturns import ClaimTurns
from .extras import Extras, room_of
from .intake import Intake, Turns, held_text, too_large_text
from .job import (
    HIGHEST_USER_PRIORITY,
    NOT_TRIED_YET,
    SCHEDULER_ABSENT,
    Record,
    Tally,
    class_of,
    counted,
    gang_part,
    gated_of,
    job_of,
    on_sick_of,
    outcome_of,
    placed_of,
    preemptable_of,
    rejection_of,
    seen_or_created,
    wait_code,
    waits_since,
)
from .lifecycle import Entered
from .membership import Membership
from .neighbours import Neighbours
from .owners import GroupKind, Owners, by_age, derived_group, group_kind
from .phasequeue import PhaseQueue
from .phases import phase_of
from .routing import Routing
from .stuck import stuck_text
from .successions import Successions
from .surges import Surges
from .views import GroupView, PodView, content
from .volumes import Volumes
from .waits import Waits

LAZY_S = 0.25
PUBLISH_AFTER_S = 1.0
FACTS_S = 0.1
#: Seconds after the previous facts, for facts that only confirm the ledger's decisions: no component waits for them.
CONFIRMED_S = 0.25
#: When a lazy one is due, those due so soon after it come along: each message costs every service behind us.
COMPANY_S = 0.8 * LAZY_S
#: For each LARGE pods that a job has, LAZY_S passes between two lazy messages about it (1 s for 1,024 pods), and MAX_REST times LAZY_S (2 s) at most.
LARGE = 256
MAX_REST = 8
MAX_ITEMS = 512
#: Seconds for which a job with an owner that is not read is not published.
UNREAD_QUIET_S = 1.0
_NO_QUEUE = QueueName("")
_JOB: GroupKind = ("batch", "Job")
#: Values of the label INDEXED_JOBS of namespaces; others count as absent.
_INDEXED = {"gang": True, "single": False}
#: Maximum age in seconds of an incomplete PodGroup whose users get no message about missing pods while pods are being created: each next pod would make the
#: count wrong.
GROWING_S = 60.0
#: A namespace with more jobs than this in one batch is crowded: its next changes may wait for each other, those of other namespaces may not.
CROWD = 4
#: If the other namespaces together have more jobs than this, none counts as crowded: one message for each would cost every service more than it gains.
MOST_OTHERS = 16
#: A PodRef takes about 110 bytes of a message that may have 8 MiB.
MAX_PODS = 20_000

#: For so long it is remembered that a pod ended, and of so many at most.
ENDED_S, MAX_ENDED = 60.0, 10_000


class Jobs:
    """One writer. `now` is monotonic seconds everywhere; `wall` seconds since the epoch."""

    def __init__(
        self,
        *,
        lazy_s: float = LAZY_S,
        publish_after_s: float = PUBLISH_AFTER_S,
        trace: Callable[[JobId], str] = traceparent_of,
        most_pending: int = 0,
        most_pending_mib: int = 0,
        routing: Routing | None = None,
        system_namespaces: Collection[str] = (),
        proves_groups: bool = False,
        kinds: Kinds | None = None,
        indexed_gangs: bool = False,
    ) -> None:
        """`publish_after_s`: seconds that a pending reason has to last before it is written to Kubernetes. `most_pending`, `most_pending_mib`: maximum number
        of pending jobs of a namespace that are announced, and of their size (`Record.size`) in MiB; 0 = no limit. `routing`: which shard's schedulers place
        which jobs; None = one shard. `system_namespaces`: namespaces where Kubernetes' system PriorityClasses have their own values. `proves_groups`: announce
        a gang only with a PodGroup, or an owner, that is as new as its pods (`next_unread`, `next_stale_owner`). `kinds`: of owners that make gangs; None = the
        built-in ones. `indexed_gangs`: Indexed Jobs are gangs in namespaces without the label INDEXED_JOBS."""
        self.routing = routing or Routing()
        self._several = self.routing.shards.several
        self._batch_shards: dict[JobId, str] = {}  #: of jobs in the current batch
        self._left: list[tuple[str, JobId, int]] = []  #: likewise
        self._groups_left: list[tuple[str, GroupState]] = []  #: likewise
        self._lazy_s, self._publish_after_s, self._trace = lazy_s, publish_after_s, trace
        self._pods: dict[PodUid, PodView] = {}
        self._indexed_gangs = indexed_gangs
        self._indexed_by_label: dict[str, bool] = {}  #: by namespace with the label
        indexed = lambda namespace: self._indexed_by_label.get(namespace, self._indexed_gangs)  # noqa: E731
        self.owners = Owners(kinds if kinds is not None else Kinds.builtin(), self._pods.get, indexed_gangs=indexed)
        self.successions = Successions()
        self.surges = Surges(self.successions, self._pods.get)
        self.extras = Extras()
        self._extras_of: dict[str, dict[PodUid, None]] = {}  #: by key of a gang
        self._owners_at: dict[GroupKind, int] = {}  #: by kind, the resourceVersion up to which all changes are known
        self._pods_at = 0  #: the highest resourceVersion of a pod
        self._owner_read_up_to: dict[str, int] = {}  #: by uid of an owner: `_pods_at` at the start of its last read
        self._stale_owners: dict[str, None] = {}  #: uids of owners that have to be read before their gangs are announced
        self._rereading: dict[str, int] = {}  #: of those that are read now: `_pods_at` at the start
        self._owner_problems: dict[str, str] = {}  #: by uid: why the read failed
        self._gangs_of: dict[str, set[str]] = {}  #: by uid of an owner: keys of the jobs whose group follows from it
        self._namespace_queues: dict[str, QueueName] = {}
        self._records: dict[str, Record] = {}
        self._by_id: dict[JobId, str] = {}  #: of settled jobs
        self._classes: dict[str, int] = {}
        self._system_namespaces = frozenset(system_namespaces)
        #: the highest value of a PriorityClass that users may define; at least 0, the value of pods without a class
        self._highest_user_class = 0
        self._never: set[str] = set()  #: PriorityClasses whose pods never preempt
        self._classes_changed = False
        self._terminating: set[str] = set()  #: namespaces that are being deleted
        self._turns = ClaimTurns(lambda claim: self.users((claim,)))
        self.volumes = Volumes(self._has_turn)
        self.neighbours = Neighbours()
        self.admission = Admission()
        self.budgets = Budgets()
        self.waits = Waits()
        self._strangers: dict[str, dict[PodUid, None]] = {}  #: pods of other schedulers by the PodGroup that they name
        self._users: dict[str, dict[PodUid, None]] = {}  #: pods of ours by the claims (namespace/name) that they use
        self._urgent: Turns[str] = Turns()
        self._most_pending, self._most_pending_mib = most_pending, most_pending_mib
        self._intake = Intake(most_pending, most_pending_mib << 20)
        self._doubtful: set[str] = set()  #: jobs that an earlier process may have published
        self._uncomputed: set[str] | None = None  #: of the jobs listed at the start; None: they are not listed yet
        self.crowd: frozenset[str] = (
            frozenset()
        )  #: crowded namespaces: those with many jobs in the last batch, if the others had few
        self._lazy: OrderedDict[str, float] = OrderedDict()  #: in order of their due times, since the delay is always the same
        self._facts: dict[PodUid, PodFact] = {}
        self._ended: deque[tuple[float, PodFact]] = deque(maxlen=MAX_ENDED)  #: GONE facts of the last minute, with when
        self._facts_awaited = False  #: some of these do more than confirm
        self._facts_published_at = float("-inf")  #: monotonic time of the last published facts
        self._disowned: dict[JobId, None] = {}
        self._proves_groups = proves_groups
        self._groups_at = 0  #: the resourceVersion up to which all changes of PodGroups are known
        self._unread: dict[str, None] = {}  #: gangs whose PodGroup has to be read before they are announced
        self._reading: dict[
            str, str
        ] = {}  #: gangs whose PodGroup is being read now -> uid of the PodGroup at the start of the read
        self._revision = 0
        self.phases = PhaseQueue[Entered]()
        self.pending = 0  #: jobs with pods to place and no reason why they wait

    @property
    def revision(self) -> int:
        """The highest that was given out."""
        return self._revision

    def resume(self, revision: int) -> None:
        """Continue above the revisions that earlier processes published: the clock may have been set back since."""
        self._revision = max(self._revision, revision)
        if self._most_pending or self._most_pending_mib:
            self._doubtful = set(self._records)
            oldest = sorted(self._urgent, key=self._age)  # the order of admission is the same after each start
            for key in oldest:
                self._urgent.discard(key)
            for key in oldest:
                self._mark(key, 0.0, urgent=True)

    def listed(self) -> None:
        """All objects of the start are known. Jobs without pods to place are computed last, and no message announces them."""
        self._uncomputed = {*self._urgent, *self._lazy}

    @property
    def computed(self) -> bool:
        """Whether `jobs` has all jobs that were listed at the start."""
        return self._uncomputed is not None and not self._uncomputed

    def _age(self, key: str) -> float:
        record = self._records.get(key)
        return min((pod.created_at for pod in record.pods.values()), default=0.0) if record is not None else 0.0

    # --- from Kubernetes

    def pod(self, new: PodView, now: float) -> PodView:
        """A pod was listed, added or modified. Returns its view with the gang that follows from its owners."""
        old = self._pods.get(new.uid)
        self._pods[new.uid] = new
        others: list[PodUid] = []
        if new.submitted is not None and not new.group:
            self._pods_at = max(self._pods_at, _number(new.resource_version))
            if new.ours:
                known = (
                    old is not None and old.member is not None and old.submitted == new.submitted and not old.member.extra_of
                )
                member = old.member if old is not None and known else self.owners.place(new, now)
                member, others = self._numbered(old, new, member)
                self._pods[new.uid] = new = _as_member(new, member)
        new = self._pod(old, new, now)
        if others:
            self.place_again(others, now)
        if self.owners.is_named(new.uid) and (old is None or old.submitted != new.submitted):
            self.place_again(self.owners.pods_of(new.uid), now)
        return new

    def _numbered(self, old: PodView | None, pod: PodView, member: Membership | None) -> tuple[Membership | None, list[PodUid]]:
        """The pod's membership, which is that of an extra beyond the declared number of pods, and the other pods whose membership this changes."""
        room = room_of(member.gang, member.role) if member is not None and member.gang is not None else None
        if member is None or room is None:
            return member, self.extras.gone(pod.uid)
        if not pod.live:
            was = old is not None and old.member is not None and old.member.extra_of == member.key
            return member.extra if was else member, self.extras.gone(pod.uid)
        others = self.extras.put(pod, member.key, member.role, room)
        return member.extra if self.extras.has(pod.uid) else member, others

    def pods_listed(self, now: float) -> None:
        """All pods of the start are known: a pod that is not among them does not exist."""
        self.place_again(self.owners.all_pods_listed(), now)

    def _pod(self, old: PodView | None, new: PodView, now: float) -> PodView:
        if old is not None and old.key != new.key:
            self._leave(old, now)
        record = self._join(new, now) if new.ours else None
        if new.submitted is not None and new.ours:
            self._succeed(new)
        if new.group and not new.ours and (old is None or old.key != new.key):
            self._strangers.setdefault(new.key, {})[new.uid] = None
            self._mark(new.key, now, urgent=False)
        if record is None or record.admitted or new.node or self.neighbours.knows(new.uid):
            self._add_neighbour(new, old, record)
        if new.volumes and new.ours:
            self._use_volumes(new, first_seen=old is None)
            if new.status.terminal and old is not None and not old.status.terminal:
                self._pass_turn(new, now)
        if new.node and (old is None or old.evidence != new.evidence or old.key != new.key):
            fact = self._facts[new.uid] = self._fact(new, fact_phase(new, old))
            confirms = new.ours and fact.claim and fact.phase.holds and (old is None or old.shape.key == new.shape.key)
            self._facts_awaited = self._facts_awaited or not confirms
        if record is not None:
            if new.placeable and (old is None or not old.placeable or old.key != new.key):
                record.arrived = max(record.arrived + 1, _number(new.resource_version))
                self._pods_at = max(self._pods_at, record.arrived)
            if record.owned and record.group is None:
                self._derive(record, now)
            self._mark_for(record, old, new, now)
        return new

    def _succession(self, record: Record) -> str:
        pod = next(iter(record.pods.values()), None)
        return self.owners.succession_of(pod) if pod is not None and pod.submitted is not None and not pod.group else ""

    def _succeed(self, pod: PodView) -> None:
        self.successions.pod(pod, "" if pod.group else self.owners.succession_of(pod))

    def _add_neighbour(self, new: PodView, old: PodView | None, record: Record | None) -> None:
        """Record what other pods' placement depends on, for a pod that has, or may get, a place. Other pods are not published: computing, sending and storing
        the
        affinity of a held pod would be useless.
        """
        if old is not None and not self.neighbours.knows(new.uid):
            old = None
        self.neighbours.put(new, old)
        if new.ours and (old is None or old.labels != new.labels):
            self.neighbours.guard(new, self.budgets.of(new.namespace, new.labels))
        if record is not None and (old is None or (old.key, old.role, old.labels) != (new.key, new.role, new.labels)):
            self.neighbours.play(new, gang_part(record.group, new))
        group = record.group.annotations if record is not None and record.group is not None else {}
        if group or new.annotations or (old is not None and (old.annotations or old.key != new.key)):
            self.neighbours.note(new, group, old)

    def pod_gone(self, uid: PodUid, now: float) -> PodView | None:
        """A pod's uid is absent from the API. Returns its last version, None where it was not known.

        Its fact is GONE, also where no node was seen: it may have been bound a moment before.
        """
        old = self._pods.pop(uid, None)
        if old is None:
            return None
        self.owners.pod_gone(old)
        self.successions.gone(uid)
        promoted = self.extras.gone(uid)
        self.neighbours.gone(old)
        if old.volumes:
            self._release_volumes(old)
            self._pass_turn(old, now)
        if old.ours or old.node:
            fact = self._facts[uid] = self._fact(old, PodPhase.GONE)
            self._facts_awaited = True
            self._ended.append((now, fact))
        self._leave(old, now)
        self.place_again(promoted, now)
        return old

    def group(self, new: GroupView, now: float) -> None:
        """A PodGroup was listed, added or modified."""
        record = self._record(new.key, new.namespace, new.name, gang=True)
        if new.version < record.read_version:
            return  # older than the last read
        record.read_version = 0
        old = self._put_group(record, new)
        if old is None or replace(old, status=new.status) != new:
            self._mark(record.key, now, urgent=True)
        elif old.status != new.status:
            self._mark(record.key, now, urgent=self.admission.opened(old, new, record.shard))

    def _put_group(self, record: Record, new: GroupView) -> GroupView | None:
        """Returns the version before."""
        old, record.group = record.group, new
        if old is None or old.status == new.status:
            record.unpublishable = ""
        if new.annotations or (old is not None and old.annotations != new.annotations):
            for pod in self._neighbours_among(record.pods.values()):
                self.neighbours.note(pod, new.annotations, None)
        if new.particular or (old is not None and old.particular):
            for pod in self._neighbours_among(record.pods.values()):
                self.neighbours.play(pod, gang_part(new, pod))
        return old

    def group_gone(self, key: str, uid: str, now: float) -> None:
        """The PodGroup of that uid was deleted."""
        record = self._records.get(key)
        if record is not None and (old := record.group) is not None and old.uid == uid:
            record.group = None
            for pod in self._neighbours_among(record.pods.values()) if old.annotations or old.particular else ():
                self.neighbours.note(pod, {}, None)
                self.neighbours.play(pod, None)
            self._mark(key, now, urgent=True)

    def groups_delivered(self, resource_version: str) -> None:
        """The watch has delivered all changes of PodGroups up to this resourceVersion."""
        self._groups_at = _number(resource_version)

    def groups_relisted(self) -> None:
        """The informer relists the PodGroups. From now on the list overrides earlier reads: a restore of the API server's store may decrease
        resourceVersions."""
        for record in self._records.values():
            record.read_version = 0

    def next_unread(self) -> tuple[str, int] | None:
        """A gang (namespace/name) whose PodGroup has to be read before it is announced, with the `up_to` for `group_read`; None if there is none. The caller
        reads the PodGroup and then calls `group_read` or `read_failed`."""
        while self._unread:
            key = next(iter(self._unread))
            del self._unread[key]
            record = self._records.get(key)
            if record is not None and record.group is not None:
                self._reading[key] = record.group.uid
                return key, record.arrived
        return None

    def group_read(self, key: str, up_to: int, new: GroupView | None, now: float) -> None:
        """Take the result of a consistent read of a gang's PodGroup. `up_to`: from `next_unread`; `new`: None if the PodGroup does not exist.

        The result is ignored if the watch has delivered a newer PodGroup during the read."""
        uid = self._reading.pop(key, "")
        record = self._records.get(key)
        if record is None:
            return
        if new is None:
            self.group_gone(key, uid, now)
        elif record.group is None or new.version >= record.group.version:
            self.group(new, now)
            record.read_version = max(record.read_version, new.version)
        record.read_up_to, record.read_problem = max(record.read_up_to, up_to), ""
        self._mark(key, now, urgent=True)

    def read_failing(self, key: str, problem: str, now: float) -> None:
        """The read of a gang's PodGroup failed for this reason, and is repeated later (`read_failed`). Until a read succeeds, the gang gets no places, and the
        first reason stays: errors that alternate would otherwise announce the job again and again."""
        record = self._records.get(key)
        if record is not None and key in self._reading and not record.read_problem:
            record.read_problem = problem
            self._mark(key, now, urgent=True)

    def read_failed(self, key: str, now: float) -> None:
        """The time to wait after a failed read of a gang's PodGroup is over; `next_unread` returns it again if the read is still needed."""
        self._reading.pop(key, None)
        self._mark(key, now, urgent=True)

    def _needs_group_read(self, record: Record, tally: Tally) -> bool:
        """Whether the gang could start with a PodGroup older than its pods: an update may have raised its minimum before they were created."""
        if not self._proves_groups or record.group is None or tally.live <= tally.bound:
            return False
        if tally.live + tally.succeeded < record.min_member:
            return False
        if record.owned:
            return self._owner_is_stale(record)
        return record.arrived > max(record.read_up_to, self._groups_at)

    # --- gangs by owner

    def owner(self, owner: Owner, now: float) -> None:
        """An owner was listed, added, modified or read."""
        self.place_again(self.owners.put(owner), now)

    def owner_gone(self, uid: str) -> None:
        """The owner was deleted. Its pods end with it, or lose their owner reference; until then they stay its gang."""
        self.owners.gone(uid)
        self.successions.declare(uid, None)
        self.surges.declare(uid, None)
        if uid not in self._gangs_of:
            self._owner_read_up_to.pop(uid, None)

    def owners_delivered(self, kind: GroupKind, resource_version: str) -> None:
        """The watch of the kind has delivered all changes up to this resourceVersion."""
        self._owners_at[kind] = _number(resource_version)

    def place_again(self, pods: Iterable[PodUid], now: float) -> None:
        """An owner of these pods changed, can be read, or cannot be read any more."""
        left = dict.fromkeys(pods)
        while left:
            uid = next(iter(left))
            del left[uid]
            old = self._pods.get(uid)
            if old is None or not old.ours:
                continue
            member, others = self._numbered(old, old, self.owners.place(old, now))
            left |= dict.fromkeys(others)
            new = _as_member(old, member)
            self._succeed(new)
            if member == old.member:
                self._pods[uid] = new
                if (record := self._records.get(new.key)) is not None:
                    record.put(new)
            else:
                self._pods[uid] = new
                new = self._pod(old, new, now)
            self._mark(new.key, now, urgent=True)

    def next_stale_owner(self) -> Owner | None:
        """An owner that has to be read before its gangs are announced, since their pods are newer than its watch; None if there is none. The caller reads it
        and then calls `owner_read` or `owner_read_failed`."""
        while self._stale_owners:
            uid = next(iter(self._stale_owners))
            del self._stale_owners[uid]
            if uid in self._rereading or uid not in self._gangs_of:
                continue
            owner = self.owners.get(uid)
            if owner is None:  # its gangs start as it was last known
                self._owner_read_up_to[uid] = self._pods_at
                self._mark_gangs_of(uid, 0.0)
                continue
            self._rereading[uid] = self._pods_at
            return owner
        return None

    def owner_read_begins(self, uid: str) -> None:
        """The read that `next_stale_owner` asked for begins now: it covers the pods that arrived in the meantime."""
        if uid in self._rereading:
            self._rereading[uid] = self._pods_at

    def owner_read(self, uid: str, new: Owner | None, now: float) -> None:
        """Take the result of a consistent read that began with `next_stale_owner`; None: there is no object of this uid any more."""
        up_to = self._rereading.pop(uid, 0)
        self._owner_read_up_to[uid] = max(self._owner_read_up_to.get(uid, 0), up_to)
        self._owner_problems.pop(uid, None)
        if new is None:
            self.owner_gone(uid)
        else:
            self.owner(new, now)
        self._mark_gangs_of(uid, now)

    def first_read(self, owner: Owner, up_to: int, now: float) -> None:
        """Take a read of an owner that no watch had delivered. `up_to`: `pods_at` at its start."""
        self._owner_read_up_to[owner.ref.uid] = max(self._owner_read_up_to.get(owner.ref.uid, 0), up_to)
        self.owner(owner, now)

    @property
    def pods_at(self) -> int:
        """The highest resourceVersion of a pod with an owner."""
        return self._pods_at

    def owner_read_failing(self, uid: str, problem: str, now: float) -> None:
        """The read failed for this reason, and is repeated later (`owner_read_failed`). Until a read succeeds, the owner's new pods get no places."""
        if uid in self._rereading and uid not in self._owner_problems:
            self._owner_problems[uid] = problem
            self._mark_gangs_of(uid, now)

    def owner_read_failed(self, uid: str, now: float) -> None:
        """The time to wait after a failed read is over."""
        self._rereading.pop(uid, None)
        self._mark_gangs_of(uid, now)

    def _mark_gangs_of(self, uid: str, now: float) -> None:
        for key in self._gangs_of.get(uid, ()):
            self._mark(key, now, urgent=True)

    def _owner_is_stale(self, record: Record) -> bool:
        """Whether the pods are newer than what is known of their owner: an update may have raised its minimum before they were created."""
        owner = record.group.owner if record.group is not None else None
        if owner is None or (kind := group_kind(owner)) not in self._owners_at or self.owners.is_unreadable(kind):
            return False  # no object of its own, or none that can be read now
        return record.arrived > max(self._owner_read_up_to.get(record.owner_uid, 0), self._owners_at[kind])

    def _extra_settled(self, record: Record) -> bool:
        """Set why the job of an extra pod waits. Returns False if its owner has to be read first: it may declare more pods by now."""
        member = None
        if record.by_owners and not record.gang:
            member = next((pod.member for pod in record.pods.values() if pod.member is not None and pod.member.extra_of), None)
        if member is None or member.gang is None:
            record.extra = ""
            if not record.owned:
                self._set_owner(record, "")
            return True
        owner, gang = member.gang.owner, self._records.get(member.extra_of)
        self._set_owner(record, owner.ref.uid)
        kind = group_kind(owner.ref)
        known_to = max(self._owner_read_up_to.get(owner.ref.uid, 0), self._owners_at.get(kind, 0))
        readable = kind in self._owners_at and not self.owners.is_unreadable(kind)
        if self._proves_groups and readable and record.arrived > known_to:
            if owner.ref.uid not in self._rereading:
                self._stale_owners[owner.ref.uid] = None
            if not (problem := self._owner_problems.get(owner.ref.uid, "")):
                return False
            record.extra = problem
            return True
        tally = gang.tally() if gang is not None and gang.pods else None
        # Without members it declares none of the role: scaled to 0 for a moment, or for good.
        waits = gang is None or tally is None or tally.bound + tally.succeeded < gang.min_member
        record.extra = (
            f"{owner.ref.title} declares fewer pods{f' of role {member.role}' if member.role else ''}" if waits else ""
        )
        return True

    def _mark_extras_of(self, record: Record, tally: Tally, now: float) -> None:
        started = tally.bound + tally.succeeded >= record.min_member
        if started != record.started:
            record.started = started
            for uid in self._extras_of.get(record.key, ()):
                self._mark(uid, now, urgent=True)

    def _set_owner(self, record: Record, uid: str) -> None:
        old, record.owner_uid = record.owner_uid, uid
        if old == uid:
            return
        if old:
            gangs = self._gangs_of[old]
            gangs.discard(record.key)
            if not gangs:
                del self._gangs_of[old]
                self._owner_read_up_to.pop(old, None)
                self._owner_problems.pop(old, None)
        if uid:
            self._gangs_of.setdefault(uid, set()).add(record.key)

    def _derive(self, record: Record, now: float) -> bool:
        """Set the group of a job by owner. Returns False for the first UNREAD_QUIET_S in which an owner is not read: most are a moment later."""
        oldest = min(
            (pod for pod in record.pods.values() if pod.member is not None and pod.member.gang is not None),
            key=by_age,
            default=None,
        )  # its owners count where those of the pods differ, so that the order of arrival does not matter
        found = oldest.member.gang if oldest is not None and oldest.member is not None else None
        if found is None:
            unread = next(
                (pod.member.unread for pod in record.pods.values() if pod.member is not None and pod.member.unread is not None),
                None,
            )
            record.unread = unread.title if unread is not None else "an object"
            if record.unread_since is None:
                record.unread_since = now
            if now < record.unread_since + UNREAD_QUIET_S:
                self._mark(record.key, now, urgent=False)
                return False
            return True
        record.unread, record.unread_since = "", None
        new = derived_group(found, record.pods.values())
        self._set_owner(record, new.owner.uid if new.owner is not None else "")
        if record.group != new:
            self._put_group(record, new)
        return True

    def budget(self, view: BudgetView) -> None:
        """A PodDisruptionBudget was listed, added or modified."""
        if self.budgets.put(view):
            self._guard(view.budget.namespace)

    def budget_gone(self, namespace: str, name: str) -> None:
        """A PodDisruptionBudget was deleted."""
        if self.budgets.gone(namespace, name):
            self._guard(namespace)

    def _guard(self, namespace: str) -> None:
        for pod in self.neighbours.within(namespace):
            if pod.ours:
                self.neighbours.guard(pod, self.budgets.of(namespace, pod.labels))

    def _neighbours_among(self, pods: Iterable[PodView]) -> Iterator[PodView]:
        return (pod for pod in pods if self.neighbours.knows(pod.uid))

    def priority_class(self, name: str, value: int | None, now: float, *, never: bool = False) -> None:
        """A PriorityClass has this value; None = it was deleted. `never`: its preemptionPolicy."""
        never = never and value is not None
        if self._classes.get(name) == value and (name in self._never) == never:
            return
        (self._never.add if never else self._never.discard)(name)
        if value is None:
            self._classes.pop(name, None)
        else:
            self._classes[name] = value
        self._classes_changed = True
        highest = max((0, *(value for value in self._classes.values() if value <= HIGHEST_USER_PRIORITY)))
        if highest != self._highest_user_class:
            self._highest_user_class = highest
            for record in self._records.values():
                if record.highest[0] > HIGHEST_USER_PRIORITY or (
                    record.group is not None and self._classes.get(record.group.priority_class, 0) > HIGHEST_USER_PRIORITY
                ):
                    self._mark(record.key, now, urgent=True)
        for record in self._records.values():
            if (record.group is not None and record.group.priority_class == name) or record.defaults.priority_class == name:
                self._mark(record.key, now, urgent=True)

    def namespace(
        self, name: str, labels: Mapping[str, str], now: float, *, terminating: bool, queue: QueueName = _NO_QUEUE
    ) -> None:
        """A namespace was listed, added or modified. `terminating`: it is being deleted; `queue`: of its pods that name none."""
        if queue != self._namespace_queues.get(name, _NO_QUEUE):
            if queue:
                self._namespace_queues[name] = queue
            else:
                self._namespace_queues.pop(name, None)
            for record in self._records.values():
                if record.namespace == name:
                    record.default_queue = queue
                    self._mark(record.key, now, urgent=True)
        self._set_indexed(name, _INDEXED.get(labels.get(INDEXED_JOBS, "")), now)
        self.neighbours.namespaces.put(name, labels)
        self._set_terminating(name, now, terminating=terminating)

    def _set_indexed(self, namespace: str, gangs: bool | None, now: float) -> None:
        if self._indexed_by_label.get(namespace) == gangs:
            return
        if gangs is None:
            del self._indexed_by_label[namespace]
        else:
            self._indexed_by_label[namespace] = gangs
        self.place_again(self.owners.pods_below(_JOB, namespace), now)

    def namespace_gone(self, name: str, now: float) -> None:
        """The namespace was deleted."""
        self._indexed_by_label.pop(name, None)
        self._namespace_queues.pop(name, None)
        self.neighbours.namespaces.gone(name)
        self._set_terminating(name, now, terminating=False)

    def _set_terminating(self, name: str, now: float, *, terminating: bool) -> None:
        if terminating == (name in self._terminating):
            return
        (self._terminating.add if terminating else self._terminating.discard)(name)
        for pod in self.neighbours.within(name):
            if pod.ours:
                self._mark(pod.key, now, urgent=True)

    def _ceiling(self, namespace: str) -> int:
        """The `ceiling` of pods in the namespace, for `counted`."""
        return INT32_MAX if namespace in self._system_namespaces else self._highest_user_class

    @property
    def priority_classes(self) -> Mapping[str, int]:
        """Values by name."""
        return self._classes

    def queue(self, queue: Queue, now: float, *, gone: bool) -> None:
        """A queue as it is now: jobs may belong to other shards by it."""
        if self.routing.queue(queue, gone=gone):
            for record in self._records.values():
                if record.job is not None and self.routing.shard_of(record.job) != record.shard:
                    self._mark(record.key, now, urgent=False)

    def volumes_changed(self, claims: Iterable[str], now: float) -> None:
        """Apply a change of these claims (namespace/name) or their volumes (`volumes` has the new state)."""
        for pod in self.users(claims):
            if pod.placeable:
                self._mark(pod.key, now, urgent=True)

    def users(self, claims: Iterable[str]) -> Iterator[PodView]:
        """Pods of ours that use one of these claims (namespace/name)."""
        return (self._pods[uid] for claim in claims for uid in self._users.get(claim, ()))

    # --- from the bus

    def verdict(self, verdict: JobVerdict, now: float, shard: str = ONE_SHARD) -> Record | None:
        """Record why the shard's scheduler cannot place a job. Kubernetes gets it later, if the job still waits then.

        If a job is unknown, or waits for nothing, its announcement by an earlier process is withdrawn. Verdicts about a job of another shard are ignored.
        Returns the
        job if its reason changed, else None.
        """
        record = self.known(verdict.job)
        if record is None or record.held or not self._waits(record):
            self.disown(verdict.job)
            return None
        if record.shard != shard or record.verdict == verdict:
            return None
        before = record.line
        record.verdict = verdict
        if record.line == before:
            return None
        self._delay_reason(record, now)
        self._mark(record.key, now, urgent=False)
        return record

    def admit(self, scheduler: SchedulerId, jobs: Iterable[JobId], now: float) -> None:
        """The scheduler lets the PodGroups of these jobs in, those of its shard."""
        own = shard_of(scheduler)
        for job in self.admission.admit(scheduler, [job for job in jobs if self.shard_of(job) == own]):
            if (record := self.known(job)) is not None:
                record.verdict = None  # it explained why the job was not enqueued
                self._mark(record.key, now, urgent=True)

    def gated(self, on: bool, now: float, shard: str = ONE_SHARD) -> None:
        """Whether the shard's policy has the action `enqueue`, for which PodGroups with a minimum of resources wait."""
        for record in self._records.values() if self.admission.gated(shard, on=on) else ():
            if record.group is not None and record.group.min_resources:
                self._mark(record.key, now, urgent=False)

    def disown(self, job: JobId) -> None:
        """Someone plans for a job that does not exist (it was deleted while this service was down): have it withdrawn."""
        self._disowned[job] = None

    def repeat(self, job: JobId, now: float) -> None:
        """Someone acted on an old view of this job: say it again, with a new revision, or withdraw it."""
        record = self.known(job)
        if record is None or not self._waits(record):
            self.disown(job)
        if record is not None:
            record.again = True
            self._mark(record.key, now, urgent=False)

    def _waits(self, record: Record) -> bool:
        """Whether the job has something to place, or waits to be enqueued, as it was worked out last."""
        return record.job is not None and (bool(record.job.tasks) or self.admission.waits(record))

    def evicted(self, job: JobId, message: str, wall: float) -> None:
        """Pods of this job were evicted: a phase of its own, before the one that follows from it."""
        record = self.known(job)
        if record is not None:
            record.evicted = True
        if record is not None and record.phase is not JobPhase.EVICTED:
            self._enter(record, JobPhase.EVICTED, record.tally(), message, wall)

    def unpublishable(self, job: JobId, reason: str, now: float) -> None:
        """Handle a job that exceeds every message: it is not planned until its pods or its PodGroup change, and its user gets the reason."""
        record = self.known(job)
        if record is not None:
            record.unpublishable = reason
            self._mark(record.key, now, urgent=True)

    def blocked(self, job: JobId, pod: PodUid, why: str, refusal: str, now: float) -> Record | None:
        """Record that the API server refused a pod's eviction, and why it was to be evicted. Returns the pod's gang if its user's message changes."""
        record = self.known(job)
        if record is None or not record.gang or pod not in record.pods:
            return None
        record.stuck[pod] = refusal
        return self._stuck(record, why, now)

    def unblocked(self, job: JobId, pod: PodUid, now: float) -> Record | None:
        """It was evicted, or stays. As `blocked`."""
        record = self.known(job)
        if record is None or record.stuck.pop(pod, None) is None:
            return None
        return self._stuck(record, "", now)

    def _stuck(self, record: Record, why: str, now: float) -> Record | None:
        names = {name for pod in record.stuck for name in self.neighbours.budgets_of(pod)}
        budgets = self.budgets.named(record.namespace, sorted(names))
        refusal = next(iter(record.stuck.values()), "")
        text = stuck_text(len(record.stuck), why, refusal, budgets) if record.stuck else ""
        if record.stuck and not why:
            return None  # only the number changed: the next refusal reports it
        if text == record.stuck_text:
            return None
        record.stuck_text = text
        self._delay_reason(record, now)
        self._mark(record.key, now, urgent=False)
        return record

    def repeat_all(self, now: float) -> None:
        """The streams were lost: say everything again."""
        for record in self._records.values():
            record.again = True
            self._mark(record.key, now, urgent=True)
        self._facts.update((fact.uid, fact) for fact in (*self.facts(), *self.ended(now)))
        self._facts_awaited = True
        self.admission.repeat_all()

    def repeat_unexplained(self, now: float) -> None:
        """Verdicts were lost: publish again the jobs that wait without one, and those that are not enqueued."""
        for record in self._records.values():
            if record.job is not None and record.verdict is None and (record.job.tasks or self.admission.waits(record)):
                record.again = True
                self._mark(record.key, now, urgent=False)

    # --- queries

    def known(self, job: JobId) -> Record | None:
        """The job of that id."""
        key = self._by_id.get(job)
        return self._records.get(key) if key is not None else None

    def record(self, key: str) -> Record | None:
        return self._records.get(key)

    def shard_of(self, job: JobId) -> str:
        """Whose schedulers place the job, as it was worked out last; empty where it is not known."""
        record = self.known(job)
        return record.shard if record is not None else ""

    def view(self, uid: PodUid) -> PodView | None:
        """The newest version of a pod."""
        return self._pods.get(uid)

    def records(self) -> Iterable[Record]:
        """All that there are now."""
        return self._records.values()

    def ids(self) -> set[JobId]:
        """Of all jobs that there are now."""
        return {record.id for record in self._records.values()}

    def jobs(self) -> Iterator[Job]:
        """All jobs with a live pod, as last computed; marked ones are published next. Without held jobs."""
        return (
            r.job
            for r in self._records.values()
            if r.job is not None and r.job.members > 0 and not r.unpublishable and not r.held
        )

    def held(self) -> Iterator[Job]:
        """Jobs that are held back."""
        return (r.job for r in self._records.values() if r.job is not None and r.held)

    def placed(self) -> Iterator[Job]:
        """Jobs with pods that have a node when they are reached, and these as their tasks."""
        for record in list(self._records.values()):
            if record.job is None or record.job.bound == 0 or record.unpublishable:
                continue
            if tasks := placed_of(record, self.volumes):
                yield replace(record.job, tasks=tasks, standing=())

    def facts(self) -> Iterator[PodFact]:
        """All pods that have a node now, each as it is when it is reached. A pod that is gone by then is left out; `ended` has it."""
        return self._facts_of([uid for uid, pod in self._pods.items() if pod.node])

    def _facts_of(self, uids: Iterable[PodUid]) -> Iterator[PodFact]:
        for uid in uids:
            pod = self._pods.get(uid)
            if pod is not None and pod.node:
                yield self._fact(pod, FACT_PHASE[pod.status])

    def leaving(self) -> Iterator[LeavingPod]:
        """Pods that hold cards and are being deleted."""
        for pod in list(self._pods.values()):
            if pod.deleting and pod.node and FACT_PHASE[pod.status].holds and (cards := VENDORS.asked(pod.shape.requests)):
                yield LeavingPod(pod.namespace, pod.name, pod.node, cards, pod.ends_at, pod.finalizers)

    def ended(self, now: float) -> Iterator[PodFact]:
        """Pods that ended in the last minute: a service that lost the messages about them still holds their places."""
        for at, fact in list(self._ended):
            if now - at < ENDED_S:
                yield fact

    def verdicts(self, without: Mapping[str, str] = {}) -> Iterator[JobVerdict]:
        """Why jobs wait, by the scheduler or by their own problem. `without`: shards without a scheduler, with the message for their jobs."""
        for record in list(self._records.values()):
            if record.job is None or not (record.job.tasks or record.gated or self.admission.waits(record)):
                continue
            if record.verdict is not None and record.plain_reason == record.verdict.message:
                yield record.verdict.model_copy(update={"message": record.reason})
            elif reason := record.reason or without.get(record.shard, ""):
                yield _own_verdict(record.job.id, reason, record.code if record.reason else SCHEDULER_ABSENT)

    def waiting_by_shard(self) -> Mapping[str, int]:
        """Jobs with pods to place."""
        counts = Counter(record.shard for record in self._records.values() if record.announced)
        return {shard: counts[shard] for shard in self.routing.shards.names}

    def counts(self) -> Mapping[str, int]:
        return {
            "jobs": len(self._records),
            "pods": len(self._pods),
            "marked": len(self._urgent) + len(self._lazy),
            "held": self._intake.counts(),
        }

    # --- publishing

    def next_due(self) -> float | None:
        """When `take` has something: minus infinity for at once, None where nothing is marked."""
        if self._urgent or self._disowned or self.neighbours.due or self.neighbours.namespaces.due or self._classes_changed:
            return float("-inf")
        if self.successions.due:
            return float("-inf")
        lazy = next(iter(self._lazy.values()), None)
        if not self._facts:
            return lazy
        facts = self._facts_due
        return facts if lazy is None else min(lazy, facts)

    @property
    def _facts_due(self) -> float:
        return self._facts_published_at + (FACTS_S if self._facts_awaited else CONFIRMED_S)

    @property
    def others_wait(self) -> bool:
        """Whether a namespace that is not crowded has urgent changes."""
        return bool(self.crowd) and self._urgent.others(self.crowd)

    def take(self, now: float, wall: float, *, others: bool = False) -> Batch:
        """The changes to publish, at most MAX_ITEMS of each kind, from namespaces in turn. The caller publishes them, however long it takes. `others`: only
        urgent
        changes of namespaces that are not crowded.
        """
        pending: list[Job] = []
        self._batch_shards, self._left, self._groups_left = {}, [], []
        withdrawn: list[tuple[JobId, int]] = [(job, self._next_revision(wall)) for job in self._disowned]
        self._disowned.clear()
        settled: list[Record] = []
        pods = 0
        first_lazy = next(iter(self._lazy.values()), None)
        until = now + COMPANY_S if first_lazy is not None and first_lazy <= now else now
        if others:
            until = float("-inf")
        taken: dict[str, int] = {}
        while len(settled) < MAX_ITEMS and pods < MAX_PODS:
            key = self._next_key(now, until, self.crowd if others else ())
            if key is None:
                break
            record = self._records.get(key)
            if record is None:
                self._computed(key)
                continue
            settled.append(record)
            record.settled_at = now
            job = self._settle(record, withdrawn, wall, now)
            if record.job is not None or key not in self._records:  # else its PodGroup is to be read first
                self._computed(key)
                if record.by_owners:
                    self.successions.computed(record.pods)
            if job is not None:
                pending.append(job)
                pods += sum(len(task.pods) for task in job.tasks)
                taken[record.namespace] = taken.get(record.namespace, 0) + 1
        if not others:
            self.crowd = frozenset(name for name, count in taken.items() if count > CROWD)
            if sum(count for name, count in taken.items() if name not in self.crowd) > MOST_OTHERS:
                self.crowd = frozenset()  # all of them make a burst together
        facts: list[PodFact] = []
        if self._facts and now >= self._facts_due:
            facts = [self._newest(self._facts.pop(uid)) for uid in list(self._facts)[:MAX_ITEMS]]
            if not self._facts:
                self._facts_published_at, self._facts_awaited = now, False
        classes = dict(self._classes) if self._classes_changed else None
        self._classes_changed = False
        return Batch(
            pending=tuple(pending),
            withdrawn=tuple(withdrawn),
            facts=tuple(facts),
            settled=tuple(settled),
            groups=self.admission.take(),
            neighbours=self.neighbours.take(),
            priority_classes=classes,
            namespaces=self.neighbours.namespaces.take(),
            shards=self._batch_shards,
            left=tuple(self._left),
            groups_left=tuple(self._groups_left),
            missing=self.successions.take(),
        )

    def _computed(self, key: str) -> None:
        if self._uncomputed:
            self._uncomputed.discard(key)

    def take_phases(self, limit: int, *, now: float, rest_s: float = 0.0) -> list[Entered]:
        """Phases that were entered `rest_s` ago or earlier, at most one of a job, of namespaces in turns. `now`: seconds since the epoch.

        That a job was pending is left out where that is over already.
        """
        return self.phases.take(limit, now=now, rest_s=rest_s, is_news=self._is_news)

    def _is_news(self, phase: Entered) -> bool:
        record = self.known(phase.job)
        if phase.rejected:
            return record is not None and rejection_of(record) == phase.rejected
        return phase.phase is not JobPhase.PENDING or (record is not None and record.phase is JobPhase.PENDING)

    def _settle(self, record: Record, withdrawn: list[tuple[JobId, int]], wall: float, now: float) -> Job | None:
        """Compute a job. Returns it if it has to be announced; withdraws an announced job that ended."""
        old, tally = record.job, record.tally()
        if record.owned and not record.pods:
            record.group = None
        if not record.pods and record.group is None:
            del self._records[record.key]
            self._set_owner(record, "")
            for uid in self._extras_of.get(record.key, ()):
                self._mark(uid, now, urgent=True)
            self._leave_intake(record, now)
            if old is not None:
                self._end(record, old, withdrawn, tally, wall)
            return None
        if record.owned and not self._derive(record, now):
            return None
        if not self._extra_settled(record):
            return None
        if record.owned:
            self._mark_extras_of(record, tally, now)
        if self._needs_group_read(record, tally):
            if record.owned:
                if record.owner_uid not in self._rereading:
                    self._stale_owners[record.owner_uid] = None
                record.read_problem = self._owner_problems.get(record.owner_uid, "")
            elif record.key not in self._reading:
                self._unread[record.key] = None
            if not record.read_problem:
                return None
        else:
            record.read_problem = ""
        doubtful = record.key in self._doubtful
        self._doubtful.discard(record.key)
        record.strangers = len(self._strangers.get(record.key, ()))
        revision = old.revision if old is not None else 0
        new = job_of(
            record,
            tally,
            self._classes,
            self.volumes,
            self._trace,
            never=self._never,
            terminating=record.namespace in self._terminating,
            revision=revision,
            ceiling=self._ceiling(record.namespace),
            succession=self._succession(record) if record.by_owners else "",
        )
        if old is not None and old.id != new.id:
            self._end(record, old, withdrawn, tally, wall)
            record.announced, record.verdict, record.phase, old = False, None, None, None
            record.placed, record.rejected, record.submitted_at = (), (), 0.0
            self._repeat_facts(record)
        self._by_id[new.id] = record.key
        record.submitted_at = record.submitted_at or seen_or_created(wall, new.created_at)
        if self._several:
            self._route(record, new, wall)
        held = record.held
        record.held = self._hold(record, new, tally, now)
        if record.held != held:
            self._delay_reason(record, now)
        if record.admitted == bool(record.held):
            record.admitted = not record.held
            for pod in record.pods.values() if record.admitted else ():
                if not self.neighbours.knows(pod.uid):
                    self._add_neighbour(pod, None, record)
        if record.held:
            self.admission.gone(new.id, lambda: self._next_revision(wall))
        else:
            self.admission.settle(record, new, tally, lambda: self._next_revision(wall))
        if not new.tasks and not self.admission.waits(record):
            record.verdict = None
        gated, record.gated = record.gated, gated_of(record, tally)
        if (new.problem and (old is None or old.problem != new.problem)) or record.gated != gated:
            self._delay_reason(record, now)
        if old is not None and old.members < old.min_member and new.members >= new.min_member:
            # The message about a gang below its minimum is about to change.
            record.published_from = max(record.published_from, now + self._publish_after_s)
        unchanged = new == old
        if unchanged:
            assert old is not None
            new = old
        else:
            new = replace(new, revision=self._next_revision(wall))
        record.job = new
        code = wait_code(record, tally)
        if code == NOT_TRIED_YET and record.verdict is None:  # after a restart, until the scheduler repeats its verdict
            code = self.waits.resumed(new.id) or code
        self.waits.note(new.id, new.queue, code, wall, since=waits_since(record, wall), outcome=outcome_of(record, code))
        phase = phase_of(record, tally)
        if phase is not record.phase:
            self._enter(record, phase, tally, record.reason if phase is JobPhase.WAITING else "", wall)
        if (rejected := rejection_of(record)) and rejected not in record.rejected:
            record.rejected = (*record.rejected, rejected)
            self._publish_phase(record, JobPhase.WAITING, tally, record.reason, wall, rejected=rejected)
        again, record.again = record.again, False
        if record.unpublishable or record.held:
            if record.announced or (record.held and doubtful):
                record.announced = False
                withdrawn.append((new.id, self._next_revision(wall)))
            return None
        if new.tasks and (again or not (unchanged and record.announced)):
            if unchanged:
                record.job = new = replace(new, revision=self._next_revision(wall))
            record.announced = True
            return new
        if not new.tasks and record.announced:
            record.announced = False
            withdrawn.append((new.id, self._next_revision(wall)))
        return None

    def _route(self, record: Record, new: Job, wall: float) -> None:
        """Determine its shard. The old shard gets a withdrawal, with a revision below that of the new shard's announcement."""
        shard, before = self.routing.shard_of(new), record.shard
        self._batch_shards[new.id] = record.shard = shard
        if record.job is None or shard == before:
            return
        record.verdict = None
        if record.announced:
            record.announced = False
            self._left.append((before, new.id, self._next_revision(wall)))
        if (group := self.admission.leave(new.id, lambda: self._next_revision(wall))) is not None:
            self._groups_left.append((before, group))

    def _hold(self, record: Record, new: Job, tally: Tally, now: float) -> str:
        """Why the job is held back; empty if it is not. A job that waits for places, and has none, is admitted when its namespace has room."""
        if not (self._most_pending or self._most_pending_mib):
            return ""
        group = record.group
        asks = bool(new.tasks) or (group is not None and bool(group.min_resources) and not tally.live and not record.foreign)
        if not asks or tally.bound:
            self._leave_intake(record, now)
            return ""
        size = record.size if self._most_pending_mib else 0
        inside, others = self._intake.enter(
            record.key, record.namespace, priority=new.priority, created_at=new.created_at, size=size
        )
        for key in others:
            self._mark(key, now, urgent=True)
        if inside:
            return ""
        if self._intake.is_crowded(record.namespace):
            return held_text(record.namespace, self._most_pending)
        return too_large_text(record.namespace, self._most_pending_mib)

    def _leave_intake(self, record: Record, now: float) -> None:
        for key in self._intake.leave(record.key, record.namespace):
            self._mark(key, now, urgent=True)

    def _end(self, record: Record, old: Job, withdrawn: list[tuple[JobId, int]], tally: Tally, wall: float) -> None:
        """The job of that id is no more."""
        if self._several:
            self._batch_shards[old.id] = record.shard
        self._by_id.pop(old.id, None)
        self.waits.gone(old.id, wall)
        self.admission.gone(old.id, lambda: self._next_revision(wall))
        if record.announced:
            withdrawn.append((old.id, self._next_revision(wall)))
        self._enter(record, JobPhase.DELETED, tally, "", wall)

    def _enter(self, record: Record, phase: JobPhase, tally: Tally, message: str, wall: float) -> None:
        self.pending += (phase is JobPhase.PENDING) - (record.phase is JobPhase.PENDING)
        record.phase = phase
        if placed := tuple((pod.node, pod.slices) for pod in record.pods.values() if pod.node and not pod.deleting):
            record.placed = placed
        self._publish_phase(record, phase, tally, message, wall)

    def _publish_phase(
        self, record: Record, phase: JobPhase, tally: Tally, message: str, wall: float, *, rejected: str = ""
    ) -> None:
        assert record.job is not None
        changed = JobPhaseChanged(
            job=record.job.id,
            namespace=record.namespace,
            name=record.name,
            queue=record.job.queue,
            phase=phase,
            members=tally.live,
            bound=tally.bound,
            message=message,
            at=wall,
        )
        self.phases.add(Entered(changed, record.placed, rejected, record.key, record.submitted_at, record.submitter))

    def _next_key(self, now: float, until: float, skip: Collection[str]) -> str | None:
        if (found := self._urgent.pop(skip)) is not None:
            return found
        while True:
            key, due = next(iter(self._lazy.items()), ("", float("inf")))
            if due > until:
                return None
            del self._lazy[key]
            record = self._records.get(key)
            if record is None or not self._rests(record, now):
                return key
            self._lazy[key] = now + self._lazy_s

    def _rests(self, record: Record, now: float) -> bool:
        """Whether it was computed so recently that changes without urgency come later."""
        times = min(len(record.pods) // LARGE, MAX_REST)
        return times > 0 and not record.again and now < record.settled_at + times * self._lazy_s

    def _next_revision(self, wall: float) -> int:
        self._revision = max(self._revision + 1, int(wall * 1e6))
        return self._revision

    def _delay_reason(self, record: Record, now: float) -> None:
        """Delay its new reason to wait. A reason that changes all the time is published all the same."""
        if record.published_from <= now:
            record.published_from = now + self._publish_after_s

    # --- membership and marks

    def _record(self, key: str, namespace: str, name: str, *, gang: bool) -> Record:
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = Record(key=key, namespace=namespace, name=name, gang=gang)
        return record

    def _join(self, pod: PodView, now: float) -> Record:
        record = self._records.get(pod.key) or self._record(pod.key, pod.namespace, _name_of(pod), gang=pod.in_gang)
        record.owned = pod.member is not None and not pod.group and pod.in_gang
        record.default_queue = self._namespace_queues.get(pod.namespace, _NO_QUEUE)
        if pod.uid not in record.pods:
            record.unpublishable = ""
            if _still_made(record, pod):
                record.published_from = max(record.published_from, now + self._publish_after_s)
        record.put(pod)
        if pod.member is not None and pod.member.extra_of:
            self._extras_of.setdefault(pod.member.extra_of, {})[pod.uid] = None
        return record

    def _leave(self, pod: PodView, now: float) -> None:
        if pod.group and not pod.ours:
            others = self._strangers[pod.key]
            del others[pod.uid]
            if not others:
                del self._strangers[pod.key]
            self._mark(pod.key, now, urgent=False)
        if pod.member is not None and (extras := self._extras_of.get(pod.member.extra_of)) is not None:
            extras.pop(pod.uid, None)
            if not extras:
                del self._extras_of[pod.member.extra_of]
        record = self._records.get(pod.key)
        if record is not None and record.drop(pod.uid):
            record.unpublishable = ""
            self._mark(record.key, now, urgent=not pod.node or not record.gang)

    def _use_volumes(self, pod: PodView, *, first_seen: bool) -> None:
        for use in pod.volumes:
            claim = f"{pod.namespace}/{use.claim}"
            if first_seen:
                self._users.setdefault(claim, {})[pod.uid] = None
            self._turns.changed(claim, pod)

    def _has_turn(self, claim: str, uid: str) -> bool:
        """Whether this pod is the first one in the order of the claim's users (`ClaimTurns`)."""
        first = self._turns.first(claim)
        return first is None or first.uid == uid

    def _pass_turn(self, pod: PodView, now: float) -> None:
        """The pod has ended: enqueue the next pod of each of its ReadWriteOncePod claims."""
        for use in pod.volumes:
            claim = f"{pod.namespace}/{use.claim}"
            if self.volumes.single_pod(claim) and (first := self._turns.first(claim)) is not None and first.placeable:
                self._mark(first.key, now, urgent=True)

    def _release_volumes(self, pod: PodView) -> None:
        for use in pod.volumes:
            key = f"{pod.namespace}/{use.claim}"
            self._turns.gone(key, pod.uid)
            users = self._users.get(key, {})
            users.pop(pod.uid, None)
            if not users:
                self._users.pop(key, None)

    def _mark_for(self, record: Record, old: PodView | None, new: PodView, now: float) -> None:
        if old is not None and content(old) == content(new):
            if new.placeable:
                # Bindings are fenced by it. Of a gang many move one after the other, and its message is long.
                self._mark(record.key, now, urgent=not record.gang)
            return
        matters = (new.placeable or (old is not None and old.placeable)) and not new.node
        self._mark(record.key, now, urgent=matters and (not record.gang or self._complete(record)))

    @staticmethod
    def _complete(record: Record) -> bool:
        # A count of pods bounds the count of live ones from above; exact counting for each pod of a gang would cost its square.
        return record.group is None or len(record.pods) >= record.min_member

    def _mark(self, key: str, now: float, *, urgent: bool) -> None:
        if urgent:
            record = self._records.get(key)
            self._urgent.add(key, record.namespace if record is not None else "")
            self._lazy.pop(key, None)
        elif key not in self._urgent and key not in self._lazy:
            self._lazy[key] = now + self._lazy_s

    def _repeat_facts(self, record: Record) -> None:
        """Publish the facts of its bound pods again, since they belong to another job now."""
        found = {pod.uid: self._fact(pod, FACT_PHASE[pod.status]) for pod in record.pods.values() if pod.node}
        self._facts.update(found)
        self._facts_awaited = self._facts_awaited or bool(found)

    def _newest(self, fact: PodFact) -> PodFact:
        """The fact with its pod's current job: after a start, the pods may be listed before their PodGroups."""
        pod = self._pods.get(fact.uid)
        record = self._records.get(pod.key) if pod is not None and pod.ours else None
        if pod is None or record is None or record.id == fact.job or fact.phase is PodPhase.GONE:
            return fact
        return self._fact(pod, fact.phase)

    def _fact(self, pod: PodView, phase: PodPhase) -> PodFact:
        record = self._records.get(pod.key) if pod.ours else None
        return PodFact(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            phase=phase,
            node=pod.node,
            job=record.id if record is not None else JobId(pod.uid),
            queue=record.queue if record is not None else QueueName(""),
            priority=counted(pod.priority, self._ceiling(pod.namespace)) if pod.ours else pod.priority,
            requests=pod.shape.requests,
            cards=VENDORS.asked(pod.shape.requests),
            slices=pod.slices,
            claim=pod.claim,
            ours=pod.ours,
            resource_version=pod.resource_version,
            min_member=record.min_member if record is not None else 1,
            preemptable=preemptable_of(record) if record is not None else False,
            priority_class=class_of(record) if record is not None else "",
            created_at=record.group.created_at if record is not None and record.group is not None else pod.created_at,
            on_sick=on_sick_of(record, pod),
            asks=pod.shape.cards,
            allocated=dict(pod.allocated),
        )

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        assert self.pending == sum(record.phase is JobPhase.PENDING for record in self._records.values())
        assert {(record.owner_uid, key) for key, record in self._records.items() if record.owner_uid} == {
            (uid, key) for uid, keys in self._gangs_of.items() for key in keys
        }
        for key, record in self._records.items():
            assert record.key == key
            assert all(pod.key == key and pod.ours and self._pods.get(uid) is pod for uid, pod in record.pods.items())
            assert record.offered == sum(pod.preemptable for pod in record.pods.values())
            assert record.classes == Counter((pod.priority, pod.priority_class) for pod in record.pods.values() if pod.live)
            assert record.pods or record.group or key in self._urgent or key in self._lazy, f"{key} is empty and not marked"
            if record.job is not None:
                assert self._by_id.get(record.job.id) == key
        assert list(self._lazy.values()) == sorted(self._lazy.values())
        assert not set(self._urgent) & self._lazy.keys()
        self.owners.validate()
        self.extras.validate()
        assert {
            (pod.member.extra_of, uid) for uid, pod in self._pods.items() if pod.member is not None and pod.member.extra_of
        } == {(key, uid) for key, uids in self._extras_of.items() for uid in uids}
        self._intake.validate()
        self.waits.validate()
        self.phases.validate()


def _number(resource_version: str) -> int:
    """The resourceVersion as a number; 0 if it is no number, so that every PodGroup is read."""
    return int(resource_version) if resource_version.isdecimal() else 0


def _as_member(pod: PodView, member: Membership | None) -> PodView:
    if member is None:
        return pod
    rank = rank_key(pod.name, member.role, pod.labels, {}) if member.gang is not None else pod.rank_key
    return replace(pod, member=member, rank_key=rank)


def _name_of(pod: PodView) -> str:
    """Of its job."""
    return pod.group or (pod.member.name if pod.member is not None and pod.member.key else pod.name)


def _own_verdict(job: JobId, message: str, name: str) -> JobVerdict:
    """With the usual outcome and owner of the code, which is of this service or of an older scheduler."""
    code = CODES.get(name)
    if code is None:
        return JobVerdict(job=job, message=message, code=name)
    return JobVerdict(job=job, message=message, code=name, outcome=code.outcome, owner=code.owner)


def _still_made(record: Record, pod: PodView) -> bool:
    """Whether this is one more pod of a gang that is too small so far, and made just now."""
    group, job = record.group, record.job
    return (
        group is not None
        and job is not None
        and job.members < record.min_member
        and pod.created_at < group.created_at + GROWING_S
    )
