"""What the ledger and job-controller know of queues, read once."""

import difflib
from dataclasses import dataclass

from hbox_common.errors import NotFound
from hbox_common.events import NodeStateChanged, PolicyFollowed, QueueStateChanged
from hbox_common.model import Claim, Job, Queue, QueueName, QueueTree, models_on
from hbox_common.model.devices import VENDORS
from hbox_common.views.fairshares import Memory
from hbox_common.views.queues import tree_of
from hbox_ledger.dryrun import ChangedQueue, DryRunAnswer, DryRunRequest

from ..platform.layout import Running
from ..session import bus_of, claims_of, jobs_of, last_values


@dataclass(frozen=True, slots=True)
class Reading:
    """The tree with its use, the live claims and the jobs at about one moment."""

    tree: QueueTree
    claims: tuple[Claim, ...]
    jobs: tuple[Job, ...]

    def named(self, name: str) -> Queue:
        """The queue. Raises NotFound with the nearest names."""
        queue = self.tree.of(QueueName(name))
        if queue is None:
            near = difflib.get_close_matches(name, list(self.tree), 3)
            hint = f"did you mean {' or '.join(near)}?" if near else "`hbox queue ls` lists them"
            raise NotFound(f"there is no queue {name}", hint=hint)
        return queue

    def holding(self, name: QueueName) -> list[Claim]:
        """The claims in the queue and all below it."""
        return [claim for claim in self.claims if name in self.tree.path(claim.queue)]


async def memory_of(running: Running) -> Memory:
    """Recent usage of queues, and its weight, from the last values on the bus. Raises Unavailable."""
    async with bus_of(running) as bus:
        values = await last_values(bus, [QueueStateChanged, NodeStateChanged, PolicyFollowed])
    recent: dict[QueueName, float] = {}
    cards, half_life_h, weight = 0, 0.0, 0.0
    for event in values:
        match event:
            case QueueStateChanged(gone=False):
                recent[event.queue.name] = event.recent_cards
                half_life_h = max(half_life_h, event.half_life_h)
            case NodeStateChanged(node=node) if not node.gone:
                cards += len(node.cards) or VENDORS.asked(node.allocatable)
            case PolicyFollowed():
                weight = event.usage_weight
    return Memory(cards, recent, half_life_h, weight)


async def dry_run(running: Running, *changed: ChangedQueue) -> DryRunAnswer:
    """The ledger's answer about the effects of this change. Raises Unavailable, InvalidRequest."""
    async with bus_of(running) as bus:
        return await bus.call("quota-ledger", "dry-run", DryRunRequest(queues=changed), DryRunAnswer)


async def models_of(running: Running) -> set[str]:
    """The card models of the cluster, as resources, from the last values on the bus. Raises Unavailable."""
    async with bus_of(running) as bus:
        values = await last_values(bus, [NodeStateChanged])
    nodes = [event.node for event in values if isinstance(event, NodeStateChanged) and not event.node.gone]
    return set().union(*map(models_on, nodes))


async def read(running: Running) -> Reading:
    """Asks the ledger and job-controller. Raises Unavailable."""
    async with bus_of(running) as bus:
        pages = await claims_of(bus)
        jobs, _, _ = await jobs_of(bus)
    tree = tree_of(
        [queue for page in pages for queue in page.queues],
        {name: used for page in pages for name, used in page.used.items()},
    )
    tree.divide({QueueName(name): share for page in pages for name, share in page.shares.items()})
    return Reading(
        tree,
        tuple(claim for page in pages for claim in page.claims),
        tuple(jobs),
    )
