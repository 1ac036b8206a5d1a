"""A malformed, an oversized and a duplicated message on every subject of a running platform: no effect twice, a dead letter with its
reason where somebody reads, and every service alive and at work afterwards."""

import asyncio
import json
import os
import signal
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgpack
import nats
import pytest
from nats.js import JetStreamContext

from hbox_common.clock import new_id
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
    PlansAnswered,
    PlansProposed,
    PodsObserved,
    Stream,
    Victim,
    encode,
)
from hbox_common.model import Claim, Epoch, Generation, Index, JobId, PlanId, PodFact, PodPhase, PodUid

from ..broker import admin_bus, client_of
from ..waiting import until
from .platform_world import hbox, up

pytestmark = pytest.mark.e2e

#: Everything that some service reads; the events for integrators, what is only for the command, and the dead letters themselves are read by people.
READ = [
    t
    for t in REGISTRY.values()
    if t.about.stream not in (None, Stream.EVENTS, Stream.CLOUD_EVENTS, Stream.DEAD) and set(t.about.readers) != {"cli"}
]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A running platform with some bound work on it: its state folder."""
    with up(tmp_path_factory.mktemp("hostile") / "state", "--levels") as running:
        replay(running.state)
        yield running.state


def replay(state: Path, limit: int = 60) -> dict[str, Any]:
    """Some more work through the platform; its report, whose audit is clean or the command fails."""
    run = hbox("replay", "--state", str(state), "--limit", str(limit), timeout_s=120)
    assert run.returncode == 0, run.stdout + run.stderr
    report: dict[str, Any] = json.loads((state / "report.json").read_text())
    return report


@pytest.fixture
async def jetstream(platform: Path) -> AsyncIterator[JetStreamContext]:
    client = await client_of(json.loads((platform / "platform.json").read_text()))
    yield client.jetstream()
    await client.close()


def pids(state: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((state / "pids.json").read_text())
    return found


async def dead(js: JetStreamContext, letters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All dead letters so far: `letters`, to which it adds those that came since."""
    info = await js.stream_info(Stream.DEAD)
    for seq in range((info.state.first_seq or 1) + len(letters), info.state.last_seq + 1):
        message = await js.get_msg(Stream.DEAD, seq)
        letters.append(msgpack.unpackb(message.data or b""))
    return letters


def subject_of(event: type[Event]) -> str:
    keys = event.about.subject.count("{")
    return event.subject(*["0"] * keys)


def header(event: type[Event], message_id: str) -> dict[str, str]:
    return {
        "ce-specversion": "1.0",
        "ce-type": event.ce_type(),
        "ce-source": "/test",
        "ce-id": message_id,
        "content-type": "application/msgpack",
        "Nats-Msg-Id": message_id,
    }


async def ready(state: Path) -> bool:
    def look(url: str) -> bool:
        with urllib.request.urlopen(url + "/readyz", timeout=5) as answer:
            return int(answer.status) == 200

    health = json.loads((state / "platform.json").read_text())["health"]
    try:
        return all([await asyncio.to_thread(look, url) for url in health.values()])
    except OSError:
        return False


async def test_malformed_and_oversized_messages_end_as_dead_letters_and_nobody_dies(
    platform: Path, jetstream: JetStreamContext
) -> None:
    before = pids(platform)
    sent: dict[str, str] = {}
    letters: list[dict[str, Any]] = []
    for event in READ:
        bodies = {
            "no msgpack": b"\xc1\xc1\xc1",
            "wrong fields": msgpack.packb({"plans": 7, "jobs": "x", "node": {"name": 3}, "epoch": "new"}),
            "no map": msgpack.packb([1, 2, 3]),
        }
        # The broker itself refuses more than 8 MiB, so types that may be as large cannot be sent oversized at all.
        if event.about.max_bytes < 8 * 2**20:
            bodies["oversized"] = b"\x80" * (event.about.max_bytes + 1)
        for kind, body in bodies.items():
            message_id = f"{kind}-{event.ce_type()}"
            await jetstream.publish(subject_of(event), body, headers=header(event, message_id))
            sent[message_id] = kind
            # State streams keep the last value of a subject: give its readers the time to see each.
            if event.about.stream is Stream.STATE:

                async def buried(message_id: str = message_id) -> bool:
                    return any(letter["message_id"] == message_id for letter in await dead(jetstream, letters))

                await until(buried, f"a dead letter for {message_id}", timeout_s=30)

    async def all_buried() -> bool:
        return set(sent) <= {letter["message_id"] for letter in await dead(jetstream, letters)}

    try:
        await until(all_buried, "a dead letter for every message that nobody can read", timeout_s=30)
    finally:
        missing = set(sent) - {letter["message_id"] for letter in await dead(jetstream, letters)}
        assert not missing
    letters = [letter for letter in await dead(jetstream, letters) if letter["message_id"] in sent]
    assert all(letter["reason"] for letter in letters)
    assert all("bytes" in letter["reason"] for letter in letters if sent[letter["message_id"]] == "oversized")
    twice = [key for key, n in Counter((letter["consumer"], letter["message_id"]) for letter in letters).items() if n > 1]
    assert not twice
    assert pids(platform) == before
    await until(lambda: ready(platform), "all services ready", timeout_s=30)
    for pid in before.values():
        os.kill(pid, 0)
    assert (await asyncio.to_thread(replay, platform))["audit"]["faults"] == 0


async def test_every_message_sent_once_more_has_no_second_effect(platform: Path, jetstream: JetStreamContext) -> None:
    """Outside of the broker's duplicate window a repetition is a new message; only the consumers' own inboxes stand between it and its effect."""
    before = pids(platform)
    await asyncio.to_thread(replay, platform)  # the broker lets go of a client that answers nothing meanwhile
    for stream in (Stream.JOBS, Stream.PLANS, Stream.DECISIONS, Stream.OUTCOMES, Stream.STATE):
        info = await jetstream.stream_info(stream)
        for seq in range(info.state.first_seq or 1, info.state.last_seq + 1):
            try:
                message = await jetstream.get_msg(stream, seq)
            except nats.js.errors.NotFoundError:
                continue  # a later value of the same subject took its place
            headers = {**(message.headers or {}), "Nats-Msg-Id": new_id()}
            assert message.subject is not None
            await jetstream.publish(message.subject, message.data or b"", headers=headers)
    await until(lambda: ready(platform), "all services ready", timeout_s=30)
    report = await asyncio.to_thread(replay, platform)
    assert report["audit"]["faults"] == 0
    assert report["pods"]["bound"] + report["pods"]["waiting"] == report["pods"]["submitted"]
    assert pids(platform) == before


async def say(js: JetStreamContext, event: Event, *keys: str, source: str = "/hbox/somebody/1") -> str:
    """As somebody who speaks for whom they like."""
    message_id = new_id()
    await js.publish(event.subject(*keys), encode(event), headers=header(type(event), message_id) | {"ce-source": source})
    return message_id


async def test_lies_about_priority_pods_and_epochs_cost_nobody_anything(platform: Path, jetstream: JetStreamContext) -> None:
    """Well-formed messages, each of which once evicted a running pod, freed its cards, or made a service deaf for good."""
    before = pids(platform)
    await asyncio.to_thread(replay, platform)
    async with admin_bus(json.loads((platform / "platform.json").read_text())) as bus:

        async def claims() -> tuple[Epoch, dict[str, Claim]]:
            pages = await bus.ask(ClaimsAsked(asker="test"), ClaimsPage)
            return pages[0].epoch, {claim.id: claim for page in pages for claim in page.claims if claim.state == "posted"}

        epoch, held = await claims()
        victims = list(held.values())[:3]
        assert victims
        for claim in victims:
            lie = Plan(
                id=PlanId(new_id()), job=JobId(new_id()), namespace=claim.namespace, name="lie", queue=claim.queue, priority=2**31,
                min_member=1, bound=0, requests=(claim.requests,),
                placements=(Placement(PodUid("x"), "x", "1", claim.node, Generation(1), claim.slices),),
                victims=(Victim(claim=claim.id, pod_uid=claim.pod_uid),),
            )  # fmt: skip
            for said in (lie, lie.model_copy(update={"id": PlanId(new_id()), "job": claim.job})):
                await say(jetstream, PlansProposed(scheduler="liar", epoch=epoch, seen=0, plans=(said,)), "liar")
            gone = PodFact(
                claim.pod_uid, claim.namespace, claim.pod, PodPhase.GONE, claim.node, claim.job, claim.queue, 0, {}
            )  # fmt: skip
            await say(jetstream, PodsObserved(pods=(gone,)), "0")
        await say(jetstream, EvictDecided(epoch=Epoch(2**40), evictions=()), "0")
        await say(jetstream, BindDecided(epoch=Epoch(2**40), binds=(), index=Index(2**53)), "0")
        await say(jetstream, ClaimsChanged(epoch=Epoch(2**40), previous=Index(0), index=Index(0), claims=()), "0")
        await say(jetstream, ClaimsChanged(epoch=epoch, previous=Index(0), index=Index(2**50), claims=()), "0")

        async def answered() -> bool:
            answers = [d.event for d in await bus.last(PlansAnswered, [("liar",)]) if isinstance(d.event, PlansAnswered)]
            return bool(answers)

        await until(answered, "the ledger answers the lies", timeout_s=30)
        await asyncio.sleep(1.0)
        _, after = await claims()
        assert {claim.id for claim in victims} <= after.keys(), "somebody's claim was freed"
    assert (await asyncio.to_thread(replay, platform))["audit"]["faults"] == 0

    os.kill(before["quota-ledger"], signal.SIGKILL)  # the next one reads what the streams say

    def restarted() -> bool:
        return pids(platform)["quota-ledger"] != before["quota-ledger"]

    await until(restarted, "the ledger is started anew", timeout_s=30)
    await until(lambda: ready(platform), "all services ready", timeout_s=60)
    assert (await asyncio.to_thread(replay, platform))["audit"]["faults"] == 0
    now = pids(platform)
    assert {name for name in before if now[name] != before[name]} == {"quota-ledger"}
