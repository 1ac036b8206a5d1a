"""Equal parts of kept objects as one object.

A decoded message has its own copy of every name, request and slice. Services that keep a hundred thousand claims, pods or jobs keep a few hundred different
requests, and each name of a node or queue many times. These parts are never changed: the classes are frozen, and
their mappings are only read.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from .claim import Claim
from .job import Job, PodFact

T = TypeVar("T", bound=Hashable)
V = TypeVar("V", bound=Hashable)

#: Known parts at most. Then the table begins again, and what is kept keeps its parts.
MOST = 1 << 17


class Shared:
    """The known parts of one reader."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._known)

    def part(self, part: T) -> T:
        """An equal part that is known, else this one."""
        if len(self._known) >= MOST:
            self._known.clear()
        known: T = self._known.setdefault(part, part)
        return known

    def mapping(self, entries: Mapping[str, V]) -> dict[str, V]:
        """An equal mapping in the same order that is known, else a copy of this one."""
        key = tuple(entries.items())
        known: dict[str, V] | None = self._known.get(key)
        return known if known is not None else self._known.setdefault(key, dict(entries))

    def claim(self, claim: Claim) -> Claim:
        """An equal claim of shared parts."""
        part = self.part
        return Claim(  # not `replace`, which takes twice as long in all
            claim.id,
            claim.pod_uid,
            part(claim.namespace),
            claim.pod,
            claim.job,
            claim.plan,
            part(claim.queue),
            claim.priority,
            part(claim.node),
            self.mapping(claim.requests),
            tuple(map(part, claim.slices)),
            claim.state,
            claim.reason,
            claim.min_member,
            claim.preemptable,
            claim.created_at,
            claim.claimed_at,
            claim.protected_until,
            self.mapping(claim.models),
            part(claim.pool),
        )

    def pod(self, pod: PodFact) -> PodFact:
        """An equal pod of shared parts."""
        return replace(
            pod,
            namespace=self.part(pod.namespace),
            queue=self.part(pod.queue),
            node=self.part(pod.node),
            requests=self.mapping(pod.requests),
            slices=tuple(map(self.part, pod.slices)),
            priority_class=self.part(pod.priority_class),
            allocated=self.mapping(pod.allocated),
        )

    def job(self, job: Job) -> Job:
        """An equal job of shared parts; its tasks are its own."""
        return replace(
            job,
            namespace=self.part(job.namespace),
            queue=self.part(job.queue),
            priority_class=self.part(job.priority_class),
            annotations=self.mapping(job.annotations),
            min_task_member=self.mapping(job.min_task_member),
        )
