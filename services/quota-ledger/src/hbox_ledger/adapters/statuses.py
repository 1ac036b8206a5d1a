"""Writes the statuses of Queue objects, and their faults as Events.

Theory of operation. WINDOW_S after a queue changed, the writer compares its object in the informer with the expected status and writes only the difference.
No turn waits for that: queues wait in `_due`, each once, and are written one after the other at a limited rate. After a restart the writer compares all
queues.

The ledger is HBox's only writer of these statuses. It writes a state only on the object version from which it computed the state, so that it never overwrites
a command to close a queue. The watch may deliver our own write before the response arrives: versions that arrive during a write are judged once our version is
known. If another writer repeatedly changes our fields (Volcano's scheduler or controllers in the same cluster), ours are written less and less often, at last
every PATIENCE_S; in between the other writer's values remain.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from hbox_common.clock import monotonic_s
from hbox_common.errors import Conflict, HBoxError, NotFound, Unavailable
from hbox_common.events import GroupCounts
from hbox_common.kube import QUEUES, EventWriter, Involved, KubeClient, patch_status
from hbox_common.kube import Queue as QueueObject
from hbox_common.model import QueueName, Resources
from hbox_common.pacing import backoff_s

from .. import metrics
from ..core.queue_status import COUNTS, QueueStatus, change, contested

log = logging.getLogger(__name__)

WINDOW_S = 1.0
RETRY_S = 2.0
#: After this long one that was not found is looked for again, if it is still there for the informer.
MISSING_S = 15.0
#: After this long a contested status is written again, and one that was refused.
PATIENCE_S = 300.0

FAULTY, SOUND, STOPPED, LASTS = "QueueFaulty", "QueueSound", "QueueBudgetSpent", "QueueBudgetLasts"


@dataclass(slots=True)
class _Object:
    """A queue's object. `ours`: the status that we wrote last, `seen` once the informer delivered that version. `meanwhile`: versions that arrived during a
    write;
    None if no write is in progress.
    """

    uid: str
    version: str
    status_seen: QueueStatus
    ours: QueueStatus | None = None
    our_version: str = ""
    seen: bool = False
    meanwhile: list[tuple[str, QueueStatus]] | None = None
    contests: int = 0
    contested_at: float = 0.0


@dataclass(frozen=True, slots=True)
class _Truth:
    total: Resources
    faults: str
    stopped: str


class StatusWriter:
    """`per_s`: writes a second at most; 0 = none at all."""

    def __init__(self, client: KubeClient, *, instance: str, per_s: float, window_s: float = WINDOW_S) -> None:
        self._client, self._per_s, self._window_s = client, per_s, window_s
        self._events = EventWriter(client, component="hbox", instance=instance)
        self._objects: dict[QueueName, _Object] = {}
        self._truths: dict[QueueName, _Truth] = {}
        self._counts: dict[str, Mapping[QueueName, GroupCounts]] = {}  #: by shard
        self._noted: dict[QueueName, tuple[str, str]] = {}  #: faults and stop in the last Events
        self._due: dict[QueueName, float] = {}
        self._wake = asyncio.Event()

    # --- inputs

    def update(self, name: QueueName, total: Resources, *, faults: str, stopped: str) -> None:
        """What a queue uses with all below it, and what is wrong with it."""
        self._truths[name] = _Truth(total, faults, stopped)
        self._look(name)

    def counted(self, shard: str, counts: Mapping[QueueName, GroupCounts]) -> None:
        """The PodGroups of all queues of a shard."""
        before = self._counts.get(shard)
        self._counts[shard] = counts
        for name in self._objects:
            if before is None or before.get(name) != counts.get(name):
                self._look(name)

    def seen(self, found: QueueObject) -> None:
        """A queue's object in a new version."""
        name, meta, status = QueueName(found.metadata.name), found.metadata, found.status
        status_seen = QueueStatus(status.state, status.allocated, {field: getattr(status, field) for field in COUNTS})
        known = self._objects.get(name)
        if known is None or known.uid != meta.uid:
            self._objects[name] = _Object(meta.uid, meta.resource_version, status_seen)
            self._noted.pop(name, None)
            self._look(name)
            return
        known.version, known.status_seen = meta.resource_version, status_seen
        if known.meanwhile is not None:
            known.meanwhile.append((meta.resource_version, status_seen))
        else:
            self._judge(name, known, meta.resource_version, status_seen)
        self._look(name)

    def gone(self, name: QueueName) -> None:
        """The object was deleted."""
        for kept in (self._objects, self._truths, self._noted, self._due):
            kept.pop(name, None)

    # What it does.

    async def run(self) -> None:
        """Until cancelled."""
        if self._per_s > 0:
            await self._write_all()

    async def _write_all(self) -> NoReturn:
        while True:
            self._wake.clear()
            name, due = min(self._due.items(), key=lambda item: item[1], default=(None, 0.0))
            if name is None or due > monotonic_s():
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if name is None else due - monotonic_s()):
                        await self._wake.wait()
                continue
            del self._due[name]
            if await self._settle(name):
                await asyncio.sleep(1 / self._per_s)

    def _look(self, name: QueueName) -> None:
        """Have it compared, soon."""
        if name in self._due or name not in self._objects or name not in self._truths:
            return
        self._later(name, self._window_s)

    def _later(self, name: QueueName, seconds: float) -> None:
        known = self._objects[name]
        patience = backoff_s(known.contests, base_s=1.0, cap_s=PATIENCE_S) if known.contests else 0.0
        self._due[name] = max(monotonic_s() + seconds, known.contested_at + patience)
        self._wake.set()

    async def _settle(self, name: QueueName) -> bool:
        """Write what has to be written of a queue. Returns whether the API server was asked for anything."""
        known, truth = self._objects.get(name), self._truths.get(name)
        if known is None or truth is None:
            return False
        shards = self._counts.values()
        counts = next((some[name] for some in shards if name in some), GroupCounts()).model_dump() if shards else None
        patch = change(known.status_seen, truth.total, counts)
        reported = self._noted.get(name, ("", ""))
        if not patch and reported == (truth.faults, truth.stopped):
            return False
        try:
            if patch:
                await self._write(name, known, patch)
            await self._note(name, known, truth, reported)
        except NotFound as e:
            # The object is deleted, as the informer will report; or its definition has no status subresource.
            metrics.STATUSES.labels("again").inc()
            log.debug("the status of queue %s: %s", name, e)
            self._again(name, known, MISSING_S)
        except Conflict:
            metrics.STATUSES.labels("again").inc()
            self._again(name, known, self._window_s)
        except Unavailable as e:
            metrics.STATUSES.labels("again").inc()
            self._again(name, known, e.retry_after_s or RETRY_S)
        except HBoxError as e:
            metrics.STATUSES.labels("refused").inc()
            log.warning("the status of queue %s cannot be written, trying again in %d s: %s", name, PATIENCE_S, e)
            self._again(name, known, PATIENCE_S)
        return True

    def _again(self, name: QueueName, known: _Object, seconds: float) -> None:
        if self._objects.get(name) is known and name not in self._due:
            self._later(name, seconds)

    async def _write(self, name: QueueName, known: _Object, patch: dict[str, Any]) -> None:
        fence = known.version if "state" in patch else None
        before, wanted = known.status_seen, _patched(known.status_seen, patch)
        known.meanwhile, version = [], ""
        try:
            answer = await patch_status(
                self._client, QUEUES, namespace=None, name=name, status=patch, uid=known.uid, resource_version=fence
            )
            version = answer["metadata"]["resourceVersion"]
            metrics.STATUSES.labels("written").inc()
        finally:
            came, known.meanwhile = known.meanwhile, None
            if not version:  # no answer, or a refusal: the write may be among what came all the same
                version = next((each for each, status_seen in came if not contested(wanted, status_seen)), "")
            # What came before our version was written over what we had written last, what came after it over this.
            split = next((number for number, (each, _) in enumerate(came) if each == version), 0)
            for each, status_seen in came[:split]:
                self._judge(name, known, each, status_seen)
            if version:
                known.our_version, known.ours, known.seen = version, wanted, known.version == version
                if known.status_seen is before:
                    known.status_seen = wanted
            for each, status_seen in came[split:]:
                self._judge(name, known, each, status_seen)

    def _judge(self, name: QueueName, known: _Object, version: str, status_seen: QueueStatus) -> None:
        """Decide whether a version of the object is ours, or another writer changed our fields."""
        if version == known.our_version:
            known.seen = True
        elif known.seen and known.ours is not None and (fields := contested(known.ours, status_seen)):
            self._contested(name, known, fields)

    async def _note(self, name: QueueName, known: _Object, truth: _Truth, reported: tuple[str, str]) -> None:
        about = Involved(f"{QUEUES.group}/{QUEUES.version}", "Queue", "", name, known.uid)
        for before, now, (bad, good) in (
            (reported[0], truth.faults, (FAULTY, SOUND)),
            (reported[1], truth.stopped, (STOPPED, LASTS)),
        ):
            if now != before:
                message = now or f"queue {name}: all is well again"
                await self._events.write(about, reason=bad if now else good, message=message, warning=bool(now))
        self._noted[name] = (truth.faults, truth.stopped)

    def _contested(self, name: QueueName, known: _Object, fields: list[str]) -> None:
        now = monotonic_s()
        known.contests = known.contests + 1 if now - known.contested_at < 2 * PATIENCE_S else 1
        known.contested_at, known.seen = now, False
        metrics.STATUSES.labels("contested").inc()
        if known.contests == 1:
            log.warning(
                "another writer changes %s in the status of queue %s: the ledger writes it less often", ", ".join(fields), name
            )


def _patched(status_seen: QueueStatus, patch: Mapping[str, Any]) -> QueueStatus:
    """The status after the patch."""
    allocated = {**status_seen.allocated, **patch.get("allocated", {})}
    return replace(
        status_seen,
        state=patch.get("state", status_seen.state),
        allocated={name: written for name, written in allocated.items() if written is not None},
        counts={name: patch.get(name, count) for name, count in ({**dict.fromkeys(COUNTS), **status_seen.counts}).items()},
    )
