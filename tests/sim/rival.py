"""A second scheduler with errors: while a fault of kind `rival` lasts, it proposes plans in the name of the real one.

The ledger judges plans, whatever their scheduler believes; so a rival breaks no promise. It places waiting jobs anywhere, without a look at what is free, sends
plans of the real scheduler again under new ids, before them or much later, and makes mistakes in them. What the ledger accepts of these is a decision like any
other: the real scheduler learns of it by the feed of claims.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from hbox_cli.audit import AuditNode, read_node
from hbox_common.errors import HBoxError
from hbox_common.events import JobsPending, Placement, Plan, PlansProposed, Victim, decode, encode, headers
from hbox_common.model import CardId, CardSlice, ClaimId, Epoch, Job, JobId, NodeName, PlanId, PodUid, QueueName
from hbox_common.model.annotations import CLAIM, QUEUE_NAME
from hbox_sandbox.api.resources import NODES, PODS

from .loop import EPOCH_S

if TYPE_CHECKING:
    from .world import World

EVERY_S = 0.25
#: Messages of each type that are remembered.
_REMEMBERED = 40
_PROPOSED, _PENDING = PlansProposed.subject("x").removesuffix("x"), JobsPending.subject("x").removesuffix("x")


class Rival:
    """Reads the bus from its beginning on; proposes while `begin` was called more often than `end`."""

    def __init__(self, world: "World") -> None:
        self._world, self._chance = world, Random(f"rival {world.plan.seed}")
        self._active = self._made = 0
        self._plans: deque[tuple[dict[str, str], bytes]] = deque(maxlen=_REMEMBERED)
        self._jobs: deque[tuple[dict[str, str], bytes]] = deque(maxlen=_REMEMBERED)
        world.broker.on_message.append(self._see)

    def begin(self) -> None:
        self._active += 1
        if self._active == 1:
            self._world.later(self._world.now + EVERY_S, self._turn)

    def end(self) -> None:
        self._active -= 1

    def _see(self, subject: str, head: dict[str, str], body: bytes) -> None:
        if subject.startswith(_PENDING):
            self._jobs.append((head, body))
            if self._active and self._plans and self._chance.random() < 0.5:
                self._place_one(self._read_jobs(self._jobs[-1]))
        elif subject.startswith(_PROPOSED) and not head["Nats-Msg-Id"].startswith("rival-"):
            self._plans.append((head, body))
            if self._active and self._chance.random() < 0.4:
                proposed = self._read(self._plans[-1])
                self._propose(proposed, [self._altered(plan) for plan in proposed.plans if plan.placements])

    def _turn(self) -> None:
        if not self._active:
            return
        self._world.later(self._world.now + EVERY_S, self._turn)
        if not self._plans or not self._world.broker.up:
            return
        if self._jobs and self._chance.random() < 0.7:
            self._place_one(self._read_jobs(self._chance.choice(self._jobs)))
            return
        earlier = self._read(self._chance.choice(self._plans))
        self._propose(earlier, [self._named(plan) for plan in earlier.plans])

    def _place_one(self, jobs: Iterable[Job]) -> None:
        waiting, nodes = [job for job in jobs if job.tasks], list(self._nodes())
        if waiting and nodes:
            plan = self._mistaken(self._placed(self._chance.choice(waiting), nodes))
            self._propose(self._read(self._plans[-1]), [plan])

    # --- messages

    @staticmethod
    def _read(message: tuple[dict[str, str], bytes]) -> PlansProposed:
        found = decode(message[1], message[0], [PlansProposed])
        assert isinstance(found, PlansProposed)
        return found

    @staticmethod
    def _read_jobs(message: tuple[dict[str, str], bytes]) -> tuple[Job, ...]:
        found = decode(message[1], message[0], [JobsPending])
        assert isinstance(found, JobsPending)
        return found.jobs

    def _propose(self, like: PlansProposed, plans: list[Plan]) -> None:
        if not plans:
            return
        epoch = like.epoch
        if self._chance.random() < 0.1:
            epoch = Epoch(max(0, epoch - 1))
        self._made += 1
        event = PlansProposed(scheduler=like.scheduler, epoch=epoch, seen=like.seen, plans=tuple(plans))
        head = headers(event, source="/hbox/rival", message_id=f"rival-{self._made}", now=EPOCH_S + self._world.now)
        self._world.broker.publish(PlansProposed.subject(like.scheduler), head, encode(event))

    def _named(self, plan: Plan) -> Plan:
        self._made += 1
        return plan.model_copy(update={"id": PlanId(f"rival-{self._made}")})

    # --- plans

    def _nodes(self) -> Iterator[AuditNode]:
        for version in self._world.api.store.collection(NODES.storage).entries.values():
            try:
                yield read_node(version.load())
            except (HBoxError, json.JSONDecodeError):
                continue

    def _slices(self, node: AuditNode, count: int, cut: Callable[[int], CardSlice]) -> tuple[CardSlice, ...]:
        """So many cards of a node, whatever is on them."""
        ids = self._chance.sample(list(node.cards), min(count, len(node.cards)))
        return tuple(replace(cut(node.cards[card].memory_mib), index=node.cards[card].index, card=card) for card in ids)

    def _placed(self, job: Job, nodes: list[AuditNode]) -> Plan:
        """A job's waiting pods, anywhere."""
        placements, requests = [], []
        for number, task in enumerate(job.tasks):
            requests.append(task.requests)
            asked = task.cards
            for pod in task.pods:
                node = self._chance.choice(nodes)
                slices: tuple[CardSlice, ...] = ()
                if asked is not None:
                    slices = self._slices(
                        node,
                        asked.count,
                        lambda mib, asked=asked: CardSlice(0, asked.cores, asked.memory_on(mib)),  # type: ignore[misc]
                    )
                placements.append(
                    Placement(
                        pod_uid=pod.uid,
                        pod=pod.name,
                        resource_version=pod.resource_version,
                        node=NodeName(node.name),
                        generation=0,  # type: ignore[arg-type]
                        slices=slices,
                        requests=number,
                        rank=pod.rank,
                    )
                )
        self._made += 1
        return Plan(
            id=PlanId(f"rival-{self._made}"),
            job=job.id,
            namespace=job.namespace,
            name=job.name,
            queue=job.queue,
            priority=job.priority,
            min_member=job.min_member,
            bound=job.bound,
            requests=tuple(requests),
            placements=tuple(placements),
            preemptable=job.preemptable,
            created_at=job.created_at,
        )

    def _altered(self, plan: Plan) -> Plan:
        """A plan of the real scheduler, before it: as it is, with a member too few, or on cards of a pod that was placed before."""
        placements = plan.placements
        if len(placements) > 1 and self._chance.random() < 0.5:
            placements = placements[:-1]
        elif self._chance.random() < 0.6 and (taken := self._taken(placements[0])) is not None:
            placements = (replace(placements[0], node=taken.node, slices=taken.slices), *placements[1:])
        return self._named(plan.model_copy(update={"placements": placements}))

    def _taken(self, like: Placement) -> Placement | None:
        """Where an earlier pod is that asked for the same cards."""
        for message in reversed(self._plans):
            for plan in self._read(message).plans:
                for one in plan.placements:
                    same = [(s.cores, s.memory_mib, s.slots) for s in one.slices]
                    if (
                        one.slices
                        and one.pod_uid != like.pod_uid
                        and same == [(s.cores, s.memory_mib, s.slots) for s in like.slices]
                    ):
                        return one
        return None

    def _mistaken(self, plan: Plan) -> Plan:
        """With one of the mistakes that a scheduler can make, or none."""
        first, rest = plan.placements[0], plan.placements[1:]
        match self._chance.randrange(14):
            case 0:
                return plan.model_copy(update={"placements": (replace(first, node=NodeName("no-node")), *rest)})
            case 1 if first.slices:
                cut = replace(first.slices[0], card=CardId("GPU-of-no-node"))
                return plan.model_copy(update={"placements": (replace(first, slices=(cut, *first.slices[1:])), *rest)})
            case 2:
                return plan.model_copy(update={"placements": (first, first, *rest)})
            case 3:
                return plan.model_copy(update={"queue": QueueName("spot" if plan.queue != "spot" else "dev")})
            case 4:
                return plan.model_copy(update={"job": JobId(f"{plan.job}-x")})
            case 5 if rest:
                return plan.model_copy(update={"placements": rest})
            case 6:
                return plan.model_copy(update={"victims": (Victim(claim=ClaimId("gone"), pod_uid=PodUid("gone")),)})
            case 7:
                much = tuple({what: amount * 1000 for what, amount in one.items()} for one in plan.requests)
                return plan.model_copy(update={"requests": much})
            case 8 | 9 if (victim := self._protected(plan)) is not None:
                return plan.model_copy(update={"victims": (victim,)})
        return plan

    def _protected(self, plan: Plan) -> Victim | None:
        """A pod of the plan's queue whose class is the highest."""
        for version in self._world.api.store.collection(PODS.storage).entries.values():
            if not version.fields["spec.nodeName"]:
                continue
            raw = version.load()
            notes = raw["metadata"].get("annotations") or {}
            if CLAIM in notes and notes.get(QUEUE_NAME) == plan.queue and raw["spec"].get("priorityClassName") == "high":
                return Victim(claim=ClaimId(notes[CLAIM]), pod_uid=PodUid(version.uid))
        return None
