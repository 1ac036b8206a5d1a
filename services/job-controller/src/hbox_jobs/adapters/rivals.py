"""Other schedulers with one of HBox's scheduler names.

Two schedulers with one name bind the same pods, each by its own state: nodes are over-booked, and gangs are split. If HBox is configured with another
scheduler's default name (`volcano`, `default-scheduler`), it does not start while that scheduler is alive, and reports it if it starts later. A scheduler is
alive if a pod of its deployment runs in its namespace, or if its lease is renewed: observed to change, independent of clocks. Objects that any user may create
anywhere (pods with its labels, Events in its name) are no evidence. A scheduler without lease and pod, such as a local process, is only detected by its
bindings: HBox pods get nodes that HBox did not choose.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import HBoxError, InvalidRequest, NotFound, Unavailable
from hbox_common.kube import LEASES, PODS, KubeClient, LeaseRecord
from hbox_common.kube.times import epoch_s
from hbox_common.model import SCHEDULER_NAME
from hbox_common.runtime import Condition

from .. import metrics
from ..core.renewals import Liveness, Renewals
from ..core.views import PodView

log = logging.getLogger(__name__)

#: Between two looks.
LOOK_S = 5.0
START_LOOK_S = 0.5
#: Minimum seconds between two messages about pods bound by other schedulers, with their number.
LOG_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Rival:
    """Where one shows that it is alive, and how it is stopped."""

    title: str
    namespace: str
    lease: str
    label: str
    stop: str


def rival_of(name: str, volcano_namespace: str) -> Rival | None:
    """Whose name it is by birth; None for a name of ours."""
    if name == SCHEDULER_NAME:
        return None
    if name == "default-scheduler":
        return Rival("kube-scheduler", "kube-system", "kube-scheduler", "component=kube-scheduler", "stop kube-scheduler")
    stop = f"kubectl -n {volcano_namespace} scale deployment volcano-scheduler --replicas=0"
    return Rival("Volcano's scheduler", volcano_namespace, "volcano", "app=volcano-scheduler", stop)


class _Meta(msgspec.Struct):
    name: str
    deletionTimestamp: str | None = None  # noqa: N815  Kubernetes' spelling


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    status: _Status = msgspec.field(default_factory=_Status)


class _Pods(msgspec.Struct):
    items: list[_Pod]


class Rivals:
    """`names`: those that we answer to."""

    def __init__(self, client: KubeClient, names: Collection[str], *, volcano_namespace: str) -> None:
        self._client = client
        found = {name: rival_of(name, volcano_namespace) for name in names}
        self._rivals = {name: rival for name, rival in found.items() if rival is not None}
        self._renewals = {name: Renewals() for name in self._rivals}
        self._unreadable: set[str] = set()
        self._bound = 0
        self._logged_at: float | None = None

    @property
    def any(self) -> bool:
        """Whether one of the names is another scheduler's by birth."""
        return bool(self._rivals)

    async def refuse(self) -> None:
        """Returns once none is alive. Raises InvalidRequest where one is, and waits while the API server cannot say."""
        for name, rival in self._rivals.items():
            while True:
                try:
                    alive, sure = await self._alive(name, rival)
                except Unavailable as e:
                    log.warning("whether %s is alive is not known yet: %s", rival.title, e)
                    await asyncio.sleep(LOOK_S)
                    continue
                if alive:
                    message = f"HBOX_SCHEDULER_NAMES has {name}, and {rival.title} is alive: {alive}"
                    raise InvalidRequest(message, hint=f"{rival.stop}, or leave {name} out")
                if sure:
                    break
                await asyncio.sleep(START_LOOK_S)

    async def watch(self, condition: Condition) -> NoReturn:
        """Report in `condition`, until cancelled, whether another scheduler is alive."""
        reported = ""
        while True:
            alive = ""
            try:
                for name, rival in self._rivals.items():
                    if found := (await self._alive(name, rival))[0]:
                        alive = f"{rival.title} places pods of {name} too: {found}; {rival.stop}"
            except Unavailable:
                alive = reported
            if alive and alive != reported:
                log.error("%s", alive)
            reported = alive
            if reported:
                condition.bad(reported)
            else:
                condition.ok()
            await asyncio.sleep(LOOK_S)

    def pod(self, old: PodView | None, new: PodView, now: float) -> None:
        """Check a version of an HBox pod. The binder writes the claim in the call that binds the pod: another scheduler bound a pod that has a node and no
        claim."""
        if old is None or old.node or not new.node or new.claim:
            return
        metrics.STRANGERS.inc()
        self._bound += 1
        if self._logged_at is not None and now - self._logged_at < LOG_EVERY_S:
            return
        self._logged_at = now
        message = f"{new.namespace}/{new.name} to {new.node}"
        log.error(
            "another scheduler binds pods of HBox, %d so far, the last %s: is another scheduler with this name running?",
            self._bound,
            message,
        )

    async def _alive(self, name: str, rival: Rival) -> tuple[str, bool]:
        """What shows that it is, or nothing; and whether that is sure. Raises Unavailable."""
        path = PODS.path(rival.namespace)
        listed = (await self._client.expected("GET", path, params={"labelSelector": rival.label})).decode(_Pods)
        for pod in listed.items:
            if pod.status.phase == "Running" and pod.metadata.deletionTimestamp is None:
                return f"its pod {rival.namespace}/{pod.metadata.name} runs", True
        record: LeaseRecord | None = None
        try:
            record = (await self._client.expected("GET", LEASES.path(rival.namespace, rival.lease))).decode(LeaseRecord)
        except NotFound:
            pass
        except Unavailable:
            raise
        except HBoxError as e:
            if name not in self._unreadable:
                self._unreadable.add(name)
                log.warning("the lease of %s cannot be read, its pods are looked at alone: %s", rival.title, e)
        state = self._renewals[name].look(*_renewal_of(record), now=monotonic_s())
        message = f"the lease {rival.namespace}/{rival.lease} is renewed" if state is Liveness.ALIVE else ""
        return message, state is not Liveness.UNKNOWN


def _renewal_of(record: LeaseRecord | None) -> tuple[str, float, float]:
    """Holder and renewal of a lease (empty: no holder), its duration, and its age by the local clock, in seconds."""
    if record is None or not record.spec.holder_identity:
        return "", 0.0, 0.0
    spec = record.spec
    try:
        age_s = wall_s() - epoch_s(spec.renew_time or "")
    except InvalidRequest:
        age_s = 0.0
    return f"{spec.holder_identity} {spec.renew_time}", float(spec.lease_duration_seconds or 0), age_s
