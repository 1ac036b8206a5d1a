"""Publishing: a message is stored once, or the caller hears that it may not be.

A publish that got no answer is unknown, not failed: it is tried again with the same Nats-Msg-Id, which the stream recognises for two
minutes. `publish_async` is not used: it loses rejections (nats.py #985).
"""

import asyncio
from time import perf_counter

import nats.errors
import nats.js.errors

from hbox_common.clock import monotonic_s, new_id, wall_s
from hbox_common.errors import Bug, InvalidRequest, Unavailable
from hbox_common.events import Event, encode, headers
from hbox_common.telemetry import counter, histogram

from .connection import Connection, describe
from .streams import STREAMS

PUBLISHED = counter("bus_published", "Messages stored by the broker", ("type",))
SECONDS = histogram("bus_publish_seconds", "From the call to the broker's acknowledgement, retries included")

_CONFIG = {config.name: config for config in STREAMS}
_ATTEMPT_S = 2.0


class Publisher:
    """Sends events to their streams as `source`."""

    def __init__(self, connection: Connection, *, source: str) -> None:
        self._connection, self._source = connection, source

    async def publish(
        self, event: Event, *keys: str, message_id: str | None = None, traceparent: str = "", timeout_s: float = 30.0
    ) -> None:
        """Stored when this returns. Raises InvalidRequest when it is too large, Unavailable (outcome unknown) after `timeout_s`."""
        await self.publish_raw(
            event, encode(event), *keys, message_id=message_id or new_id(), traceparent=traceparent, timeout_s=timeout_s
        )

    async def publish_raw(
        self,
        event: Event | type[Event],
        body: bytes,
        *keys: str,
        message_id: str,
        traceparent: str = "",
        timeout_s: float = 30.0,
    ) -> None:
        """As `publish`, of a body that was encoded before: an outbox keeps bytes, so that a repetition is the same message."""
        stream = event.about.stream
        if stream is None:
            raise Bug(f"{event.ce_type()} belongs to no stream: it is asked for, not published")
        subject = event.subject(*keys)
        header = headers(event, source=self._source, message_id=message_id, now=wall_s(), traceparent=traceparent)
        begun, deadline, pause, said = perf_counter(), monotonic_s() + timeout_s, 0.05, ""
        while True:
            try:
                await self._connection.jetstream.publish(subject, body, timeout=_ATTEMPT_S, stream=stream, headers=dict(header))
                break
            except nats.errors.MaxPayloadError as e:
                raise InvalidRequest(f"{subject}: {len(body)} bytes are more than the broker takes") from e
            except (nats.js.errors.NoStreamResponseError, nats.js.errors.NotFoundError) as e:
                said = describe(e)
                await self._restore(stream)
            except (nats.errors.Error, nats.js.errors.APIError, OSError, TimeoutError) as e:
                said = describe(e)
            if monotonic_s() + pause > deadline:
                raise Unavailable(
                    f"{subject}: not stored within {timeout_s:g} s ({said})", hint="is the broker up?", outcome_unknown=True
                )
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)
        SECONDS.observe(perf_counter() - begun)
        PUBLISHED.labels(event.ce_type()).inc()

    async def _restore(self, stream: str) -> None:
        """The stream is gone: its storage was wiped, or the broker is new."""
        try:
            await self._connection.ensure(_CONFIG[stream])
        except Unavailable:
            return
