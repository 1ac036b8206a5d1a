"""Jobs of checks: health-monitor decides that the operator's Job has to run on a node, the binder creates it once and publishes how it ended.

What is decided is a state, the last message of each node; nothing is stored here:

    event                                      effect
    -----------------------------------------  ---------------------------------------------------------------------------------
    a Job is decided                           created under the name that follows from its decision; if it exists, it is read
    it has the condition Complete or Failed    published once; the Job stays for a day, with its log
    it is not decided any more                 deleted, unless it has ended
    the API server refuses it, or its          published as refused: it states nothing about the hardware
    namespace is not set
    the API server does not answer             tried again
    the binder is killed                       the next one reads the last messages, and finds the Jobs by their names. One that was
                                               withdrawn meanwhile runs to its deadline

The binder's rights are those of one namespace, and a Job of another owner under the name of a decision is refused.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeAlias

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.clock import wall_s
from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound, Unavailable
from hbox_common.events import GateJobObserved, GateJobsDecided
from hbox_common.health.gatejob import GateJob, JobOutcome, rendered
from hbox_common.kube import JOBS, KubeClient
from hbox_common.model import NodeName
from hbox_common.model.bounds import sanitized

from .. import metrics
from ..core import LONGEST_MESSAGE

log = logging.getLogger(__name__)

Key: TypeAlias = tuple[NodeName, str]

#: Seconds between two reads of a Job, and until a call that failed is repeated.
READ_S, RETRY_S = 2.0, 5.0
CALL_S = 10.0


class GateJobs:
    """`namespace`: where Jobs are created; empty: nowhere."""

    def __init__(self, client: KubeClient, bus: Bus, *, namespace: str) -> None:
        self._client, self._bus, self._namespace = client, bus, namespace
        self._wanted: dict[Key, GateJob] = {}
        self._started: set[Key] = set()
        self._ended: set[Key] = set()
        self._ran: set[Key] = set()  #: started ones whose pod was seen ready
        self._withdrawn: dict[Key, GateJob] = {}
        self._wake = asyncio.Event()

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work())
            await self._bus.follow([GateJobsDecided], self.handle, start=Start.LAST_PER_SUBJECT, writers_only=True)

    async def handle(self, deliveries: Sequence[Delivery]) -> None:
        """What has to run on nodes now."""
        for delivery in deliveries:
            event = delivery.event
            assert isinstance(event, GateJobsDecided)
            jobs = {(event.node, job.id): job for job in event.jobs}
            for key in [key for key in self._wanted if key[0] == event.node and key not in jobs]:
                job = self._wanted.pop(key)
                if key not in self._ended:
                    self._withdrawn[key] = job  # its creation may be under way
                self._ended.discard(key)
            self._wanted |= jobs
        self._wake.set()

    async def _work(self) -> NoReturn:
        while True:
            self._wake.clear()
            pause_s = None if self._ended >= self._wanted.keys() and not self._withdrawn else READ_S
            for key, job in list(self._withdrawn.items()):
                pause_s = READ_S
                if key in self._wanted or await self._deleted(job):
                    self._withdrawn.pop(key, None)
                    self._started.discard(key)
                    self._ran.discard(key)
            for key, job in list(self._wanted.items()):
                if key in self._ended or key not in self._wanted:
                    continue
                try:
                    await self._advance(key, job)
                except Unavailable as e:
                    log.warning("Job %s on %s: %s", job.id, key[0], e, extra={"node": key[0]})
                    pause_s = RETRY_S
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()

    async def _advance(self, key: Key, job: GateJob) -> None:
        """Raises Unavailable."""
        if not self._namespace:
            await self._publish(key, job, JobOutcome.REFUSED, "the binder has no namespace for Jobs: set gate_namespace")
            return
        try:
            wanted = rendered(job, node=key[0], namespace=self._namespace)
            found = await self._find_or_create(key, job, wanted)
        except Conflict as e:
            raise Unavailable(str(e)) from e
        except InvalidRequest as e:
            await self._publish(key, job, JobOutcome.REFUSED, e.message)
            return
        if found is None:
            await self._publish(key, job, JobOutcome.REFUSED, "the Job was deleted")
            return
        if _identity(found) != _identity(wanted):
            await self._publish(
                key, job, JobOutcome.REFUSED, f"the Job {self._namespace}/{job.name} is not the one that was decided"
            )
            return
        if _has_run(found):
            self._ran.add(key)
        outcome, message = _end_of(found)
        if outcome is JobOutcome.FAILED and message.startswith(_DEADLINE) and key not in self._ran:
            outcome, message = JobOutcome.REFUSED, f"its pod did not run before the deadline ({message})"
        if outcome is not None:
            await self._publish(key, job, outcome, message)
        elif key not in self._started:
            await self._publish(key, job, JobOutcome.STARTED, f"{self._namespace}/{job.name}")

    async def _find_or_create(self, key: Key, job: GateJob, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """The Job; None if it was deleted since it was seen. Raises HBoxError."""
        path = JOBS.path(self._namespace, job.name)
        try:
            found: dict[str, Any] = await self._client.json("GET", path, timeout_s=CALL_S)
            return found
        except NotFound:
            if key in self._started:
                return None
        created: dict[str, Any] = await self._client.json("POST", JOBS.path(self._namespace), body=wanted, timeout_s=CALL_S)
        log.info("Job %s/%s checks %s of %s", self._namespace, job.name, job.entity, key[0], extra={"node": key[0]})
        return created

    async def _deleted(self, job: GateJob) -> bool:
        """Whether it is deleted, with its pod, or has to stay."""
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        try:
            found = await self._client.json("GET", JOBS.path(self._namespace, job.name), timeout_s=CALL_S)
            if _end_of(found)[0] is None:
                body["preconditions"] = {"uid": found["metadata"]["uid"]}
                path = JOBS.path(self._namespace, job.name)
                await self._client.json("DELETE", path, body=body, timeout_s=CALL_S, expect=(200, 202))
                log.info("Job %s/%s is withdrawn", self._namespace, job.name)
        except NotFound:
            return True
        except Unavailable as e:
            log.warning("Job %s/%s cannot be deleted yet: %s", self._namespace, job.name, e)
            return False
        except HBoxError as e:
            log.error("Job %s/%s is not deleted, and runs to its deadline: %s", self._namespace, job.name, e)
        return True

    async def _publish(self, key: Key, job: GateJob, outcome: JobOutcome, message: str) -> None:
        """Raises Unavailable."""
        observed = GateJobObserved(
            node=key[0], job=job.id, outcome=outcome, message=sanitized(message, LONGEST_MESSAGE), at=wall_s()
        )
        await self._bus.publish(observed, key[0], message_id=observed.own_id)
        metrics.GATE_JOBS.labels(outcome).inc()
        if outcome is JobOutcome.STARTED:
            self._started.add(key)
        else:
            self._ended.add(key)
            self._started.discard(key)
            self._ran.discard(key)
            log.info("Job %s on %s: %s %s", job.id, key[0], outcome, message, extra={"node": key[0]})


#: Reason of a Job that Kubernetes ended at its deadline.
_DEADLINE = "DeadlineExceeded"


def _identity(job: dict[str, Any]) -> object:
    """What the API server leaves as it was written: node, what the Job is about, and the programs."""
    try:
        pod, notes = job["spec"]["template"]["spec"], job["metadata"]["annotations"]
        programs = [(one["image"], one.get("command"), one.get("args")) for one in pod["containers"]]
        return pod["nodeName"], notes["hbox.io/incident"], notes["hbox.io/entity"], programs
    except (KeyError, TypeError, AttributeError):
        return None


def _has_run(job: dict[str, Any]) -> bool:
    """Whether its pod is ready: images are there, and its containers run."""
    status = job.get("status")
    ready = status.get("ready") if isinstance(status, dict) else None
    return isinstance(ready, int) and ready > 0


def _end_of(job: dict[str, Any]) -> tuple[JobOutcome | None, str]:
    """None: it has not ended. A Job that Kubernetes suspends or has not started yet has not either."""
    status = job.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, dict) and one.get("status") == "True" and one.get("type") in ("Complete", "Failed"):
            text = ": ".join(str(one[name]) for name in ("reason", "message") if one.get(name))
            return (JobOutcome.SUCCEEDED if one["type"] == "Complete" else JobOutcome.FAILED), text
    return None, ""
