"""Append every public event of HBox to FILE, each once: python subscriber.py FILE. Settings: ../README.md."""

import asyncio
import json
import os
import sys
from pathlib import Path

import nats
from nats.js.api import AckPolicy, ConsumerConfig


async def main(file: Path) -> None:
    env = os.environ
    consumer, reader = env["EVENTS_CONSUMER"], env["EVENTS_READER"]
    client = await nats.connect(
        env["NATS_URL"], nkeys_seed=env["NATS_NKEY"], inbox_prefix=f"_INBOX_{reader}".encode(), max_reconnect_attempts=-1
    )
    stream = client.jetstream()
    config = ConsumerConfig(
        name=consumer,
        durable_name=consumer,
        filter_subject=env["EVENTS_FILTER"],
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=5,
        max_ack_pending=1,
    )
    await stream.add_consumer("HBOX_CLOUDEVENTS", config)
    subscription = await stream.pull_subscribe_bind(consumer, "HBOX_CLOUDEVENTS")
    with file.open("a+b", buffering=0) as out:
        out.seek(0)
        seen = {json.loads(line)["id"] for line in out}
        while True:
            try:
                [message] = await subscription.fetch(1, timeout=30)
            except nats.errors.TimeoutError:
                continue
            if (id_ := json.loads(message.data)["id"]) not in seen:
                out.write(message.data + b"\n")
                os.fsync(out.fileno())  # first keep the event, then acknowledge it: a crash in between repeats it
                seen.add(id_)
            await message.ack()


asyncio.run(main(Path(sys.argv[1])))
