"""Runs seeds: one in this process, or many in processes of their own, and finds the few faults that a violation needs."""

import importlib
import os
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from . import coverage
from .faults import Fault
from .loop import Standstill
from .world import Plan, World, prepared


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. `at`: the virtual second."""

    rule: str
    at: float
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    plan: Plan
    faults: tuple[Fault, ...]
    digest: str
    bound: int
    waiting: int
    violations: list[Violation]
    virtual_s: float
    processor_s: float
    counts: dict[str, int] = field(default_factory=dict)
    reached: frozenset[str] = frozenset()  #: see `coverage`

    @property
    def rules(self) -> frozenset[str]:
        return frozenset(one.rule for one in self.violations)


def run(plan: Plan, faults: Sequence[Fault], *, trace: Path | None = None) -> Outcome:
    """Run a seed here, which may be done once in a process: the services' tasks are never cleaned up."""
    began = time.process_time()
    with ExitStack() as stack:
        file = None if trace is None else stack.enter_context(trace.open("w"))
        world = stack.enter_context(prepared(plan, faults, trace=file))
        reached: set[str] = set()
        stack.enter_context(coverage.noted(reached))
        judge = _judge(world)
        if judge is not None:
            world.api.on_write.append(judge.after_event)
        violations: list[Violation] = []
        try:
            world.loop.run_until_complete(world.main())
        except Standstill as e:
            violations.append(Violation("standstill", world.now, str(e)))
        if world.api.failed is not None:
            raise world.api.failed
        if judge is not None:
            violations += [Violation(one.rule, one.at, one.message) for one in judge.at_end()]
        violations += [Violation("crash", at, f"{service} ended: {why}") for at, service, why in world.ended]
        if file is not None:
            file.flush()
        return Outcome(
            plan=plan,
            faults=tuple(faults),
            digest=world.digest.hex(),
            bound=world.pods_bound,
            waiting=world.pods_waiting,
            violations=violations,
            virtual_s=world.now,
            processor_s=time.process_time() - began,
            reached=frozenset(reached | set(coverage.of_ledger(world.ledger_path))),
            counts={
                "messages": world.broker.messages,
                "requests": world.api.requests,
                "writes": world.api.writes,
                "commits": world.disk.commits,
                "turns": world.loop.turns,
                "restarts": world.restarts,
            },
        )


def _judge(world: World) -> Any:
    """`tests.sim.judge`, where it is there."""
    if find_spec("tests.sim.judge") is None:
        return None
    return importlib.import_module("tests.sim.judge").Judge(world)


def apart(work: Callable[[], Outcome]) -> Callable[[], Outcome]:
    """Start `work` in a forked process; the returned function waits for its result. Raises what `work` raised."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            found: Outcome | BaseException = work()
        except BaseException as e:  # whatever it is belongs to the parent
            found = RuntimeError(f"{type(e).__name__}: {e}")
        with os.fdopen(writer, "wb") as out:
            pickle.dump(found, out)
        os._exit(0)
    os.close(writer)

    def result() -> Outcome:
        with os.fdopen(reader, "rb") as source:
            body = source.read()
        os.waitpid(pid, 0)
        if not body:
            raise RuntimeError("the process of a seed was killed")
        found = pickle.loads(body)
        if isinstance(found, BaseException):
            raise found
        assert isinstance(found, Outcome)
        return found

    return result


def run_all(plans: Sequence[tuple[Plan, Sequence[Fault]]], *, processes: int = 2) -> Iterator[Outcome]:
    """Outcomes in the order of `plans`, `processes` at a time. An error of the simulation itself is a violation of the rule `simulation`."""
    waiting: list[tuple[Plan, Sequence[Fault], Callable[[], Outcome]]] = []
    for plan, faults in plans:
        if len(waiting) >= processes:
            yield _outcome(*waiting.pop(0))
        waiting.append((plan, faults, apart(lambda plan=plan, faults=faults: run(plan, faults))))  # type: ignore[misc]
    for one in waiting:
        yield _outcome(*one)


def _outcome(plan: Plan, faults: Sequence[Fault], result: Callable[[], Outcome]) -> Outcome:
    try:
        return result()
    except RuntimeError as e:
        return Outcome(plan, tuple(faults), "", 0, 0, [Violation("simulation", 0.0, str(e))], 0.0, 0.0)


def again(outcome: Outcome) -> Callable[[Sequence[Fault]], Outcome]:
    """Runs the seed of an outcome with other faults, in a process of its own."""
    return lambda faults: _outcome(outcome.plan, faults, apart(lambda: run(outcome.plan, faults)))


def minimised(outcome: Outcome, attempt: Callable[[Sequence[Fault]], Outcome], *, most: int = 40) -> Outcome:
    """The outcome with as few faults as still break one of the same promises, by delta debugging in at most `most` attempts."""
    left, best, parts = most, outcome, 2
    while len(best.faults) > 1:
        size = -(-len(best.faults) // parts)
        for begin in range(0, len(best.faults), size):
            if left <= 0:
                return best
            left -= 1
            found = attempt(best.faults[:begin] + best.faults[begin + size :])
            if found.rules & outcome.rules:
                best, parts = found, max(2, parts - 1)
                break
        else:
            if size == 1:
                return best
            parts = min(len(best.faults), 2 * parts)
    if best.faults and left > 0 and (found := attempt(())).rules & outcome.rules:
        return found
    return best
