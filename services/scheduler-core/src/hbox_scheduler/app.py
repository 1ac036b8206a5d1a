"""scheduler-core, wired: feeds in, cycles driven by what they change, proposals out."""

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s, new_id, wall_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import Plan, PolicyFollowed, RunTimesLearned
from hbox_common.model.shards import ONE_SHARD, scheduler_id
from hbox_common.runtime import Health, LongLived, connected, term, turn
from hbox_common.telemetry import record, recording

from . import metrics
from .adapters.extenders import Extenders
from .adapters.feeds import Feeds
from .adapters.policyfile import policy_file
from .adapters.recorder import Recorder
from .adapters.sender import Sender
from .api import Api, DefragmentationAnswer, answer_of
from .core.explain.startestimates import LEAST
from .core.framework.conf import Conf
from .core.plugins.usageweight import usage_weight
from .core.policy.default import default_conf
from .core.policy.registry import check_plugins
from .core.protocol.limits import Limits, Proposals
from .core.queueing.jobs import JobState
from .core.record.record import Head
from .core.record.replay import scheduler_of
from .core.scheduler import Scheduler
from .explainanswer import explain_answer
from .faults import CYCLE_S, Guard, Quarantine, SchedulingFault
from .settings import SchedulerSettings

log = logging.getLogger(__name__)

HEALTH_S = 1.0
#: Least seconds between two measurements of fragmentation, and between two searches for `hbox defrag`.
MEASURE_S, PREVIEW_S = 10.0, 2.0
#: Between two messages about what was learned of run times: what a scheduler that is killed forgets at most.
LEARNED_S = 10.0
#: Seconds between two samples of start estimates: a sample takes the time of a session.
STARTS_S = 30.0
ABOUT = "The scheduler: recent decisions"
#: Seconds between two publications of a shard's policy, which are its sign of life for job routing.
SIGN_OF_LIFE_S = 10.0
#: By how much several plans in a cycle, and more than BURST_PLANS, widen the window to the next.
BACKLOG_WINDOWS, BURST_WINDOWS = 2.5, 5.0
BURST_PLANS = 4
EMPTY_CYCLE_S = 0.001

#: Turns of the event loop between two cycles. A request on the bus takes about five from the socket to its answer; with one turn between cycles it would wait
#: for as many cycles while a backlog is planned.
TURNS = 8


async def run(settings: SchedulerSettings, health: Health) -> None:
    """Run the service until cancelled. After an internal error the scheduler restarts with the offending job or node in quarantine, since its state may be half
    changed. Raises the error if it has no suspects, or if quarantine does not help."""
    quarantine = Quarantine()
    health.remarks["quarantine"] = quarantine.summary
    async with connected(settings) as bus:
        await turn()
        while True:
            fault = await _until_a_fault(SchedulerService(settings, health, bus, quarantine))
            case = quarantine.take(fault, monotonic_s(), wall_s())
            if case is None:
                raise fault
            metrics.FAULTS.inc()
            log.critical(
                "the scheduler failed and begins anew; %s %s is %s",
                case.suspect.kind,
                case.suspect.label,
                case.message,
                exc_info=fault,
            )
            del fault  # and with it all that the scheduler held
            gc.unfreeze()
            gc.collect()
            await asyncio.sleep(quarantine.pause_s())


async def _until_a_fault(service: "SchedulerService") -> SchedulingFault:
    faults: list[SchedulingFault] = []
    try:
        await service.run()
    except* SchedulingFault as group:
        faults += _leaves(group)
    return faults[0]


def _leaves(group: BaseExceptionGroup[SchedulingFault]) -> Iterator[SchedulingFault]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        else:
            yield one


def calm_collector() -> None:
    """Keep Python's cycle collector out of the cycles: what we hold lives long and forms no cycles, a full collection over 10,000 pods takes 25 ms, and one
    of 100,000 young objects, which a few large gangs make, 20 ms. Young objects are looked through between cycles (`collect_young`); of itself the
    collector starts where a single cycle makes more than it can. What jobs and claims are kept is set aside (`LongLived`): in the middle generation, too,
    the objects of 20,000 jobs that wait are a million, and a look at them took half a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, _MIDDLE, _OLD)


def collect_young() -> None:
    """Between two cycles, when no decision is pending: 0.2 us for each young object, as often as there are so many that it takes some milliseconds."""
    young, middle, old = gc.get_count()
    if young > _YOUNG:
        gc.collect(0 if middle <= _MIDDLE else 1 if old <= _OLD else 2)


def between_cycles(scheduler: Scheduler, memory: LongLived) -> None:
    """Collect garbage while no decision is pending: the young objects only; the stored jobs and claims are excluded from later collections."""
    collect_young()
    memory.holds(scheduler.reports.size)


#: Objects made and not freed since the last collection; collections of the young and of the middle generation until the next one is due.
_YOUNG, _MIDDLE, _OLD = 20_000, 50, 100


class SchedulerService:
    """All tasks run on one loop, and the core is only touched between awaits: it needs no lock."""

    def __init__(self, settings: SchedulerSettings, health: Health, bus: Bus, quarantine: Quarantine | None = None) -> None:
        """`quarantine`: of jobs and nodes that are left out."""
        self._health, self._bus = health, bus
        self._quarantine = Quarantine() if quarantine is None else quarantine
        self._shards = settings.divided
        self._shard = settings.shard or ONE_SHARD
        if self._shards.several:
            metrics.SHARD.labels(self._shard).set(1)
            log.info("shard %s: %s", self._shard, self._shards.describe(self._shard))
        check_plugins()
        self._window_s = settings.cycle_window_ms / 1000
        path = settings.scheduler_conf
        self._policy = None if path is None else policy_file(path)
        self._conf = default_conf(settings.policy, settings.defragmentation) if self._policy is None else self._policy.value
        self._unpublished = asyncio.Event()
        self._extenders = Extenders(self._invalidate_sessions)
        head = Head(
            version=version("hbox-scheduler"),
            scheduler=scheduler_id(f"{settings.instance}-{new_id()[:12]}", settings.shard, term()),
            limits=Limits(
                placements=settings.cycle_placements,
                resend_after_s=settings.resend_after_s,
                verdict_every_s=settings.verdict_every_s,
                deadline_s=settings.gang_deadline_s * settings.time_scale,  # the ledger counts it by its wall clock
                clock_rate=settings.time_scale,
                fabric_max_age_s=settings.fabric_max_age_s,
            ),
            conf=self._conf,
            wall=wall_s(),
        )
        self._recorder = None if settings.record is None else Recorder(settings.record, most_mib=settings.record_most_mib)
        ask = self._extenders.ask if self._recorder is None else self._recorder.asking(self._extenders.ask)
        self.scheduler = scheduler_of(head, ask)
        if self._recorder is not None:
            self._recorder.attach(self.scheduler, head)
        self._api = Api(
            self.scheduler.decisions.of,
            self._defragmentation,
            self.scheduler.reports.card_reasons,
            explain=lambda request: explain_answer(
                self.scheduler.reports, self.scheduler.start_times, request, wall=wall_s(), clock=monotonic_s
            ),
            since=head.wall,
            shard=settings.shard,
        )
        for state in set(JobState) - {JobState.SETTLED}:
            metrics.OLDEST.labels(state.value).set_function(partial(self._oldest_s, state))
        self._planned = False  #: whether there was a cycle
        self._measured: tuple[float, int] = (float("-inf"), -1)  #: when fragmentation was, and at which change of nodes
        self._previewed: tuple[float, DefragmentationAnswer] | None = None
        self._previewing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._memory = LongLived()
        self._guard = Guard(lambda: self.scheduler.columns.states)
        self._feeds = Feeds(
            self.scheduler,
            bus,
            instance=settings.instance,
            guard=self._guard,
            quarantine=self._quarantine,
            changed=self._wake.set,
            grown=lambda: self._memory.holds(self.scheduler.reports.size),
            shards=self._shards,
            shard=self._shard,
        )
        self._sender = Sender(self.scheduler, bus, placements_a_message=settings.cycle_placements, shard=self._shard)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._feeds.run())
                group.create_task(self._plan())
                group.create_task(self._watch_health())
                group.create_task(self._extenders.run())
                group.create_task(self._publish_policy())
                group.create_task(self._publish_run_times())
                group.create_task(self._sample_starts())
                group.create_task(self._bus.offer(self._api.endpoints(), version=version("hbox-scheduler"), about=ABOUT))
                if self._policy is not None:
                    group.create_task(self._policy.watch(self._follow))
        finally:
            if self._recorder is not None:
                self._recorder.close()

    async def _defragmentation(self) -> DefragmentationAnswer:
        """Computed at most once in PREVIEW_S, however often it is requested, and job by job: cycles run in between."""
        async with self._previewing:
            if self._previewed is None or monotonic_s() - self._previewed[0] >= PREVIEW_S:
                reports, more = self.scheduler.reports, True
                with self._guard():
                    preview = reports.preview_moves()
                while more:
                    await asyncio.sleep(0)
                    with self._guard(CYCLE_S):
                        more = preview.advance(wall_s())
                await asyncio.sleep(0)
                with self._guard():
                    answer = answer_of(reports.defragmentation(preview))
                self._previewed = monotonic_s(), answer
            return self._previewed[1]

    def _oldest_s(self, state: JobState) -> float:
        """Asked when metrics are read."""
        made = self.scheduler.reports.oldest_job(state)
        return 0.0 if made is None else max(0.0, wall_s() - made)

    def _measure(self) -> None:
        """Fragmentation, when nodes have changed."""
        now, changes = monotonic_s(), self.scheduler.columns.changes.end
        if changes == self._measured[1] or now - self._measured[0] < MEASURE_S:
            return
        self._measured = now, changes
        with self._guard():
            found = self.scheduler.reports.fragmentation()
        metrics.FRAGMENTS.set(found.fragments)
        metrics.FRAGMENTATION.set(found.ratio)
        metrics.IDLE_CARDS.set(found.idle)
        for cards, pods in found.largest.items():
            metrics.LARGEST_GANG.labels(str(cards)).set(pods)

    def _follow(self, conf: Conf) -> None:
        self._conf = conf
        self._unpublished.set()
        moved = self.scheduler.reports.moves_pods
        self.scheduler.follow(conf)
        if self.scheduler.reports.moves_pods and not moved:
            self._feeds.ask_jobs()  # also what those ask for that run already
        self.scheduler.decisions.policy = conf.summary
        self._wake.set()

    async def _publish_policy(self) -> NoReturn:
        """Publish the policy: at the start, and when it changes; if there are several shards, also periodically as a sign of life."""
        while True:
            self._unpublished.clear()
            plugins = self._conf.plugins
            event = PolicyFollowed(
                actions=tuple(self._conf.actions),
                plugins=tuple(plugin.name for plugin in plugins),
                by_conf=self._policy is not None,
                usage_weight=usage_weight(self._conf),
            )
            try:
                await self._bus.publish(event, self._shard)
            except (Unavailable, InvalidRequest) as e:
                log.warning("the policy is published later: %s", e)
                await asyncio.sleep(HEALTH_S)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(SIGN_OF_LIFE_S if self._shards.several else None):
                    await self._unpublished.wait()

    async def _publish_run_times(self) -> NoReturn:
        """Say what was learned of how long pods run, once what others had learned before is read."""
        while True:
            await asyncio.sleep(LEARNED_S)
            if not self._feeds.state_read:
                continue
            known = self.scheduler.run_times
            for shard, learned in known.take_pending().items():
                try:
                    await self._bus.publish(RunTimesLearned(learned=learned), shard)
                except (Unavailable, InvalidRequest) as e:
                    known.put_back(shard)
                    log.warning("learned run times are published later: %s", e)

    async def _sample_starts(self) -> NoReturn:
        """Compare start estimates with what happens, while nothing else is to be done."""
        while True:
            await asyncio.sleep(STARTS_S)
            if not self._feeds.ready or self._wake.is_set():
                continue
            with self._guard():
                self.scheduler.start_times.sample(wall_s())
            covered, outcomes = self.scheduler.start_times.coverage()
            metrics.START_COVERAGE.set(covered / outcomes if outcomes >= LEAST else 0.0)

    def _invalidate_sessions(self) -> None:
        self.scheduler.invalidate_sessions()
        self._wake.set()

    async def _plan(self) -> NoReturn:
        """The first change at once, what follows within the window together."""
        wake_at: float | None = None
        calm = False
        while True:
            await self._wait(wake_at)
            if not self._feeds.ready:
                wake_at = None
                continue
            if not calm:
                calm_collector()
                calm = True
                await asyncio.sleep(0)  # the collector has a turn of its own
            # After a start all claims have to be counted: in slices, between which messages are received.
            while self._advance():  # noqa: ASYNC110  each call does a part of the work
                await asyncio.sleep(0)
            if self._feeds.booking:  # meanwhile claims are read again, and are known in part
                wake_at = None
                continue
            started = monotonic_s()
            began = wall_s()
            for one in self._quarantine.release(started):
                self._feeds.come_back(one)
            with self._guard(CYCLE_S):
                out = self.scheduler.cycle(started, began)
            self._planned = True
            out.verdicts += self._quarantine.verdicts()
            took_s = monotonic_s() - started
            metrics.CYCLE.observe(took_s)
            out.plans = [_traced(plan, began, wall_s()) for plan in out.plans]
            await self._sender.send(out)
            between_cycles(self.scheduler, self._memory)
            if out.repeated:
                self._feeds.ask_jobs()
            wake_at = (
                monotonic_s()
                if out.more
                else min((at for at in (out.wake_at, self._quarantine.next_at()) if at is not None), default=None)
            )
            for _ in range(TURNS):
                await asyncio.sleep(0)
            await asyncio.sleep(max(0.0, started + self._pause_s(out, took_s) - monotonic_s()))

    def _advance(self) -> bool:
        """Count some of the claims that changed. The guard does not cover other tasks, which have guards of their own."""
        with self._guard():
            return self.scheduler.advance()

    def _pause_s(self, out: Proposals, took_s: float) -> float:
        """Between the starts of two cycles. An empty cycle delays no decision; several plans in one cycle indicate that more are coming."""
        if out.more or (not out.plans and took_s < EMPTY_CYCLE_S):
            return 0.0
        if len(out.plans) > BURST_PLANS:
            return BURST_WINDOWS * self._window_s
        return BACKLOG_WINDOWS * self._window_s if len(out.plans) > 1 else self._window_s

    async def _wait(self, until: float | None) -> None:
        """Until something changed, or the time given."""
        if until is None or until > monotonic_s():
            try:
                async with asyncio.timeout(None if until is None else until - monotonic_s()):
                    await self._wake.wait()
            except TimeoutError:
                pass  # the time has come
        self._wake.clear()

    async def _watch_health(self) -> NoReturn:
        conditions = {name: self._health.condition(name) for name in ("bus", "state", "jobs", "books")}
        while True:
            scheduler, feeds = self.scheduler, self._feeds
            wrong = {
                "bus": "" if self._bus.connected else "NATS cannot be reached",
                "state": "" if feeds.state_read else "nodes and queues are not read yet",
                "jobs": "" if feeds.jobs_read else "job-controller has not answered yet",
                "books": scheduler.held if feeds.claims_read and not scheduler.frozen else "quota-ledger is not open yet",
            }
            for name, message in wrong.items():
                if message:
                    conditions[name].bad(message)
                else:
                    conditions[name].ok()
            if self._policy is not None:  # planning continues with the last valid policy: reported, but the service stays ready
                self._health.condition("policy").ok(self._policy.problem)
            for state, count in scheduler.reports.jobs_by_state.items():
                metrics.JOBS.labels(state.value).set(count)
            for kind, number in self._quarantine.counts().items():
                metrics.QUARANTINED.labels(kind.value).set(number)
            metrics.UNANSWERED.set(len(scheduler.reports.outstanding()))
            if self._planned:  # before, a measurement would count all running pods in one turn
                self._measure()
            await asyncio.sleep(HEALTH_S)


def _traced(plan: Plan, start: float, end: float) -> Plan:
    """The plan, under a span of its own where traces are recorded: the cycle that made it, others' plans included."""
    if not recording():
        return plan
    own = record(
        "place",
        traceparent=plan.traceparent,
        start=start,
        end=end,
        queue=plan.queue,
        placements=len(plan.placements),
        nodes=len({placement.node for placement in plan.placements}),
    )
    return plan if own == plan.traceparent else plan.model_copy(update={"traceparent": own})
