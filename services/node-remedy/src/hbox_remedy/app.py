"""The node-remedy process: reads the decisions about its node, executes each at most once, and publishes how it ended.

A decision is checked, planned and published as begun, then written to the journal, and then executed. If the program is killed, the next start ends what was
interrupted: as failed, or as done if it was the reboot. An end that was not published is published then.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import NoReturn

from hbox_common.bus import Bus, Delivery
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.events import RemediesDecided, RemedyObserved
from hbox_common.model import NodeName
from hbox_common.model.bounds import TEXT_BYTES, is_name, sanitized
from hbox_common.model.remedy import Decision, Outcome, Verb
from hbox_common.runtime import Health

from . import metrics
from .adapters.commands import Commands
from .adapters.deadline import within
from .adapters.journal import Entry, Journal
from .adapters.machine import Machine
from .core.admission import exceeded, ignored
from .core.dcgm import diagnosis
from .core.plan import Command, Diagnose, Ended, Plan, Step, Terminate, failed, refused, skipped
from .settings import Mode, RemedySettings
from .verbs import Verbs

log = logging.getLogger(__name__)

#: Seconds between two readings of the decisions without a notice.
READ_S = 30.0
RETRY_S = 2.0
PUBLISH_S = 10.0
WATCH_S, LOOK_S = 1.0, 0.2
#: For a node to go down after the command that reboots it, and for a terminated process to end.
REBOOTS_S, TERMINATES_S = 600.0, 15.0
BUG_REPORT_S = 300.0
#: In `state`: while it is there, nothing is executed.
STOP = "stop"


async def run(settings: RemedySettings, health: Health) -> None:
    """The service, until cancelled. Raises InvalidRequest where no node is named or the journal is not readable."""
    if not is_name(settings.node_name):
        raise InvalidRequest("HBOX_NODE_NAME names no node", hint="set it to spec.nodeName of the pod, as the chart does")
    journal = Journal(settings.state, now=wall_s())
    machine, commands = Machine(settings.host_root), Commands(settings.enter)
    try:
        await end_interrupted(journal, machine.boot_id(), commands)
        async with Bus.connect(
            settings.nats_url,
            name=settings.service,
            instance=settings.instance,
            access=settings.nats_access,
            user=settings.nats_user,
            ensure=False,
        ) as bus:
            await NodeRemedy(settings, health, bus, journal, machine=machine, commands=commands).run()
    finally:
        journal.close()


async def end_interrupted(journal: Journal, boot_id: str, commands: Commands) -> None:
    """End the remedies that a kill or a boot interrupted. Needs no broker: the node is restored at once."""
    for entry in journal:
        if entry.ended is not None:
            continue
        if entry.boot_id == boot_id and entry.decision.verb is Verb.REBOOT and _shuts_down(entry):
            continue
        if entry.decision.verb is Verb.DIAGNOSE:  # states nothing about the card
            ended = refused("interrupted: node-remedy ended")
        elif entry.boot_id == boot_id:
            restore = tuple(Command(args) for args in entry.restore)
            ended = await restored(failed("interrupted: node-remedy ended"), restore, commands)
        elif entry.decision.verb is Verb.REBOOT:
            ended = Ended(Outcome.DONE, "the node has booted")
        else:
            ended = failed("interrupted: the node has booted")
        _end(journal, entry.decision, ended)


def _shuts_down(entry: Entry) -> bool:
    """Whether a node that has not booted since may still go down."""
    return 0 <= wall_s() - entry.at < REBOOTS_S


async def restored(ended: Ended, restore: tuple[Command, ...], commands: Commands) -> Ended:
    """The end of a remedy after its `restore`; a card that is not as before its reset is not repaired."""
    for command in restore:
        result = await commands.run(command)
        if not result.good:
            ended = failed(f"{ended.message}; then {command}: {result.why}".removeprefix("; then "))
    return ended


def _end(journal: Journal, decision: Decision, ended: Ended) -> None:
    try:
        journal.end(decision.id, ended, at=wall_s())
    except Unavailable as e:
        log.error("the end of %s is published, and unknown after a restart: %s", decision.id, e)
    _note(decision, ended)


def _note(decision: Decision, ended: Ended) -> None:
    metrics.REMEDIES.labels(decision.verb, ended.outcome).inc()
    log.warning(
        "%s of %s is %s: %s", decision.verb, decision.entity, ended.outcome, ended.message, extra={"decision": decision.id}
    )


class NodeRemedy:
    """One remedy at a time."""

    def __init__(
        self, settings: RemedySettings, health: Health, bus: Bus, journal: Journal, *, machine: Machine, commands: Commands
    ) -> None:
        self._settings, self._health, self._bus, self._journal = settings, health, bus, journal
        self._node = NodeName(settings.node_name)
        self._machine, self._commands = machine, commands
        self._verbs = Verbs(settings, machine, commands)
        self._boot_id = machine.boot_id()
        self._decided: RemediesDecided | None = None
        self._stored_at = 0.0  #: of `_decided`, by the broker's clock
        self._unpublished = {entry.decision.id for entry in journal if entry.ended is not None and not entry.published}
        self._ignored: dict[str, str] = {}  #: reason by decision, to log each once
        self._changed, self._stopping = asyncio.Event(), asyncio.Event()

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._bus.follow_last(RemediesDecided, self._node, handle=self._on_decided, every_s=READ_S))
            group.create_task(self._watch())
            await self._work()

    async def _watch(self) -> NoReturn:
        on_bus = self._health.condition("bus")
        while True:
            on_bus.ok() if self._bus.connected else on_bus.bad("NATS cannot be reached")
            await asyncio.sleep(WATCH_S)

    async def _on_decided(self, delivery: Delivery | None) -> None:
        event = None if delivery is None else delivery.event
        assert event is None or isinstance(event, RemediesDecided)
        self._decided, self._stored_at = event, 0.0 if delivery is None else delivery.stored_at
        self._ignored = {one.id: self._ignored[one.id] for one in self._decisions if one.id in self._ignored}
        # A repeated decision gets its result again.
        self._unpublished |= {one.id for one in self._decisions if one.id in self._journal and self._journal[one.id].ended}
        self._changed.set()

    @property
    def _decisions(self) -> tuple[Decision, ...]:
        return () if self._decided is None else self._decided.decisions

    @property
    def _now(self) -> float:
        """Seconds since the epoch; a node whose clock is behind the broker's executes no expired decision."""
        return max(wall_s(), self._stored_at)

    async def _work(self) -> NoReturn:
        while True:
            self._changed.clear()
            try:
                await self._publish_ends()
                for decision in () if self._reboots() else self._decisions:
                    await self._take(decision)
                    await self._publish_ends()
                pause_s = READ_S
            except Unavailable as e:
                log.warning("a remedy waits: %s", e)
                pause_s = RETRY_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _reboots(self) -> bool:
        """Whether a reboot that an earlier process began is under way; ends it if the node did not go down."""
        for entry in list(self._journal):
            if entry.ended is None and entry.decision.verb is Verb.REBOOT:
                if _shuts_down(entry):
                    return True
                _end(self._journal, entry.decision, failed(f"the node did not go down within {REBOOTS_S:g} s"))
                self._unpublished.add(entry.decision.id)
                self._changed.set()
        return False

    async def _take(self, decision: Decision) -> None:
        """Execute a decision that has no result yet. Raises Unavailable if it has to wait."""
        if decision.id in self._journal:
            return
        if reason := self._ignored_as(decision):
            if self._ignored.get(decision.id) != reason:
                metrics.IGNORED.labels(reason).inc()
                log.warning("decision %s is ignored: %s", decision.id, reason)
            self._ignored[decision.id] = reason
            return
        plan = self._refusal(decision) or await self._verbs.plan(decision)
        if isinstance(plan, Plan) and self._settings.rule(decision.verb).mode is Mode.DRY_RUN:
            dry = f"dry run: {plan}"
            plan = skipped(dry) if decision.verb is Verb.DIAGNOSE else refused(dry)
        if isinstance(plan, Ended):
            self._settle(decision, plan)
            return
        if not self._valid(decision):
            return  # the remedy before it, and planning, take time
        await self._publish(decision, Ended(Outcome.BEGUN, str(plan)), wall_s())
        try:
            restore = tuple(command.args for command in plan.restore)
            self._journal.add(Entry(decision, self._boot_id, wall_s(), restore=restore))
        except Unavailable as e:
            self._settle(decision, refused(str(e)))
            return
        log.warning("%s of %s begins: %s", decision.verb, decision.entity, plan, extra={"decision": decision.id})
        executing = asyncio.ensure_future(self._execute(decision, plan))
        try:
            ended = await asyncio.shield(executing)
        except asyncio.CancelledError:
            if plan.reboots:  # the node shuts down
                executing.cancel()
                raise
            self._stopping.set()
            log.warning("the program ends after %s of %s", decision.verb, decision.entity)
            _end(self._journal, decision, await executing)
            self._unpublished.add(decision.id)
            with suppress(Unavailable):
                await self._publish_ends()
            raise
        _end(self._journal, decision, ended)
        self._unpublished.add(decision.id)

    def _valid(self, decision: Decision) -> bool:
        """Whether the last message has the decision; health-monitor renews its expiry."""
        return any(one.id == decision.id and not self._ignored_as(one) for one in self._decisions)

    def _ignored_as(self, decision: Decision) -> str:
        if self._decided is None:
            return "withdrawn"
        return ignored(self._decided, decision, node=self._node, boot_id=self._boot_id, now=self._now)

    def _refusal(self, decision: Decision) -> Ended | None:
        rule = self._settings.rule(decision.verb)
        if rule.mode is Mode.OFF:
            off = f"{decision.verb} is off on this node"
            return skipped(off) if decision.verb is Verb.DIAGNOSE else refused(off)
        if (self._settings.state / STOP).exists():
            return refused(f"{self._settings.state / STOP} exists on the node")
        begun = (entry.at for entry in self._journal if entry.begun and entry.decision.verb is decision.verb)
        why = exceeded(rule.limit(decision.verb), begun, now=wall_s())
        return refused(why) if why else None

    async def _execute(self, decision: Decision, plan: Plan) -> Ended:
        environment = {
            "HBOX_NODE": self._node,
            "HBOX_VERB": decision.verb.value,
            "HBOX_ENTITY": decision.entity,
            "HBOX_INCIDENT": decision.incident,
            "HBOX_ATTEMPT": str(decision.attempt),
        }
        ended = Ended(Outcome.DONE)
        for step in plan.steps:
            ended = await self._step(step, environment)
            if ended.outcome is not Outcome.DONE:
                break
        if ended.outcome is Outcome.DONE and plan.reboots:
            await asyncio.sleep(REBOOTS_S)
            ended = failed(f"the node did not go down within {REBOOTS_S:g} s")
        if decision.verb is Verb.RESET and ended.outcome is Outcome.FAILED and self._failed_before(decision):
            await self._report_bug(decision)
        return await restored(ended, plan.restore, self._commands)

    async def _step(self, step: Step, environment: dict[str, str]) -> Ended:
        if isinstance(step, Terminate):
            return await self._terminate(step.program)
        if isinstance(step, Diagnose):
            return await self._diagnose(step.command)
        result = await self._commands.run(step, environment)
        if result.good:
            return Ended(Outcome.DONE, result.line)
        if any(text.lower() in result.output.lower() for text in step.refused_by):
            return refused(f"{step}: {result.why}")
        return failed(f"{step}: {result.why}")

    async def _diagnose(self, command: Command) -> Ended:
        """dcgmi's exit status has several meanings, its document one."""
        result = await self._commands.run(command)
        if result.status is None:
            return Ended(Outcome.FAILED, result.why, failures=(result.why,))
        found = diagnosis(result.output)
        if found.failures:
            return Ended(Outcome.FAILED, f"{len(found.failures)} tests failed", failures=found.failures)
        if found.error:
            return refused(f"DCGM has no result: {found.error}")
        return Ended(Outcome.DONE, f"{found.passed} results are good") if found.passed else skipped("DCGM skipped all tests")

    async def _terminate(self, program: str) -> Ended:
        running = partial(self._machine.running, program)
        try:
            before = set(await within(running))
            for pid in before:
                await within(partial(self._machine.terminate, pid, program))
            until = monotonic_s() + TERMINATES_S
            while before & set(await within(running)):
                if monotonic_s() >= until:
                    return failed(f"{program} did not end within {TERMINATES_S:g} s")
                await asyncio.sleep(LOOK_S)
        except Unavailable as e:
            return failed(str(e))
        return Ended(Outcome.DONE)

    def _failed_before(self, decision: Decision) -> bool:
        """Whether a reset for the same incident has failed: a reboot follows, which loses the driver's state."""
        same = (
            entry
            for entry in self._journal
            if (entry.decision.incident, entry.decision.verb) == (decision.incident, Verb.RESET)
        )
        return any(entry.ended is not None and entry.ended.outcome is Outcome.FAILED for entry in same)

    async def _report_bug(self, decision: Decision) -> None:
        """Not while the program stops: the grace period is for the remedy itself."""
        if not self._settings.bug_reports:
            return
        file = f"{self._settings.bug_reports}/nvidia-bug-report-{decision.incident}.log"
        if self._stopping.is_set():
            log.warning("bug report %s: not written, since the program ends", file)
            return
        command = Command(("nvidia-bug-report.sh", "--output-file", file), BUG_REPORT_S)
        writing, stopping = asyncio.create_task(self._commands.run(command)), asyncio.create_task(self._stopping.wait())
        await asyncio.wait((writing, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if writing.done():
            log.warning("bug report %s: %s", file, "written" if writing.result().good else writing.result().why)
        else:
            writing.cancel()
            await asyncio.wait((writing,))
            log.warning("bug report %s: incomplete, since the program ends", file)

    def _settle(self, decision: Decision, ended: Ended) -> None:
        """Record why a decision does not begin. Without a journal the record lasts until the program ends."""
        now = wall_s()
        try:
            self._journal.add(Entry(decision, self._boot_id, now, begun=False, ended=ended, ended_at=now))
        except Unavailable as e:
            log.error("the refusal of %s is published, and unknown after a restart: %s", decision.id, e)
        _note(decision, ended)
        self._unpublished.add(decision.id)

    async def _publish_ends(self) -> None:
        for id in sorted(self._unpublished):
            entry = self._journal[id]
            assert entry.ended is not None
            await self._publish(entry.decision, entry.ended, entry.ended_at, boot_id=entry.boot_id)
            self._unpublished.discard(id)
            if not entry.published:
                try:
                    self._journal.published(id)
                except Unavailable as e:
                    log.error("the result of %s will be published again after a restart: %s", id, e)

    async def _publish(self, decision: Decision, ended: Ended, at: float, *, boot_id: str = "") -> None:
        observed = RemedyObserved(
            node=self._node,
            boot_id=boot_id or self._boot_id,
            decision=decision,
            outcome=ended.outcome,
            holders=tuple(sanitized(holder, 64) for holder in ended.holders[:64]),
            message=sanitized(ended.message, TEXT_BYTES),
            failures=ended.failures,
            at=at,
        )
        try:
            await self._bus.publish(observed, self._node, timeout_s=PUBLISH_S)
        except HBoxError as e:
            raise Unavailable(f"the result of {decision.id} is not published yet: {e}") from e
