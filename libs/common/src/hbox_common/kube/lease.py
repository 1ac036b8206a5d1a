"""Leader election on a coordination.k8s.io Lease: the shell of `election`.

The official client's own cannot create its lease, stamps local time as UTC and has no release (sources: kubernetes-client-lease).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import ceil
from random import Random

from hbox_common.clock import Clock, monotonic_s, wall_s
from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound

from .election import Create, Seen, Take, Wait, decide, is_ours, observe
from .objects import LeaseRecord
from .resources import LEASES
from .status import NotAllowed
from .times import micro_time
from .transport import KubeClient

_log = logging.getLogger(__name__)

#: Seconds between two reads by a standby; between a release and the next read no process is leader.
LOOK_S = 0.5


class Term:
    """One grant of the lease. Stop acting when `lost` is set; stamp `token` on every effect, for a paused process notices too late."""

    def __init__(self, *, token: int, deadline: float, clock: Clock) -> None:
        self.token = token  #: rises with every grant
        self.lost = asyncio.Event()
        self.deadline = deadline  #: monotonic seconds until which the lease is ours without another renewal
        self._clock = clock

    @property
    def held(self) -> bool:
        """Whether it may still be acted upon: true even between two ticks of the loop only while the deadline is ahead."""
        return not self.lost.is_set() and self._clock() < self.deadline


class Lease:
    """A lease that one of several processes holds at a time.

        async with Lease(client, "hbox-system", "quota-ledger", identity).hold() as term:
            ...  # until term.lost

    Deleting the lease object resets its tokens: resources then reject writes until the new tokens exceed the old ones.

    `identity` must be unique to the process (pod name and a random part). A holder gives up after two thirds of `duration_s` without a renewal; others acquire
    the lease after `duration_s`.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        duration_s: float = 15.0,
        *,
        clock: Clock = monotonic_s,
        wall: Clock = wall_s,
        rng: Random | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`report`: called with the reason why the lease cannot be acquired while a permission is missing, and with an empty string once it is not."""
        if duration_s < 1.0:
            raise InvalidRequest(f"lease {namespace}/{name}: {duration_s:g} s is too short", hint="at least 1 s, 15 s is usual")
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        # The API counts in whole seconds: others must wait at least as long as we believe in it.
        self._duration_s = ceil(duration_s)
        self._renew_every_s = self._duration_s / 5
        self._renew_deadline_s = self._duration_s * 2 / 3
        self._retry_s = self._duration_s / 8
        self._clock = clock
        self._wall = wall
        self._rng = rng or Random()
        self._report = report
        self._seen: Seen | None = None
        self._acquired_at = ""

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[Term]:
        """Waits until the lease is ours, renews it meanwhile, and releases it at the end. Waits out an API server that is away.

        Waits also for a right that it lacks. Raises InvalidRequest when the API refuses (no such namespace), and whatever the body raises.
        """
        term = await self._acquire()
        failure: Exception | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                renewal = tasks.create_task(self._renew(term))
                try:
                    yield term
                except Exception as e:  # noqa: BLE001  # raised again below, out of the group that would wrap it
                    failure = e
                finally:
                    renewal.cancel()
        finally:
            await self._release(term)
        if failure is not None:
            raise failure

    # --- taking it

    async def _acquire(self) -> Term:
        lacking = False
        while True:
            try:
                choice = decide(await self._read(), now=self._clock(), retry_s=min(self._retry_s, LOOK_S))
                if isinstance(choice, Wait):
                    if lacking:
                        lacking = False
                        self._report("")
                    await asyncio.sleep(choice.seconds)
                    continue
                self._acquired_at = micro_time(self._wall())
                began = self._clock()
                await self._write(choice)
            except Conflict:
                # Another process was faster, or our own write succeeded without an answer: read again, not all processes at the same moment.
                await asyncio.sleep(self._rng.uniform(0.0, self._retry_s / 4))
            except NotAllowed as e:  # a process that ended of it would be started again and again until the right is given back
                if not lacking:
                    _log.error("lease %s/%s: %s", self._namespace, self._name, e)
                    self._report(str(e))
                lacking = True
                await asyncio.sleep(self._retry_s)
            except InvalidRequest:
                raise
            except HBoxError as e:
                _log.warning("lease %s/%s: %s", self._namespace, self._name, e)
                await asyncio.sleep(self._retry_s)
            else:
                _log.info("lease %s/%s: held by %s, token %d", self._namespace, self._name, self._identity, choice.token)
                return Term(token=choice.token, deadline=began + self._renew_deadline_s, clock=self._clock)

    # --- keeping it

    async def _renew(self, term: Term) -> None:
        """Returns when the term is lost."""
        wait_s = self._renew_every_s
        while not term.lost.is_set():
            await asyncio.sleep(max(0.0, min(wait_s, term.deadline - self._clock())))
            began = self._clock()
            renewed = await self._renew_once(term)
            wait_s = self._renew_every_s if renewed else began + self._retry_s - self._clock()
            if self._clock() >= term.deadline:
                term.lost.set()
        _log.error("lease %s/%s: lost, token %d", self._namespace, self._name, term.token)

    async def _renew_once(self, term: Term) -> bool:
        """Renew once, within at most half of the renew deadline, so that a second attempt is possible: a request on a connection whose peer vanished is never
        answered. Sets `lost` if another holder has the lease."""
        try:
            async with asyncio.timeout(min(term.deadline - self._clock(), self._renew_deadline_s / 2)):
                assert self._seen is not None
                while is_ours(self._seen, identity=self._identity, token=term.token):
                    began = self._clock()
                    try:
                        await self._write(Take(self._seen.resource_version, term.token))
                    except (Conflict, NotFound):
                        # Our own last write may have gone through unheard. Only a write whose time we know moves the deadline, so
                        # a lease that turns out to be ours still has to be written again.
                        await self._read()
                        continue
                    term.deadline = began + self._renew_deadline_s
                    return True
        except (HBoxError, TimeoutError) as e:
            _log.warning("lease %s/%s: not renewed: %s", self._namespace, self._name, str(e) or "no answer in time")
            return False
        term.lost.set()
        return False

    async def _release(self, term: Term) -> None:
        """Best effort: others need not wait for it to run out."""
        try:
            async with asyncio.timeout(self._retry_s):
                while is_ours(seen := self._seen, identity=self._identity, token=term.token):
                    assert seen is not None
                    try:
                        await self._write(Take(seen.resource_version, term.token), holder="")
                    except Conflict:  # a renewal that was cut short on our way out
                        await self._read()
        except (HBoxError, TimeoutError) as e:
            _log.info("lease %s/%s: not released, it will run out: %s", self._namespace, self._name, e)

    # --- the object

    async def _read(self) -> Seen | None:
        try:
            record = (await self._client.expected("GET", LEASES.path(self._namespace, self._name))).decode(LeaseRecord)
        except NotFound:
            self._seen = None
            return None
        self._remember(record)
        return self._seen

    async def _write(self, choice: Create | Take, *, holder: str | None = None) -> None:
        now = micro_time(self._wall())
        metadata = {"namespace": self._namespace, "name": self._name}
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._identity if holder is None else holder,
                "leaseDurationSeconds": self._duration_s,
                "acquireTime": self._acquired_at,
                "renewTime": now,
                "leaseTransitions": choice.token,
            },
        }
        if isinstance(choice, Take):
            metadata["resourceVersion"] = choice.resource_version
            answer = await self._client.expected("PUT", LEASES.path(self._namespace, self._name), body=body)
        else:
            answer = await self._client.expected("POST", LEASES.path(self._namespace), body=body)
        self._remember(answer.decode(LeaseRecord))

    def _remember(self, record: LeaseRecord) -> None:
        spec = record.spec
        self._seen = observe(
            self._seen,
            Seen(
                resource_version=record.metadata.resource_version,
                holder=spec.holder_identity or "",
                duration_s=float(spec.lease_duration_seconds or self._duration_s),
                transitions=spec.lease_transitions or 0,
                at=self._clock(),
            ),
        )


async def release_for(client: KubeClient, namespace: str, name: str, holder: str) -> bool:
    """Release the lease of a holder whose process is known to have ended; called by its supervisor, so that others need not wait for the lease to expire.

    False if another process holds it. Raises HBoxError if it cannot be read or written.
    """
    path = LEASES.path(namespace, name)
    while True:
        lease = await client.json("GET", path)
        if lease.get("spec", {}).get("holderIdentity") != holder:
            return False
        lease["spec"]["holderIdentity"] = ""
        try:
            await client.json("PUT", path, body=lease)
        except Conflict:  # a renewal that the holder had sent before it ended: there are no more than those under way
            continue
        return True
