"""Door of the broker: JetStream as the bus uses it, in memory, with the faults that a network and a broker have.

Theory of operation. A `Link` is one client's connection. Messages of a link arrive in order, after a delay; those under way when it breaks are lost. The broker
acts at their arrival, in the world's context: it stores messages in streams, keeps pull consumers with acknowledgements and redelivery, answers the API calls
of `hbox_common.bus`, and passes messages to subscriptions. `SimConnection` is the client's side: `hbox_common.bus.connection.Connection` with its own
`request` and `api`, above other `send`, `subscribe`, `listen` and `flush`.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from random import Random
from typing import Any, Protocol, cast

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from hbox_common.bus.connection import API_S, Connection
from hbox_common.errors import InvalidRequest, Unavailable

from .loop import EPOCH_S, PROCESS, Process, VirtualLoop

MAX_PAYLOAD = 8 * 2**20
#: Seconds from one side of a connection to the other.
DELAY_S = (0.0002, 0.0015)
#: Seconds between two looks of a consumer at its pulls and acknowledgements.
TICK_S = 0.5
RECONNECT_S = (0.2, 0.3)
#: Calls of JetStream's API that clients of the bus make.
_CALLS = frozenset(
    {
        *(f"STREAM.{verb}" for verb in ("CREATE", "INFO", "UPDATE", "DELETE")),
        *(f"CONSUMER.{verb}" for verb in ("CREATE", "DURABLE", "INFO", "DELETE")),
    }
)

Headers = dict[str, str]


class Sink(Protocol):
    """Where all that happens is recorded (`digest.Digest`)."""

    def add(self, *parts: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Stored:
    sequence: int
    subject: str
    headers: Headers
    body: bytes
    stored_ns: int


@dataclass(eq=False, slots=True)
class Sub:
    """A subscription of a link. `take` is called in the client's context."""

    link: "Link"
    subject: str
    take: Callable[[Msg], None]
    task: asyncio.Task[None] | None = None


@dataclass(eq=False, slots=True)
class Weather:
    """Of a link: what happens to its messages now."""

    slow: float = 1.0  #: factor of the delay
    lost: float = 0.0  #: probability of each message
    doubled: float = 0.0


@dataclass(eq=False, slots=True)
class Link:
    """`generation` increases with each loss: what was under way before is lost."""

    connection: "SimConnection"
    context: Context
    process: Process | None
    up: bool = False
    generation: int = 0
    subs: dict[Sub, None] = field(default_factory=dict)
    last_in: float = 0.0
    last_out: float = 0.0


@dataclass(eq=False, slots=True)
class Request:
    """A pull."""

    link: Link
    generation: int
    reply: str
    left: int
    expires_at: float
    heartbeat_s: float
    spoken_at: float


@dataclass(eq=False, slots=True)
class Unacked:
    deadline: float
    deliveries: int


class Consumer:
    """A pull consumer: durable with acknowledgements, or ephemeral without."""

    def __init__(self, stream: "StreamState", name: str, config: dict[str, Any], now: float) -> None:
        self.stream, self.name, self.config = stream, name, config
        self.acks = config.get("ack_policy") == "explicit"
        self.durable = bool(config.get("durable_name"))
        self.ack_wait_s = config.get("ack_wait", 30e9) / 1e9
        self.max_unacked = config.get("max_ack_pending", 1000)
        self.inactive_s = config.get("inactive_threshold", 0) / 1e9
        self._filters = config.get("filter_subjects") or ([config["filter_subject"]] if "filter_subject" in config else [])
        self._pattern = pattern(self._filters or [">"])
        self.next = 1
        self.first: deque[int] = deque()  #: sequences to deliver before `next`
        self.pending = 0
        self.delivered = self.delivered_stream = 0
        self.unacked: dict[int, Unacked] = {}
        self.again: dict[int, Unacked] = {}  #: to be delivered once more
        self.requests: deque[Request] = deque()
        self.used_at = now
        self._place()

    def takes(self, subject: str) -> bool:
        return self._pattern.fullmatch(subject) is not None

    def _place(self) -> None:
        policy, messages = self.config.get("deliver_policy", "all"), self.stream.messages
        self.next = self.stream.last + 1
        if policy == "last_per_subject":
            self.first.extend(sorted(seq for subject, seq in self.stream.subjects.items() if self.takes(subject)))
            self.pending = len(self.first)
            return
        if policy == "by_start_sequence":
            self.next = max(1, int(self.config["opt_start_seq"]))
        elif policy == "by_start_time":
            since = datetime.fromisoformat(self.config["opt_start_time"]).timestamp() * 1e9
            self.next = next((one.sequence for one in messages.values() if one.stored_ns >= since), self.stream.last + 1)
        elif policy == "all":
            self.next = 1
        self.pending = sum(seq >= self.next and self.takes(one.subject) for seq, one in messages.items())

    def take(self) -> Stored | None:
        """The next message that was not delivered yet."""
        messages = self.stream.messages
        while self.first:
            if (one := messages.get(self.first.popleft())) is not None:
                self.pending -= 1
                return one
        self.next = max(self.next, self.stream.first)
        while self.next <= self.stream.last:
            one = messages.get(self.next)
            self.next += 1
            if one is not None and self.takes(one.subject):
                self.pending -= 1
                return one
        return None

    def dropped(self, one: Stored) -> None:
        """The stream dropped a message."""
        if self.takes(one.subject) and (one.sequence >= self.next or one.sequence in self.first):
            self.pending -= 1
        self.unacked.pop(one.sequence, None)
        self.again.pop(one.sequence, None)

    def left(self, before_ns: int) -> tuple[int, int]:
        """How many messages that were stored before this time, in Unix ns, are not delivered, and not acknowledged."""
        if not (self.pending or self.unacked or self.again):
            return 0, 0
        old = {
            sequence for sequence, one in self.stream.messages.items() if one.stored_ns < before_ns and self.takes(one.subject)
        }
        undelivered = sum(sequence >= self.next or sequence in self.first for sequence in old)
        return undelivered, len(old & (self.unacked.keys() | self.again.keys()))

    def info(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "stream_name": self.stream.name,
            "config": self.config,
            "delivered": {"consumer_seq": self.delivered, "stream_seq": self.delivered_stream},
            "num_ack_pending": len(self.unacked) + len(self.again),
            "num_pending": self.pending,
        }


class StreamState:
    def __init__(self, config: dict[str, Any], created: str) -> None:
        self.created = created
        self.configure(config)
        self.name = str(config["name"])
        self.memory = config.get("storage") == "memory"
        self.last_value = config.get("max_msgs_per_subject") == 1
        self.messages: dict[int, Stored] = {}
        self.subjects: dict[str, int] = {}  #: last sequence of each
        self.ids: dict[str, tuple[int, int]] = {}  #: sequence and time of each message id
        self.first, self.last = 1, 0
        self.bytes = 0
        self.consumers: dict[str, Consumer] = {}

    def configure(self, config: dict[str, Any]) -> None:
        self.config, self.takes = config, pattern(config["subjects"])

    def store(self, subject: str, headers: Headers, body: bytes, now_ns: int) -> Stored:
        self.last += 1
        one = Stored(self.last, subject, headers, body, now_ns)
        before = self.subjects.get(subject)
        if self.last_value and before is not None:
            self.drop(before)
        self.messages[self.last] = one
        self.subjects[subject] = self.last
        self.bytes += len(body)
        for consumer in self.consumers.values():
            if consumer.takes(subject):
                consumer.pending += 1
        return one

    def drop(self, sequence: int) -> None:
        one = self.messages.pop(sequence, None)
        if one is None:
            return
        self.bytes -= len(one.body)
        if self.subjects.get(one.subject) == sequence:
            del self.subjects[one.subject]
        for consumer in self.consumers.values():
            consumer.dropped(one)
        self.first = next(iter(self.messages), self.last + 1)

    def truncate(self, since_ns: int) -> int:
        """Lose everything that was stored from then on. Returns the number of messages."""
        lost = [one for one in self.messages.values() if one.stored_ns >= since_ns]
        for one in lost:
            self.drop(one.sequence)
        if lost:
            self.last = lost[0].sequence - 1
            self.ids = {id_: place for id_, place in self.ids.items() if place[0] <= self.last}
            self.subjects = {one.subject: one.sequence for one in self.messages.values()}
            self.first = next(iter(self.messages), self.last + 1)
            for consumer in self.consumers.values():
                consumer.next = min(consumer.next, self.last + 1)
                consumer.delivered_stream = min(consumer.delivered_stream, self.last)
        return len(lost)

    def info(self, now: str, subjects: str = "") -> dict[str, Any]:
        state: dict[str, Any] = {
            "messages": len(self.messages),
            "bytes": self.bytes,
            "first_seq": self.first,
            "last_seq": self.last,
            "consumer_count": len(self.consumers),
        }
        found: dict[str, Any] = {"config": self.config, "created": self.created, "state": state, "ts": now}
        if subjects:
            counts: dict[str, int] = {}
            wanted = pattern((subjects,))
            for one in self.messages.values():
                if wanted.fullmatch(one.subject):
                    counts[one.subject] = counts.get(one.subject, 0) + 1
            state["subjects"] = counts
            found["total"] = len(counts)
        return found


class Broker:
    """`chance`: of delays and of faults."""

    def __init__(self, loop: VirtualLoop, chance: Random, sink: Sink) -> None:
        self._loop, self._chance, self._sink = loop, chance, sink
        self._context = copy_context()
        self.streams: dict[str, StreamState] = {}
        self.links: dict[Link, None] = {}
        self.up = True
        self.weather: dict[str, Weather] = {}  #: by service
        self.full: set[str] = set()  #: streams that take no message
        self.messages = 0
        self.on_message: list[
            Callable[[str, Headers, bytes], None]
        ] = []  #: called with each message of a client, before it is stored
        self._exact: dict[str, dict[Sub, None]] = {}
        self._below: dict[str, dict[Sub, None]] = {}  #: of `PREFIX.*`
        self._wild: dict[Sub, None] = {}
        self._made = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            for stream in list(self.streams.values()):
                for consumer in list(stream.consumers.values()):
                    self._tick(consumer)

    # --- links

    def attach(self, link: Link) -> None:
        """A client connects."""
        link.up = True
        self.links[link] = None
        for sub in link.subs:
            self._enter(sub)

    def detach(self, link: Link) -> None:
        """A connection is lost, with all that is under way."""
        link.up = False
        link.generation += 1
        self.links.pop(link, None)
        for sub in link.subs:
            self._leave(sub)

    def sever(self, link: Link, away_s: float = 0.0) -> None:
        """Break a client's connection; it connects again after `away_s` at the earliest."""
        if link.up:
            self.detach(link)
            self._loop.call_later(0.001, link.connection.lost, away_s, context=link.context)

    def subscribe(self, sub: Sub) -> None:
        sub.link.subs[sub] = None
        if sub.link.up:
            self._enter(sub)

    def unsubscribe(self, sub: Sub) -> None:
        sub.link.subs.pop(sub, None)
        self._leave(sub)

    def _place(self, sub: Sub) -> dict[Sub, None]:
        subject = sub.subject
        if "*" not in subject and ">" not in subject:
            return self._exact.setdefault(subject, {})
        prefix, _, last = subject.rpartition(".")
        if last == "*" and "*" not in prefix:
            return self._below.setdefault(prefix, {})
        return self._wild

    def _enter(self, sub: Sub) -> None:
        self._place(sub)[sub] = None

    def _leave(self, sub: Sub) -> None:
        place = self._place(sub)
        place.pop(sub, None)
        if not place and place is not self._wild:
            self._exact.pop(sub.subject, None)
            self._below.pop(sub.subject.rpartition(".")[0], None) if sub.subject.endswith(".*") else None

    def _weather(self, link: Link) -> Weather | None:
        return None if not self.weather or link.process is None else self.weather.get(link.process.service)

    def _delay_s(self, weather: Weather | None) -> float:
        return self._chance.uniform(*DELAY_S) * (1.0 if weather is None else weather.slow)

    def submit(self, link: Link, subject: str, reply: str, headers: Headers, body: bytes) -> None:
        """A client sends a message."""
        weather = self._weather(link)
        if weather is not None and weather.lost and self._chance.random() < weather.lost:
            return
        link.last_in = at = max(link.last_in + 1e-7, self._loop.now + self._delay_s(weather))
        arrive = partial(self._arrive, link, link.generation, subject, reply, headers, body)
        self._loop.call_at(at, arrive, context=self._context)
        if weather is not None and weather.doubled and self._chance.random() < weather.doubled:
            link.last_in = at + 1e-7
            self._loop.call_at(at + 1e-7, arrive, context=self._context)

    def ping(self, link: Link, answered: asyncio.Future[None]) -> None:
        """Answer once everything that the client sent has arrived."""
        weather = self._weather(link)
        at = link.last_in = max(link.last_in + 1e-7, self._loop.now + self._delay_s(weather))
        generation = link.generation

        def pong() -> None:
            if link.up and generation == link.generation and not answered.done():
                answered.set_result(None)

        self._loop.call_at(at + self._delay_s(weather), pong, context=self._context)

    def _deliver(self, sub: Sub, subject: str, reply: str, headers: Headers | None, body: bytes) -> None:
        link = sub.link
        weather = self._weather(link)
        if weather is not None and weather.lost and self._chance.random() < weather.lost:
            return
        link.last_out = at = max(link.last_out + 1e-7, self._loop.now + self._delay_s(weather))
        message = Msg(cast(Client, None), subject, reply, body, headers)
        self._loop.call_at(at, _hand_over, sub, link.generation, message, context=link.context)

    def _send(self, subject: str, reply: str, headers: Headers | None, body: bytes) -> bool:
        """Pass a message to the subscriptions of its subject. Returns whether there is one."""
        found = [*self._exact.get(subject, ()), *self._below.get(subject.rpartition(".")[0], ())]
        if self._wild:
            found += [sub for sub in self._wild if matches(sub.subject, subject)]
        for sub in found:
            self._deliver(sub, subject, reply, headers, body)
        return bool(found)

    # --- messages

    def _arrive(self, link: Link, generation: int, subject: str, reply: str, headers: Headers, body: bytes) -> None:
        if not self.up or generation != link.generation:
            return
        self.messages += 1
        self._sink.add("message", subject, headers, body)
        if subject.startswith("$JS."):
            if subject.startswith("$JS.ACK."):
                self._acknowledge(subject, body)
            elif subject.startswith("$JS.API.CONSUMER.MSG.NEXT."):
                self._pull(link, subject, reply, body)
            elif subject.startswith("$JS.API.DIRECT.GET."):
                self._direct_get(subject, reply, body)
            elif subject.startswith("$JS.API."):
                answered = self._call(subject.removeprefix("$JS.API."), body)
                if answered is not None:
                    self._answer(reply, answered)
            return
        for look in self.on_message:
            look(subject, headers, body)
        self._pass_on(subject, reply, headers, body)

    def publish(self, subject: str, headers: Headers, body: bytes) -> None:
        """A message from outside of all links."""
        self._sink.add("message", subject, headers, body)
        self._pass_on(subject, "", headers, body)

    def _pass_on(self, subject: str, reply: str, headers: Headers, body: bytes) -> None:
        is_subscribed = self._send(subject, reply, headers or None, body)
        stream = self._stream(subject)
        if stream is not None:
            answer = self._store(stream, subject, headers, body)
            if reply:
                self._answer(reply, answer)
        elif not is_subscribed and reply:
            self._send(reply, "", {"Status": "503"}, b"")

    def _answer(self, reply: str, answer: Mapping[str, Any]) -> None:
        if reply:
            self._send(reply, "", None, json.dumps(answer).encode())

    def _stream(self, subject: str) -> StreamState | None:
        if subject.startswith("_INBOX"):
            return None
        for stream in self.streams.values():
            if stream.takes.fullmatch(subject) is not None:
                return stream
        return None

    def _store(self, stream: StreamState, subject: str, headers: Headers, body: bytes) -> dict[str, Any]:
        if headers.get("Nats-Expected-Stream", stream.name) != stream.name:
            return _refusal(400, 10060, "expected stream does not match")
        now = self.now_ns
        if (id_ := headers.get("Nats-Msg-Id")) is not None:
            known = stream.ids.get(id_)
            if known is not None and now - known[1] <= stream.config.get("duplicate_window", 120e9):
                return {"stream": stream.name, "seq": known[0], "duplicate": True}
        if stream.name in self.full:
            return _refusal(503, 10077, "maximum bytes exceeded")
        one = stream.store(subject, headers, body, now)
        if id_ is not None:
            stream.ids[id_] = one.sequence, now
        for consumer in stream.consumers.values():
            if consumer.requests:
                self._pump(consumer)
        return {"stream": stream.name, "seq": one.sequence}

    @property
    def now_ns(self) -> int:
        return int((EPOCH_S + self._loop.now) * 1e9)

    @property
    def _now(self) -> str:
        return _time(self.now_ns)

    # --- consumers

    def _pull(self, link: Link, subject: str, reply: str, body: bytes) -> None:
        *_, name, consumer_name = subject.split(".")
        stream = self.streams.get(name)
        consumer = stream.consumers.get(consumer_name) if stream is not None else None
        if consumer is None:
            return
        wanted = json.loads(body)
        now = self._loop.now
        consumer.used_at = now
        consumer.requests.append(
            Request(
                link,
                link.generation,
                reply,
                wanted["batch"],
                now + wanted["expires"] / 1e9,
                wanted["idle_heartbeat"] / 1e9,
                now,
            )
        )
        self._pump(consumer)

    def _pump(self, consumer: Consumer) -> None:
        requests, stream = consumer.requests, consumer.stream
        while requests:
            request = requests[0]
            if request.generation != request.link.generation or request.left <= 0:
                requests.popleft()
                continue
            deliveries = 1
            if consumer.again:
                sequence = next(iter(consumer.again))
                deliveries = consumer.again.pop(sequence).deliveries + 1
                one = stream.messages.get(sequence)
            elif consumer.acks and len(consumer.unacked) >= consumer.max_unacked:
                return
            else:
                one = consumer.take()
                if one is None:
                    return
            if one is None:
                continue
            consumer.delivered += 1
            consumer.delivered_stream = max(consumer.delivered_stream, one.sequence)
            if consumer.acks:
                consumer.unacked[one.sequence] = Unacked(self._loop.now + consumer.ack_wait_s, deliveries)
            request.left -= 1
            request.spoken_at = self._loop.now
            facts = f"{deliveries}.{one.sequence}.{consumer.delivered}.{one.stored_ns}.{consumer.pending}"
            reply = f"$JS.ACK.{stream.name}.{consumer.name}.{facts}"
            for sub in self._exact.get(request.reply, ()):
                self._deliver(sub, one.subject, reply, one.headers, one.body)

    def _acknowledge(self, subject: str, word: bytes) -> None:
        _, _, name, consumer_name, _, text, *_ = subject.split(".")
        stream = self.streams.get(name)
        consumer = stream.consumers.get(consumer_name) if stream is not None else None
        if consumer is None:
            return
        sequence = int(text)
        known = consumer.unacked.get(sequence)
        if word.startswith(b"+WPI"):
            if known is not None:
                known.deadline = self._loop.now + consumer.ack_wait_s
        elif word.startswith(b"-NAK"):
            if known is not None:
                delay_s = json.loads(word[5:])["delay"] / 1e9 if len(word) > 5 else 0.0
                known.deadline = self._loop.now + delay_s
                self._loop.call_later(delay_s + 1e-6, self._tick, consumer, context=self._context)
        else:
            consumer.unacked.pop(sequence, None)
            consumer.again.pop(sequence, None)
            if consumer.requests:
                self._pump(consumer)

    def _tick(self, consumer: Consumer) -> None:
        """Redeliver what was not acknowledged, send heartbeats, end pulls whose time is over."""
        if not self.up or consumer.stream.consumers.get(consumer.name) is not consumer:
            return
        now = self._loop.now
        if consumer.unacked:
            for sequence in [sequence for sequence, one in consumer.unacked.items() if one.deadline <= now]:
                consumer.again[sequence] = consumer.unacked.pop(sequence)
        self._pump(consumer)
        for request in list(consumer.requests):
            if request.generation != request.link.generation:
                consumer.requests.remove(request)
            elif now >= request.expires_at:
                consumer.requests.remove(request)
                self._speak(
                    request, {"Status": "408", "Description": "Request Timeout", "Nats-Pending-Messages": str(request.left)}
                )
            elif now - request.spoken_at >= request.heartbeat_s - TICK_S / 2:
                request.spoken_at = now
                self._speak(request, {"Status": "100", "Description": "Idle Heartbeat"})
        if consumer.requests:
            consumer.used_at = now
        elif consumer.inactive_s and now - consumer.used_at > consumer.inactive_s:
            del consumer.stream.consumers[consumer.name]

    def _speak(self, request: Request, headers: Headers) -> None:
        for sub in self._exact.get(request.reply, ()):
            self._deliver(sub, request.reply, "", headers, b"")

    # --- API

    def _call(self, what: str, body: bytes) -> dict[str, Any] | None:
        """The answer; None: nats-server does not know the call, and does not answer it."""
        parts = what.split(".")
        verb = ".".join(parts[:2])
        if verb not in _CALLS:
            return None
        asked: dict[str, Any] = json.loads(body) if body else {}
        stream = self.streams.get(parts[-1] if parts[0] == "STREAM" else parts[-2])
        if verb == "STREAM.CREATE":
            if stream is not None:
                return _refusal(400, 10058, "stream name already in use")
            self._made += 1
            stream = self.streams[parts[-1]] = StreamState(asked, _time(self.now_ns + self._made))
            return stream.info(self._now)
        if stream is None:
            return _refusal(404, 10059, "stream not found")
        if verb == "STREAM.INFO":
            return stream.info(self._now, asked.get("subjects_filter", ""))
        if verb == "STREAM.UPDATE":
            stream.configure(asked)
            return stream.info(self._now)
        if verb == "STREAM.DELETE":
            del self.streams[stream.name]
            return {"success": True}
        consumer = stream.consumers.get(parts[-1])
        if verb in ("CONSUMER.CREATE", "CONSUMER.DURABLE"):
            if consumer is None:
                consumer = stream.consumers[parts[-1]] = Consumer(stream, parts[-1], asked["config"], self._loop.now)
            return consumer.info()
        if consumer is None:
            return _refusal(404, 10014, "consumer not found")
        if verb == "CONSUMER.INFO":
            return consumer.info()
        del stream.consumers[consumer.name]
        return {"success": True}

    def _direct_get(self, subject: str, reply: str, body: bytes) -> None:
        name, _, one_subject = subject.removeprefix("$JS.API.DIRECT.GET.").partition(".")
        stream = self.streams.get(name)
        if stream is None:
            self._send(reply, "", {"Status": "503"}, b"")
            return
        asked: dict[str, Any] = json.loads(body) if body else {}
        last = one_subject or asked.get("last_by_subj")
        if last:
            sequence = stream.subjects.get(last)
            if sequence is None:
                self._send(reply, "", {"Status": "404", "Description": "Message Not Found"}, b"")
            else:
                self._send_copy(stream, stream.messages[sequence], reply)
            return
        if "multi_last" in asked:
            wanted = pattern(asked["multi_last"])
            sequences = sorted(sequence for subject, sequence in stream.subjects.items() if wanted.fullmatch(subject))
            chosen = [stream.messages[sequence] for sequence in sequences]
        else:
            since = datetime.fromisoformat(asked["start_time"]).timestamp() * 1e9 if "start_time" in asked else 0
            chosen = [
                one
                for one in stream.messages.values()
                if one.sequence >= asked.get("seq", 1)
                and one.stored_ns >= since
                and matches(asked["next_by_subj"], one.subject)
            ][: asked["batch"]]
        for one in chosen:
            self._send_copy(stream, one, reply)
        status = {"Status": "204", "Description": "EOB"} if chosen else {"Status": "404", "Description": "No Results"}
        self._send(reply, "", status, b"")

    def _send_copy(self, stream: StreamState, one: Stored, reply: str) -> None:
        headers = one.headers | {
            "Nats-Stream": stream.name,
            "Nats-Subject": one.subject,
            "Nats-Sequence": str(one.sequence),
            "Nats-Time-Stamp": _time(one.stored_ns),
        }
        self._send(reply, "", headers, one.body)

    # --- faults

    def stop(self) -> None:
        """The broker's process ends."""
        self.up = False
        for link in list(self.links):
            self.sever(link)

    def start(self, *, unsynced_since_ns: int) -> None:
        """It begins again, without its streams in memory, and without what file streams stored from then on."""
        for name in [name for name, stream in self.streams.items() if stream.memory]:
            del self.streams[name]
        for stream in self.streams.values():
            stream.truncate(unsynced_since_ns)
            stream.consumers = {name: one for name, one in stream.consumers.items() if one.durable}
            for consumer in stream.consumers.values():
                consumer.requests.clear()
                consumer.again |= consumer.unacked
                consumer.unacked.clear()
        self.up = True

    def shrink(self, name: str) -> None:
        """A history that is full drops its older half, read or not."""
        stream = self.streams.get(name)
        if stream is not None:
            for sequence in list(stream.messages)[: len(stream.messages) // 2]:
                stream.drop(sequence)


def _hand_over(sub: Sub, generation: int, message: Msg) -> None:
    if generation == sub.link.generation and sub in sub.link.subs:
        sub.take(message)


def _refusal(code: int, err_code: int, description: str) -> dict[str, Any]:
    return {"error": {"code": code, "err_code": err_code, "description": description}}


def _time(ns: int) -> str:
    whole = datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{ns % 10**9 // 1000:06d}+00:00"


@cache
def _expression(one: str) -> str:
    tokens = [r"[^.]+" if token == "*" else r".+" if token == ">" else re.escape(token) for token in one.split(".")]
    return r"\.".join(tokens)


def pattern(subjects: Sequence[str]) -> re.Pattern[str]:
    """Matches the subjects of any of NATS' patterns, as a whole."""
    return re.compile("|".join(map(_expression, subjects)))


def matches(wanted: str, subject: str) -> bool:
    """Whether a subject is one of NATS' pattern `wanted`."""
    return wanted == subject or pattern((wanted,)).fullmatch(subject) is not None


class SimConnection(Connection):
    """`broker` is set by the world."""

    broker: Broker

    async def _make(self, prepare: Callable[[Any], Awaitable[None]] | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._watchers = cast(set[Callable[[], None]], _Ordered())
        self.link = Link(self, copy_context(), PROCESS.get())
        self._connecting: asyncio.Task[None] | None = None
        await self._connect(0.0)
        await self.listen(f"{self._inbox}.*", self._on_reply)
        if prepare is not None:
            await prepare(self)

    async def _connect(self, away_s: float) -> None:
        await asyncio.sleep(max(away_s, self.broker._chance.uniform(*RECONNECT_S)))
        while not self.broker.up:  # noqa: ASYNC110  clients of a real broker poll too
            await asyncio.sleep(self.broker._chance.uniform(*RECONNECT_S))
        self.broker.attach(self.link)
        self._established()

    def lost(self, away_s: float) -> None:
        """The socket is closed."""
        self._lost()
        if not self._closing:
            self._connecting = self._loop.create_task(self._connect(away_s))

    async def _close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        for sub in self.link.subs:
            if sub.task is not None:
                sub.task.cancel()
        self.broker.detach(self.link)

    @property
    def server_version(self) -> str:
        return "2.12.0"

    @property
    def servers(self) -> list[tuple[str, int]]:
        return [("broker", 4222)]

    @property
    def by_tls(self) -> bool:
        return False

    @property
    def max_payload(self) -> int:
        return MAX_PAYLOAD

    async def send(self, subject: str, body: bytes = b"", *, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        if len(body) > MAX_PAYLOAD:
            raise InvalidRequest(f"{subject}: {len(body)} bytes, the broker takes {MAX_PAYLOAD}")
        if not self.link.up:
            raise Unavailable("there is no connection to the broker")
        self.broker.submit(self.link, subject, reply, dict(headers) if headers else {}, body)

    async def flush(self, *, timeout_s: float = API_S) -> None:
        if not self.link.up:
            raise Unavailable("the broker does not take what is sent to it")
        answered = self._loop.create_future()
        self.broker.ping(self.link, answered)
        try:
            async with asyncio.timeout(timeout_s):
                await answered
        except TimeoutError as e:
            raise Unavailable("the broker does not take what is sent to it") from e

    async def subscribe(self, subject: str, on_message: Callable[[Msg], Awaitable[None]]) -> Subscription:
        waiting: deque[Msg] = deque()
        wake = asyncio.Event()

        def take(message: Msg) -> None:
            waiting.append(message)
            wake.set()

        async def work() -> None:
            while True:
                while waiting:
                    await on_message(waiting.popleft())
                wake.clear()
                await wake.wait()

        sub = Sub(self.link, subject, take)
        sub.task = self._loop.create_task(work())
        self.broker.subscribe(sub)
        return cast(Subscription, sub)

    async def listen(self, subject: str, take: Callable[[Msg], None]) -> Subscription:
        sub = Sub(self.link, subject, take)
        self.broker.subscribe(sub)
        return cast(Subscription, sub)

    async def unsubscribe(self, subscription: Subscription) -> None:
        sub = cast(Sub, subscription)
        self.broker.unsubscribe(sub)
        if sub.task is not None:
            sub.task.cancel()


class _Ordered(dict[Callable[[], None], None]):
    """The watchers of a connection, called in the order in which they came."""

    def add(self, watcher: Callable[[], None]) -> None:
        self[watcher] = None

    def discard(self, watcher: Callable[[], None]) -> None:
        self.pop(watcher, None)
