"""A client of the broker that publishes garbage, and well-formed plans, facts and decisions that it has no right to publish."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgpack
from nats.js import JetStreamContext

from hbox_common.clock import monotonic_s, new_id
from hbox_common.events import (
    REGISTRY,
    BindDecided,
    ClaimsAsked,
    ClaimsChanged,
    ClaimsPage,
    Event,
    EvictDecided,
    Placement,
    Plan,
    PlansProposed,
    PodsObserved,
    Stream,
    Victim,
    encode,
)
from hbox_common.model import Claim, ClaimState, Epoch, Generation, Index, JobId, PlanId, PodFact, PodPhase, PodUid

from ..broker import admin_bus, client_of

#: Prefix of the ids of these messages, which are expected as dead letters.
LIAR = "liar-"

#: Claims attacked per round, and the seconds between two rounds.
VICTIMS, PAUSE_S = 3, 1.0

_BAD_EPOCH = 2**63 - 1
_READ = [
    t
    for t in REGISTRY.values()
    if t.about.stream not in (None, Stream.EVENTS, Stream.CLOUD_EVENTS, Stream.DEAD) and set(t.about.readers) != {"cli"}
]


async def lie(running: Mapping[str, Any], hold_s: float) -> None:
    """Publish false messages round after round, for `hold_s` seconds."""
    until = monotonic_s() + hold_s
    client = await client_of(running)
    try:
        jetstream = client.jetstream()
        async with admin_bus(running) as bus:
            pages = await bus.ask(ClaimsAsked(asker="liar"), ClaimsPage, timeout_s=20)
        posted = [claim for page in pages for claim in page.claims if claim.state is ClaimState.POSTED]
        while monotonic_s() < until:
            await _garbage(jetstream)
            for claim in posted[:VICTIMS]:
                await _rob(jetstream, pages[0].epoch, claim)
            posted = posted[VICTIMS:]
            await _foretell(jetstream, pages[0].epoch)
            await asyncio.sleep(PAUSE_S)
    finally:
        await client.close()


async def _garbage(jetstream: JetStreamContext) -> None:
    for event in _READ:
        for body in (b"\xc1\xc1\xc1", msgpack.packb([1, 2, 3])):
            await _publish(jetstream, event.subject(*["0"] * event.about.subject.count("{")), event, body)


async def _rob(jetstream: JetStreamContext, epoch: Epoch, claim: Claim) -> None:
    """Try to take the claim's cards: by plans of the highest priority for another job and for its own, and by a report that its pod is gone."""
    plan = Plan(
        id=PlanId(new_id()), job=JobId(new_id()), namespace=claim.namespace, name="lie", queue=claim.queue, priority=2**31,
        min_member=1, bound=0, requests=(claim.requests,),
        placements=(Placement(PodUid("x"), "x", "1", claim.node, Generation(1), claim.slices),),
        victims=(Victim(claim=claim.id, pod_uid=claim.pod_uid),),
    )  # fmt: skip
    for said in (plan, plan.model_copy(update={"id": PlanId(new_id()), "job": claim.job})):
        await _say(jetstream, PlansProposed(scheduler="liar", epoch=epoch, seen=0, plans=(said,)), "liar")
    gone = PodFact(claim.pod_uid, claim.namespace, claim.pod, PodPhase.GONE, claim.node, claim.job, claim.queue, 0, {})
    await _say(jetstream, PodsObserved(pods=(gone,)), "0")


async def _foretell(jetstream: JetStreamContext, epoch: Epoch) -> None:
    """Publish epochs and indexes that no ledger reaches, valid and invalid: a service that accepts one ignores the real ledger from then on."""
    for event, keys in (
        (EvictDecided(epoch=Epoch(2**40), evictions=()), ("0",)),
        (BindDecided(epoch=Epoch(2**40), binds=(), index=Index(2**53)), ("0",)),
        (ClaimsChanged(epoch=Epoch(2**40), previous=Index(0), index=Index(0), claims=()), ("0",)),
        (ClaimsChanged(epoch=epoch, previous=Index(0), index=Index(2**50), claims=()), ("0",)),
    ):
        await _say(jetstream, event, *keys)
        body = msgpack.packb(event.model_dump() | {"epoch": _BAD_EPOCH}, use_bin_type=True)
        await _publish(jetstream, event.subject(*keys), type(event), body)


async def _say(jetstream: JetStreamContext, event: Event, *keys: str) -> None:
    await _publish(jetstream, event.subject(*keys), type(event), encode(event))


async def _publish(jetstream: JetStreamContext, subject: str, event: type[Event], body: bytes) -> None:
    message_id = f"{LIAR}{new_id()}"
    headers = {
        "ce-specversion": "1.0",
        "ce-type": event.ce_type(),
        "ce-source": "/hbox/somebody/1",
        "ce-id": message_id,
        "content-type": "application/msgpack",
        "Nats-Msg-Id": message_id,
    }
    await jetstream.publish(subject, body, headers=headers)
