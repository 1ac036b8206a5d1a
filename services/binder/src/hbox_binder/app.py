"""The binder, wired: decisions of the bus in, calls to Kubernetes, outcomes out.

It may be killed at any moment, and nothing has to be written down for that:

- killed before the call: the decision was not acknowledged, so the broker delivers it again, and so does the ledger, whose outbox keeps it
  open until a result is recorded;
- killed after the call, or with the call on its way: the repeated Binding names the resourceVersion of before, so the API server refuses it,
  and the pod then shows that it is bound, with our claim on it: BOUND, once. Fences and evictions are the same when repeated;
- killed after the outcome was published, before the acknowledgement: the outcome is published twice, and the ledger's inbox takes one;
- killed while looking into a decision that was reported as UNKNOWN and acknowledged: the ledger keeps the claim and sends the decision again;
- killed, and started with an old decision in the stream whose claim was revoked meanwhile: the pod bears the fence (`core.fence`).
"""

import asyncio
import logging
from collections.abc import Sequence

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.errors import HBoxError
from hbox_common.events import BindDecided, EvictDecided, NodeDecided, NodeRests, NodeStateChanged, PodsAsked
from hbox_common.kube import KubeClient
from hbox_common.runtime import Condition, Health, connected, turn

from .adapters.epochs import Epochs, asking
from .adapters.gatejobs import GateJobs
from .adapters.nodes import NodeWorker
from .adapters.podlabels import AT_ONCE as LABELS_AT_ONCE
from .adapters.pooltaints import PoolTaints
from .adapters.reading import AT_ONCE, PodDesk
from .core import Binder, NodeCards
from .settings import BinderSettings
from .worker import Worker

log = logging.getLogger(__name__)

HEALTH_S = 1.0
STARTING_S = 0.05

#: Messages of binds that are handled concurrently, each with all binds of one turn of the ledger. A reader requests one at a time: a message behind another
#: would wait until its outcomes are published (p90 from decision to bind 28 ms that way, 12 ms this way).
BIND_READERS = 24
EVICTION_READERS = 2
BATCH = 16

#: A consumer that has to be made anew begins so long ago, not days: the ledger sends what has no outcome again, within two minutes.
RESENT_S = 600.0


async def run(settings: BinderSettings, health: Health) -> None:
    """The service, until cancelled."""
    async with (
        KubeClient.connect(
            settings.kubeconfig, user_agent="hbox-binder", connections=settings.concurrency + AT_ONCE + LABELS_AT_ONCE + 8
        ) as client,
        connected(settings) as bus,
    ):
        await turn()
        epochs = Epochs(asking(bus, settings.instance))
        on_kube, on_rights = health.condition("kube"), health.condition("rights")
        cards = NodeCards()
        worker = Worker(
            Binder(settings.limits(), takes_turns=cards.takes_turns),
            client,
            bus,
            on_kube,
            on_rights,
            taken_grace_s=settings.taken_grace_s,
            notice_s=settings.notice_s,
            epochs=epochs,
            cards=cards,
            volume_timeout_s=settings.volume_timeout_s,
            lock_expires_s=settings.node_lock_expires_s,
        )
        nodes_known = asyncio.Event()

        async def see(deliveries: Sequence[Delivery]) -> None:
            await taints.handle([one for one in deliveries if isinstance(one.event, NodeStateChanged)])
            await worker.see(deliveries)

        async def bind_decided() -> None:
            await nodes_known.wait()  # a pod's card annotations depend on its node
            await bus.consume("binder-binds", [BindDecided], worker.handle, batch=1, from_last_s=RESENT_S)

        nodes = NodeWorker(client, bus)
        taints = PoolTaints(client, on=settings.pool_taints)
        async with asyncio.TaskGroup() as group:
            group.create_task(_watch_health(health, client, bus, worker))
            group.create_task(worker.run())
            for _ in range(EVICTION_READERS):
                group.create_task(
                    bus.consume("binder-evictions", [EvictDecided], worker.handle, batch=BATCH, from_last_s=RESENT_S)
                )
            for _ in range(BIND_READERS):
                group.create_task(bind_decided())
            group.create_task(bus.consume("binder-nodes", [NodeDecided], nodes.handle, last_of_each=True))
            group.create_task(
                bus.follow(
                    [NodeStateChanged, NodeRests],
                    see,
                    start=Start.LAST_PER_SUBJECT,
                    on_ready=nodes_known.set,
                    writers_only=True,
                )
            )
            group.create_task(taints.run())
            group.create_task(GateJobs(client, bus, namespace=settings.gate_namespace).run())
            group.create_task(bus.serve(PodsAsked, PodDesk(client).answer))


async def _watch_health(health: Health, client: KubeClient, bus: Bus, worker: Worker) -> None:
    on_kube, on_bus = health.condition("kube"), health.condition("bus")
    while True:
        if bus.connected:
            on_bus.ok()
        else:
            on_bus.bad("NATS cannot be reached")
        worker.report_rights()
        if not on_kube.good:
            await _probe(client, on_kube)
        # Of an API server that does not answer, or not now, is not asked more often for it.
        await asyncio.sleep(HEALTH_S if health.ready or not on_kube.good else STARTING_S)


async def _probe(client: KubeClient, on_kube: Condition) -> None:
    """Report that the API server answers, if the worker makes no calls or had errors: otherwise its calls report it."""
    try:
        await client.json("GET", "/version")
    except HBoxError as e:
        on_kube.bad(str(e))
    else:
        on_kube.ok()
