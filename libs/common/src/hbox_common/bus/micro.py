"""Endpoints for external clients, discoverable with NATS' own tools: the protocol of NATS micro services (ADR-32 of NATS), in JSON.

`nats micro ls | info | stats` send requests to `$SRV.PING`, `$SRV.INFO` and `$SRV.STATS`, each also with `.<name>` and `.<name>.<id>` appended. Endpoints are
plain subjects: the request is a JSON object, the answer is a JSON object or empty with the headers `Nats-Service-Error-Code` (400, 413, 500, 503) and
`Nats-Service-Error`. Requests between services, in msgpack pages (`rpc`), are listed and counted as well.

A reader of single queues publishes on a subject of its own, `<endpoint>.of.<queue>.<reader>`: the broker permits it no other subject (`users.read_only`), so
the subject authenticates reader and queue, and the body need not be trusted. The answer covers that queue only and is sent to that reader's inbox only: with
any other reply subject a reader could make the service publish in its own name.

nats-py's own `nats.micro` puts every endpoint into a queue group, in which a leader that hangs receives half of the requests of its successor (see `rpc`); it
answers requests one after the other, and sends the text of any exception to the client. So only the tests use it, as a client.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from time import perf_counter_ns
from typing import Any, NoReturn, TypeVar

from nats.aio.msg import Msg
from pydantic import BaseModel, ValidationError

from hbox_common.clock import monotonic_s, new_id
from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.events import token_of

from .connection import Connection, NoResponder
from .copies import is_request

log = logging.getLogger(__name__)

ERROR, ERROR_CODE = "Nats-Service-Error", "Nats-Service-Error-Code"
TYPE = "io.nats.micro.v1"
PREFIX = "hbox.v1.api"
OF = "of"  #: before a reader's queue and its name, in the subject that it asks on

M = TypeVar("M", bound=BaseModel)

#: Requests answered concurrently, and requests in the queue; further ones are rejected with a request to retry.
AT_ONCE, WAITING = 4, 64
ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint: `request` and `response` are the JSON models of its input and output."""

    name: str
    about: str
    request: type[BaseModel]
    response: type[BaseModel]
    #: if it raises InvalidRequest or Unavailable, the client receives that error; any other exception is reported as an internal failure
    answer: Callable[[Any], Awaitable[BaseModel]]
    of_queue: Callable[[Any, str], Awaitable[BaseModel]] | None = None
    #: The same for a reader of one queue, by `token_of` its name: what is about others is not in the answer. None: readers are not answered.

    def metadata(self) -> dict[str, str]:
        """As `nats micro info` shows it. Values are texts, so that schemas are JSON in them."""
        return {"about": self.about, "format": "application/json"} | _schemas(self.request, self.response)


@cache
def _schemas(request: type[BaseModel], response: type[BaseModel]) -> dict[str, str]:
    """Computed at the first request: at startup a service has no 5 ms to spare for each."""
    return {
        "request": json.dumps(request.model_json_schema()),
        "response": json.dumps(response.model_json_schema(mode="serialization")),
    }


@dataclass(slots=True)
class Listed:
    """An endpoint as others see it, with what it has answered. Times are nanoseconds."""

    name: str
    subject: str
    metadata: Callable[[], dict[str, str]]
    requests: int = 0
    errors: int = 0
    last_error: str = ""
    spent: int = 0

    def failed(self, error: str) -> None:
        self.errors, self.last_error = self.errors + 1, error

    def info(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "queue_group": "", "metadata": self.metadata()}

    def stats(self) -> dict[str, Any]:
        return {
            "name": self.name, "subject": self.subject, "queue_group": "", "num_requests": self.requests, "num_errors": self.errors,
            "last_error": self.last_error, "processing_time": self.spent, "average_processing_time": self.spent // max(1, self.requests),
            "data": None,
        }  # fmt: skip


@dataclass(slots=True)
class Directory:
    """All endpoints of one process."""

    id: str = field(default_factory=new_id)
    listed: list[Listed] = field(default_factory=list)

    def enter(self, name: str, subject: str, metadata: Callable[[], dict[str, str]]) -> Listed:
        """List an endpoint; if it is served again, its statistics continue."""
        for one in self.listed:
            if one.subject == subject:
                one.metadata = metadata  # the former one would keep all that its answerer holds
                return one
        one = Listed(name, subject, metadata)
        self.listed.append(one)
        return one


@dataclass(frozen=True, slots=True)
class _Asked:
    endpoint: Endpoint
    listed: Listed
    message: Msg
    queue: str = ""  #: the reader's, as a token; empty: who asks may see all


class MicroServer:
    """Answers the endpoints of one service, and discovery requests."""

    def __init__(
        self, connection: Connection, directory: Directory, endpoints: Sequence[Endpoint], *, version: str, about: str
    ) -> None:
        self._connection, self._directory, self._endpoints = connection, directory, endpoints
        self._name, self._version, self._about = f"hbox-{connection.name}", version, about
        self._started = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._asked: asyncio.Queue[_Asked] = asyncio.Queue(WAITING)

    async def run(self) -> NoReturn:
        """Until cancelled."""
        await self._connection.connected.wait()
        subscriptions = []
        try:
            for endpoint in self._endpoints:
                subject = f"{PREFIX}.{self._connection.name}.{endpoint.name}"
                listed = self._directory.enter(endpoint.name, subject, endpoint.metadata)
                subscriptions.append(await self._connection.subscribe(subject, self._take(endpoint, listed)))
                if endpoint.of_queue is not None:
                    subscriptions.append(await self._connection.subscribe(f"{subject}.{OF}.*.*", self._take(endpoint, listed)))
            for verb, content in {"PING": dict, "INFO": self._info, "STATS": self._stats}.items():
                respond = self._responder(verb, content)
                for subject in (verb, f"{verb}.{self._name}", f"{verb}.{self._name}.{self._directory.id}"):
                    subscriptions += [await self._connection.subscribe(f"$SRV.{subject}", respond)]
            async with asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(self._work())
        finally:
            for subscription in subscriptions:
                await self._connection.unsubscribe(subscription)
        raise AssertionError("answering has no end")

    # --- what there is

    def _info(self) -> dict[str, Any]:
        return {"description": self._about, "endpoints": [one.info() for one in self._directory.listed]}

    def _stats(self) -> dict[str, Any]:
        return {"started": self._started, "endpoints": [one.stats() for one in self._directory.listed]}

    def _responder(self, verb: str, content: Callable[[], dict[str, Any]]) -> Callable[[Msg], Awaitable[None]]:
        identity = {
            "type": f"{TYPE}.{verb.lower()}_response",
            "name": self._name,
            "id": self._directory.id,
            "version": self._version,
        }

        async def respond(message: Msg) -> None:
            if is_request(message.reply, message.headers):
                await self._send(message.reply, json.dumps({**identity, "metadata": {}, **content()}).encode())

        return respond

    # --- endpoints

    def _take(self, endpoint: Endpoint, listed: Listed) -> Callable[[Msg], Awaitable[None]]:
        async def take(message: Msg) -> None:
            queue, reader = _reader_of(message.subject, listed.subject)
            if not is_request(message.reply, message.headers) or (
                reader and not message.reply.startswith(f"{inbox_of(reader)}.")
            ):
                return
            listed.requests += 1
            asked = _Asked(endpoint, listed, message, queue)
            try:
                self._asked.put_nowait(asked)
            except asyncio.QueueFull:
                await self._refuse(asked, "503", "too many requests at once; ask again")

        return take

    async def _work(self) -> NoReturn:
        while True:
            asked = await self._asked.get()
            began = perf_counter_ns()
            await self._answer(asked)
            asked.listed.spent += perf_counter_ns() - began

    async def _answer(self, asked: _Asked) -> None:
        name = asked.endpoint.name
        try:
            request = _read(asked.endpoint, asked.message.data)
            async with asyncio.timeout(ANSWER_S):
                if asked.queue and asked.endpoint.of_queue is not None:
                    answer = await asked.endpoint.of_queue(request, asked.queue)
                else:
                    answer = await asked.endpoint.answer(request)
            body = answer.model_dump_json().encode()
        except InvalidRequest as e:
            return await self._refuse(asked, "400", f"{name}: {e}")
        except (Unavailable, TimeoutError) as e:
            why = str(e) or f"no answer within {ANSWER_S:g} s"
            return await self._refuse(asked, "503", f"{name}: {why}")
        except Exception as e:  # one request must not end the service
            log.exception("answering %s failed", asked.listed.subject)
            reason = e.message if isinstance(e, HBoxError) else type(e).__name__
            return await self._refuse(asked, "500", f"{name}: {reason}; see the log of {self._connection.name}")
        if len(body) > self._connection.max_payload:
            message = f"{name}: the answer has {len(body)} bytes, the broker takes {self._connection.max_payload}; ask for less"
            return await self._refuse(asked, "413", message)
        return await self._send(asked.message.reply, body)

    async def _refuse(self, asked: _Asked, code: str, reason: str) -> None:
        asked.listed.failed(f"{code}:{reason}")
        await self._send(asked.message.reply, headers={ERROR_CODE: code, ERROR: " ".join(reason.split())[:1000]})

    async def _send(self, reply: str, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        try:
            await self._connection.send(reply, body, headers=headers)
        except HBoxError as e:  # who asked asks again
            log.info("an answer was lost: %s", e)


def inbox_of(user: str) -> str:
    """Where the answers to a user of the broker come, as a prefix. `token_of` leaves a token as it is."""
    return f"_INBOX_{token_of(user)}"


def reader_subject(service: str, endpoint: str, queue: str, reader: str) -> str:
    """Where a reader of that queue asks."""
    return f"{PREFIX}.{service}.{endpoint}.{OF}.{token_of(queue)}.{token_of(reader)}"


def _reader_of(subject: str, endpoint: str) -> tuple[str, str]:
    """Queue token and reader in such a subject; empty for the endpoint's own subject."""
    if subject == endpoint:
        return "", ""
    _, queue, reader = subject.removeprefix(f"{endpoint}.").split(".")
    return queue, reader


async def call(
    connection: Connection, service: str, name: str, request: BaseModel, response: type[M], *, timeout_s: float
) -> M:
    """The answer of an endpoint. Raises InvalidRequest if the service rejects the request as invalid, Unavailable for every other failure."""
    body = request.model_dump_json(exclude_defaults=True).encode()
    until = monotonic_s() + timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            await connection.connected.wait()
    except TimeoutError as e:
        raise Unavailable(f"the broker was not reachable within {timeout_s:g} s", hint="is nats-server running?") from e
    try:
        answer = await connection.request(f"{PREFIX}.{service}.{name}", body, timeout_s=until - monotonic_s())
    except NoResponder as e:
        raise Unavailable(f"{service} does not answer: no process serves {name}", hint=f"is {service} running?") from e
    if code := (answer.headers or {}).get(ERROR_CODE):
        reason = (answer.headers or {}).get(ERROR, "")
        if code in ("400", "413"):
            raise InvalidRequest(reason)
        raise Unavailable(f"{service}: {reason}", hint="ask again; its log may say more")
    try:
        return response.model_validate_json(answer.data)
    except ValidationError as e:
        raise Unavailable(
            f"{service} answered something else than was asked for: {e}", hint="is it of the same version?"
        ) from e


def _read(endpoint: Endpoint, body: bytes) -> BaseModel:
    """An empty body is read as an empty object."""
    try:
        return endpoint.request.model_validate_json(body or b"{}")
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise InvalidRequest(f"{where}: {reason}" if where else reason) from e
