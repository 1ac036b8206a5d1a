"""Labels that a pod bears from its binding on, whether or not the API server takes them from a Binding.

One without PodTopologyLabelsAdmission (alpha up to Kubernetes 1.34) leaves a Binding's labels out; what it does is seen on a pod, and looked at again every
CHECK_S, since an API server may be upgraded. Where it leaves them out they are written afterwards, beside the device plugin's work: no turn, and no slot of the
core, waits for it, only the outcome of the binding. A decision without an outcome comes again, so that a binder that is killed here leaves no pod without them.

HAMi's plugin in mode `mig` makes the instance, which takes a card seconds, and then writes its id on the version of the pod that it had read: a label that
comes meanwhile fails the pod. There it is written before the binding, and never after.
"""

import asyncio
from collections.abc import Mapping
from typing import NoReturn

from hbox_common.clock import monotonic_s
from hbox_common.errors import HBoxError
from hbox_common.events import Bind
from hbox_common.kube import KubeClient, label, read_pod
from hbox_common.model import DecisionId

#: For how long one look at a pod tells what the API server does.
CHECK_S = 600.0
#: Writes under way at once: bindings come first.
AT_ONCE = 8


class PodLabels:
    """`run` has to run for anything to be written."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._takes_them = False  #: the API server takes labels from a Binding
        self._looked_at: float | None = None  #: monotonic
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._writing: dict[DecisionId, asyncio.Task[None]] = {}
        self._tasks = asyncio.TaskGroup()

    async def run(self) -> NoReturn:
        """Until cancelled."""
        async with self._tasks:
            await asyncio.get_running_loop().create_future()
        raise AssertionError("cancelled, or failed")

    def owe(self, bind: Bind, labels: Mapping[str, str], *, sent: bool) -> None:
        """The pod of this bind is bound, and has to bear these labels; `sent`: its Binding had them, as far as this call knows."""
        if not labels or bind.id in self._writing or (sent and self._takes_them and self._sure):
            return
        task = self._tasks.create_task(self._write(bind, labels, sent=sent))
        self._writing[bind.id] = task
        task.add_done_callback(lambda _: self._writing.pop(bind.id, None))

    async def first(self, bind: Bind, labels: Mapping[str, str], resource_version: str) -> str:
        """Have the pod bear these labels before it is bound, if its Binding may not bring them. Returns the version of the pod to bind: where they could not be
        written that which was there, and it is bound without them."""
        if not labels or (self._takes_them and self._sure):
            return resource_version
        written = await label(
            self._client,
            namespace=bind.namespace,
            name=bind.pod,
            uid=bind.pod_uid,
            labels=labels,
            resource_version=resource_version,
        )
        return written or resource_version

    def writing(self, decision: DecisionId) -> "asyncio.Task[None] | None":
        """What the outcome of this bind has to wait for."""
        return self._writing.get(decision)

    @property
    def _sure(self) -> bool:
        return self._looked_at is not None and monotonic_s() - self._looked_at < CHECK_S

    async def _write(self, bind: Bind, labels: Mapping[str, str], *, sent: bool) -> None:
        async with self._slots:
            if sent and not self._sure:
                self._looked_at = monotonic_s()
                try:
                    pod = await read_pod(self._client, namespace=bind.namespace, name=bind.pod)
                    self._takes_them = labels.items() <= pod.metadata.labels.items()
                except HBoxError:
                    self._looked_at = None
            if not (sent and self._sure and self._takes_them):
                await label(self._client, namespace=bind.namespace, name=bind.pod, uid=bind.pod_uid, labels=labels)
