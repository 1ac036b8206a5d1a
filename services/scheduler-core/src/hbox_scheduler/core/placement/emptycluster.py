"""A gang alone on a cluster on which nothing runs: whether its wait can end, where the room of each of its shapes does not decide that.

Pods of several shapes may fit only apart from each other, pods that keep apart may have too few nodes, and quotas and limits by card model depend on the cards
that are chosen. So the policy places the gang on copies of the columns without bookings, first with all nodes and cards in service, then as they are. A result
is kept until nodes or rules change; a session makes at most `MOST_TRIALS` trials, beyond which the last known result of a gang counts.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from weakref import ref

from hbox_common.model import VENDORS, Resources, by_pool, is_model, model_of
from hbox_common.model.resources import add
from hbox_common.reasons import code_of_message

from ..actions.registry import run_action
from ..cluster.entities import Gang, Member, Status
from ..cluster.snapshot import Cluster
from ..explain.facts import Facts
from ..explain.labels import BY_PLACES_OF_OTHERS, Label
from ..explain.outcomes import (
    GANG_KEEPS_APART,
    GANG_TOO_LARGE,
    QUEUE_LIMIT_TOO_SMALL,
    RESOURCE_QUOTA_TOO_SMALL,
    TOPOLOGY_TOO_SMALL,
)
from ..framework import Session
from ..framework.waiting import WaitReason, WaitReasons
from ..policy.registry import plugins_of
from ..quotas.models import concerned as concerned_models
from ..quotas.models import max_pods
from ..topology.constraints import concerned
from .emptyroom import rooms_by_node

#: Trials of one session: 10 ms each with 10,000 cards and a gang of 65 pods.
MOST_TRIALS = 4

#: Gangs of which results are kept.
_KEPT = 4096

#: Codes of an empty cluster by what its session states.
_CODES: Mapping[str, str] = {
    Label.QUEUE_CAPABILITY: QUEUE_LIMIT_TOO_SMALL,
    Label.QUEUE_SHARE: QUEUE_LIMIT_TOO_SMALL,
    Label.QUEUE_MODEL: QUEUE_LIMIT_TOO_SMALL,
    Label.QUEUE_GUARANTEES: str(Label.QUEUE_GUARANTEES),
    Label.NODE_GROUP_LIMIT: str(Label.NODE_GROUP_LIMIT),
    Label.CARD_QUOTA: RESOURCE_QUOTA_TOO_SMALL,
    "TopologyFull": TOPOLOGY_TOO_SMALL,
}


@dataclass(frozen=True, slots=True)
class Never:
    """Why the gang cannot start on nodes that are empty and in service."""

    code: str
    found: Facts


@dataclass(frozen=True, slots=True)
class Alone:
    """`never`: None = it starts on nodes that are empty and in service; `in_service`: it starts on empty nodes as they are now, else `fitting` of its pods."""

    never: Never | None = None
    in_service: bool = True
    fitting: int = 0


@dataclass(slots=True)
class EmptyCluster:
    """Trials of the gangs of one scheduler."""

    _known: OrderedDict[object, tuple[object, Alone]] = field(default_factory=OrderedDict)
    _session: Callable[[], Session | None] = lambda: None  #: a weak reference
    _trials: int = 0

    def begin(self, session: Session) -> None:
        """The next results are for this session."""
        if self._session() is not session:
            self._session, self._trials = ref(session), 0

    def of(self, session: Session, gang: Gang, revision: int) -> Alone:
        """The result for a gang. `revision`: of its job."""
        self.begin(session)
        key, version = _key(gang, revision), _version(session, gang)
        known = self._known.get(key)
        if known is not None and (known[0] == version or self._trials >= MOST_TRIALS):
            self._known.move_to_end(key)
            return known[1]
        if self._trials >= MOST_TRIALS:
            return Alone()
        self._trials += 1
        found = _alone(session, gang)
        self._known[key] = version, found
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return found


def is_decided_by_shape(session: Session, gang: Gang, waiting: WaitReason, shapes: int) -> bool:
    """Whether the room of each shape decides if the gang, which waits for this reason, can start on an empty cluster. `shapes`: of the pods that it needs."""
    if shapes > 1 or gang.sub_gang_policies or gang.min_task_member:
        return False
    if (stated := code_of_message(waiting.message)) is not None and stated.name in _CODES:
        return False
    if not gang.plain and any(member.constraints for member in gang.members):
        return False
    if session.guarantees and gang.queue in session.cluster.roster.keeping:
        return False
    if not any(member.task.cards is not None for member, _ in gang.shapes) and gang.shapes:
        return True
    books = session.cluster.card_books
    return not (session.models and session.models.limit(gang.queue)) and (books is None or gang.namespace not in books)


def _key(gang: Gang, revision: int) -> object:
    """Equal for gangs with equal results."""
    need = gang.min_member - gang.ready
    if not gang.interchangeable:
        return gang.id, revision, need
    return tuple((member.task, count) for member, count in gang.shapes), gang.queue, gang.namespace, gang.priority, need


def _version(session: Session, gang: Gang) -> object:
    """What results depend on apart from the gang."""
    books, cluster = session.cluster.card_books, session.cluster
    quotas = tuple((one.limits.items(), one.fault) for one in books.of(gang.namespace)) if books is not None else ()
    return session.columns.described.end, cluster.roster, [([*limits], fault) for limits, fault in quotas]


def _alone(session: Session, gang: Gang) -> Alone:
    columns = session.columns
    with _session(session, gang, in_service=True) as (trial, own):
        if (why := _why(trial, own)) is not None:
            return Alone(why)
    rows = session.rows
    sound = bool((columns.card_ok[rows] == (columns.card_index[rows] >= 0)).all())
    if sound and bool((columns.ready & columns.schedulable & columns.healthy)[rows].all()):
        return Alone()
    with _session(session, gang, in_service=False) as (trial, own):
        starts = _starts(trial, own) or _why(trial, own) is None
        return Alone(in_service=starts, fitting=trial.outcome.fitting.get(own.id, 0))


@contextmanager
def _session(session: Session, gang: Gang, *, in_service: bool) -> Iterator[tuple[Session, Gang]]:
    """A session after the actions of the policy, with a copy of the gang alone on nodes without bookings; and the copy. `in_service`: all nodes are in service
    and all cards sound."""
    columns = session.columns.unbooked(in_service=in_service)
    nodes = columns.repaired_nodes if in_service else columns.described_nodes
    own, cluster = _copy(session, gang), session.cluster
    pairs = [[*zip(*tiers, strict=True)] for tiers in zip(session.conf.tiers, plugins_of(session.conf), strict=True)]
    lasting = [[(own_conf, plugin) for own_conf, plugin in tier if not plugin.passing] for tier in pairs]
    conf = replace(session.conf, tiers=tuple(tuple(own_conf for own_conf, _ in tier) for tier in lasting))
    trial = Session(
        columns=columns,
        cluster=Cluster(
            [own],
            cluster.queues,
            facts=replace(cluster.facts, usage=(), booked_before=None, reservations=(), demand=None),
            card_books=cluster.card_books.unused() if cluster.card_books is not None else None,
            lending=cluster.lending.unlent(nodes) if session.guarantees and cluster.lending is not None else None,
            reserves=False,
            kept=cluster.roster,
        ),
        conf=conf,
        tiers=[[plugin for _, plugin in tier] for tier in lasting],
        now=session.now,
        learned=session.learned,
        views=session.views.on(columns) if session.views is not None else None,
    )
    trial.tree = session.tree
    try:
        for action in conf.actions:
            run_action(action, trial)
        yield trial, own
    finally:
        trial.close()
        own.dissolve()


def _copy(session: Session, gang: Gang) -> Gang:
    """The gang's members that wait, without affinity to pods of others."""
    own = replace(
        gang,
        min_member=max(gang.min_member - gang.ready, 1),
        members=[],
        sub_gangs=[],
        shapes=(),
        allocated_domain="",
        represented=(),
        _counts=None,
    )
    for member in gang.of(Status.PENDING):
        near = member.constraints.affinity
        if near and not session.population.matches(near, member.namespace, member):
            constraints = replace(member.constraints, affinity=())
        else:
            constraints = member.constraints
        own.members.append(replace(member, gang=own, constraints=constraints, nominated=None, sub_gang=None))
    return own


def _starts(trial: Session, gang: Gang) -> bool:
    return any(member.gang is gang for member in trial.outcome.bindings)


def _why(trial: Session, gang: Gang) -> Never | None:
    """Why the gang did not start; None: it did, or for a reason that is none of the cluster's."""
    if _starts(trial, gang):
        return None
    pending = [member for member in gang.of(Status.PENDING) if not member.best_effort]
    if not pending:
        return None
    waiting, needed = WaitReasons(trial).of(pending[0]), pending[: max(gang.min_member, 1)]
    code = _code(trial, needed, waiting)
    if code is None:
        return None
    found = Facts()
    if code in _FILL:
        _FILL[code](trial, needed, found)
    else:
        found.facts["detail"] = waiting.message.partition(": ")[2] or waiting.message
    return Never(code, found)


def _code(trial: Session, needed: Sequence[Member], waiting: WaitReason) -> str | None:
    gang = needed[0].gang
    if trial.namespace_quotas.exceeded(gang):
        return RESOURCE_QUOTA_TOO_SMALL
    if _short_of_models(trial, needed) is not None:
        return QUEUE_LIMIT_TOO_SMALL
    if (stated := code_of_message(waiting.message)) is not None:
        return _CODES.get(stated.name)
    if concerned(gang) and trial.topological and gang.id not in trial.outcome.fitting:
        return TOPOLOGY_TOO_SMALL
    labels = waiting.reasons.counts if waiting.reasons is not None else {}
    limits = [code for label, code in _CODES.items() if label in labels]
    if limits:
        return limits[0]
    if any(label in labels for label in BY_PLACES_OF_OTHERS) or trial.outcome.apart.get(gang.id):
        return GANG_KEEPS_APART
    if _short_of_model(trial, needed[0]) is not None:  # other models may be on nodes that the pods may not use
        return QUEUE_LIMIT_TOO_SMALL
    return GANG_TOO_LARGE if len(needed) > 1 else None


def _members(trial: Session, needed: Sequence[Member], found: Facts) -> None:
    """How many pods were placed before one did not fit."""
    gang = needed[0].gang
    most = min(trial.outcome.fitting.get(gang.id, 0), len(needed) - 1)
    found.facts |= {"pods": len(needed), "most": most}
    found.amount("pods", len(needed), most)


def _limit(trial: Session, needed: Sequence[Member], found: Facts) -> None:
    """The queue's limit that is too small: on a resource, or on cards of a model."""
    gang, asked = needed[0].gang, Resources()
    for member in needed:
        add(asked, member.task.requests)
    choices = trial.pools.choices(needed[0]) if trial.pools else ()
    for name in trial.cluster.roster.paths().get(gang.queue, ()):
        for limit, most in trial.queues[name].capability.items():
            resource, pool = by_pool(limit)
            if asked.get(resource, 0) > most and list(choices or ("",)) == [pool]:
                found.limit(resource, asked[resource], most)
                found.facts["queue"] = name
                return
    if (short := _short_of_models(trial, needed) or _short_of_model(trial, needed[0])) is not None:
        cards, most, models = short
        names = ", ".join(models)
        found.facts |= {"queue": gang.queue, "need": f"{cards} cards of {names}", "largest": f"{most} of them"}
        found.amount("cards", cards, most)


def _short_of_models(trial: Session, needed: Sequence[Member]) -> tuple[int, int, Sequence[str]] | None:
    """If limits of queues on the models that the pods may use are too small for them: the cards that they need, the limit and the models."""
    task, gang = needed[0].task, needed[0].gang
    if not trial.models or task.cards is None or any(member.task is not task for member in needed):
        return None
    left = trial.models.left(gang.queue, later=False, pool=needed[0].account)
    pods = max_pods(task, left, [*trial.models.names.values()])
    if pods is None or pods >= len(needed):
        return None
    models = [model for model in concerned_models(task, left) if is_model(model)]
    cards, most = task.cards.count * len(needed), sum(left[model] for model in models)
    return cards, most if most < cards else task.cards.count * pods, sorted(map(model_of, models))


def _short_of_model(trial: Session, member: Member) -> tuple[int, int, Sequence[str]] | None:
    """As `_short_of_models`, if limits are too small for one pod in each pool that it may use; else pods of others, or other models, might have them."""
    task, short = member.task, dict[str, int]()
    if not trial.models or task.cards is None:
        return None
    for pool in (trial.pools.choices(member) if trial.pools else ()) or (member.account,):
        left = trial.models.left(member.gang.queue, later=False, pool=pool)
        found = {one: left[one] for one in concerned_models(task, left) if is_model(one) and left[one] < task.cards.count}
        if not found:
            return None
        short |= found
    return task.cards.count, max(short.values()), sorted(map(model_of, short))


def _quota(trial: Session, needed: Sequence[Member], found: Facts) -> None:
    """The quota of the namespace that is too small, whichever cards are chosen; or whichever are chosen on nodes that the pods may use."""
    books, gang = trial.cluster.card_books, needed[0].gang
    if books is None:
        return
    for asked in (trial.namespace_quotas.least((one.task for one in needed), len(needed)), _memory_there(trial, needed)):
        for quota in books.of(gang.namespace):
            for resource, most in quota.limits.items():
                if asked.get(resource, 0) > most:
                    found.limit(resource, asked[resource], most)
                    found.facts["name"] = quota.name
                    return


def _memory_there(trial: Session, needed: Sequence[Member]) -> Resources:
    """The memory of the smallest cards on nodes that hold such a pod, if all pods are equal."""
    columns, task = trial.columns, needed[0].task
    vendor = VENDORS.of(task.requests)
    if vendor is None or task.cards is None or any(one.task is not task for one in needed):
        return {}
    memory = columns.card_memory[: columns.size][rooms_by_node(trial, needed[0])[0] > 0]
    sizes = [task.cards.memory_on(size) for size in memory[memory > 0].tolist()]
    return {vendor.memory: len(needed) * task.cards.count * min(sizes, default=0)}


_FILL = {
    GANG_TOO_LARGE: _members,
    GANG_KEEPS_APART: _members,
    QUEUE_LIMIT_TOO_SMALL: _limit,
    RESOURCE_QUOTA_TOO_SMALL: _quota,
}
