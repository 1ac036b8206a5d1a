"""Publishing until JetStream has stored it: the same message id at every attempt, so that a lost acknowledgement stores nothing twice."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable

from hbox_common.clock import monotonic_s, new_id, wall_s
from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.events import Event, encode, headers
from hbox_common.pacing import backoff_s
from hbox_common.telemetry import current_traceparent

from . import metrics
from .connection import Connection, answer_of
from .errors import MESSAGE_TOO_LARGE, STREAM_MISMATCH, StreamApiError
from .streams import CLOSED_S

log = logging.getLogger(__name__)

#: The first attempts and all later ones: far above the slowest acknowledgement seen (15 ms with sync_interval always), far below the duplicate window. Brokers
#: of a cluster that choose a leader acknowledge nothing.
ATTEMPTS_S = (1.5,) * 6 + (5.0,)
FIRST_PAUSE_S, LAST_PAUSE_S = 0.02, 1.0


class Publisher:
    """`heal` is called when no stream takes a subject: it makes the streams."""

    def __init__(self, connection: Connection, *, heal: Callable[[], Awaitable[None]]) -> None:
        self._connection, self._heal = connection, heal
        self.name = connection.name
        self._healing, self._healed_at = asyncio.Lock(), 0.0
        self._source = f"/hbox/{connection.name}/{connection.instance}"

    async def publish(
        self, event: Event, *keys: str, message_id: str | None = None, traceparent: str = "", timeout_s: float = 30.0
    ) -> None:
        """Return when JetStream has stored `event`. Raises as `publish_raw`."""
        await self.publish_raw(
            type(event),
            encode(event),
            *keys,
            message_id=message_id or event.own_id or new_id(),
            traceparent=traceparent,
            timeout_s=timeout_s,
            lasts_s=CLOSED_S if event.closes else event.lasts_s,
        )

    async def publish_raw(
        self,
        type_: type[Event],
        body: bytes,
        *keys: str,
        message_id: str,
        traceparent: str = "",
        timeout_s: float = 30.0,
        lasts_s: int = 0,
    ) -> None:
        """Return when JetStream has stored a body that `encode` made. `lasts_s`: see `Event.lasts_s`.

        Raises InvalidRequest if it can never be stored, ValueError for keys that do not fit, Unavailable after `timeout_s`: the outcome is unknown then, and
        the caller may retry with the same `message_id`.
        """
        if type_.about.stream is None:
            raise ValueError(f"{type_.__name__} is asked for, not published")
        subject = type_.subject(*keys)
        started = monotonic_s()
        traceparent = traceparent or current_traceparent()
        header = headers(type_, source=self._source, message_id=message_id, now=wall_s(), traceparent=traceparent)
        header["Nats-Expected-Stream"] = type_.about.stream.value
        if lasts_s:
            header["Nats-TTL"] = f"{lasts_s}s"
        await self._until_stored(subject, body, header, timeout_s)
        metrics.published(type_).inc()
        metrics.PUBLISH_S.observe(monotonic_s() - started)

    async def _until_stored(self, subject: str, body: bytes, header: dict[str, str], timeout_s: float) -> None:
        deadline = monotonic_s() + timeout_s
        last: HBoxError | None = None
        if self._connection.connected.is_set():
            self._check_size(subject, body, header)
            last = await self._attempt(subject, body, header, min(ATTEMPTS_S[0], timeout_s))
            if last is None:  # nearly always
                return
        pauses = itertools.count()
        try:
            async with asyncio.timeout(deadline - monotonic_s()):
                while True:
                    if isinstance(last, Unavailable) and not last.outcome_unknown and self._connection.connected.is_set():
                        await self._try_to_heal()
                    attempt = next(pauses)
                    await asyncio.sleep(backoff_s(attempt, base_s=FIRST_PAUSE_S, cap_s=LAST_PAUSE_S))
                    await self._connection.connected.wait()
                    self._check_size(subject, body, header)
                    last = await self._attempt(subject, body, header, ATTEMPTS_S[min(attempt + 1, len(ATTEMPTS_S) - 1)])
                    if last is None:
                        return
        except TimeoutError as e:
            raise Unavailable(
                f"{subject}: not stored within {timeout_s:g} s{f'; last: {last}' if last else ''}",
                hint="is nats-server running, with JetStream enabled?",
                outcome_unknown=True,
            ) from e

    async def _attempt(self, subject: str, body: bytes, header: dict[str, str], timeout_s: float) -> HBoxError | None:
        """Returns why it was not stored, where it may be yet; raises InvalidRequest where it never will."""
        try:
            answer = await self._connection.request(subject, body, headers=header, timeout_s=timeout_s)
            answer_of(answer.data)
        except StreamApiError as e:
            if e.err_code in (MESSAGE_TOO_LARGE, STREAM_MISMATCH):
                raise InvalidRequest(f"{subject}: {e}") from e
            return e
        except Unavailable as e:
            return e
        return None

    async def _try_to_heal(self) -> None:
        """Once for all that found at the same time that there is no stream for them."""
        asked_at = monotonic_s()
        async with self._healing:
            if self._healed_at >= asked_at:
                return
            try:
                await self._heal()
            except HBoxError as e:
                log.info("the streams cannot be made now: %s", e)
            self._healed_at = monotonic_s()

    def _check_size(self, subject: str, body: bytes, header: dict[str, str]) -> None:
        # The broker counts headers in and closes the connection over a message too large; nats-py looks at the body only.
        size = len(body) + sum(len(key) + len(value) + 4 for key, value in header.items()) + 16
        if size > self._connection.max_payload:
            raise InvalidRequest(
                f"{subject}: {size} bytes with headers, the broker takes {self._connection.max_payload}",
                hint="raise max_payload of nats-server, or send smaller batches",
            )
