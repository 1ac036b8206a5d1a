"""The broker's authorization callout: admits programs on nodes (AGENT, REMEDY) by the tokens of their pods, each with permissions for its own node.

nats-server asks on `$SYS.REQ.USER.AUTH` about every client that has no key of its file, and takes an answer that the issuer's key signs (NATS ADR-26).
Questions and answers are JWTs with signatures of nkeys. Only the server can publish on that subject: no user's permissions include it.

The token is a service account's, bound to a pod and to the audience AUDIENCE; the API server reviews it and names the node of its pod
(`authentication.kubernetes.io/node-name`, Kubernetes 1.30 and later). The permissions end after LASTS_S: the server disconnects the agent, and the token is
reviewed anew. So an agent whose pod was deleted is out within LASTS_S.
"""

import asyncio
import base64
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg

from hbox_common.brokerkeys import account_signature, public_account_key
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.model.bounds import is_name

from .connection import Connection
from .users import CALLOUT_SUBJECT, SERVER_INBOX, Permissions, of_node

log = logging.getLogger(__name__)

#: Audience of agents' tokens: the API server itself does not accept them.
AUDIENCE = "hbox-bus"
NODE_EXTRA = "authentication.kubernetes.io/node-name"

#: Seconds for which a client is admitted.
LASTS_S = 3600
#: Seconds for a review; nats-server waits for 2 s in all.
REVIEW_S = 1.5
#: Reviews at a time.
AT_ONCE = 64
#: Clients that wait for a review, in all and at one address; further ones get no answer and try again.
WAITING, WAITING_OF_HOST = 1024, 4

#: Seconds between two warnings about clients that are not admitted.
WARNED_S = 1.0


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The pod of a token: its program, AGENT or REMEDY, and its node."""

    program: str
    node: str


#: Raises InvalidRequest where the token is none of such a pod, Unavailable.
Review = Callable[[str], Awaitable[Reviewed]]


@dataclass(frozen=True, slots=True)
class _Question:
    """About one client. `user`: the key that the broker made for it; `host`: its address."""

    server: str
    user: str
    host: str
    token: str


class Callout:
    """Answers the questions of brokers. `issuer`: the seed of the account's key."""

    def __init__(self, issuer: str, review: Review) -> None:
        self._issuer, self._public, self._review = issuer, public_account_key(issuer), review
        self._reviews = asyncio.Semaphore(AT_ONCE)
        self._answering: set[asyncio.Task[None]] = set()
        self._hosts: Counter[str] = Counter()  #: clients that wait, by address
        self._warned_at = -WARNED_S
        self._unwarned = 0

    async def run(self, connection: Connection) -> None:
        """Answer until cancelled. Several processes may do so: the server takes the first answer."""

        def take(message: Msg) -> None:
            if not message.reply.startswith(SERVER_INBOX):
                return  # not the server's: an answer of JetStream to a client that named this subject
            question = _question(message.data)
            if len(self._answering) >= WAITING or self._hosts[question.host] >= WAITING_OF_HOST:
                self._not_admitted(question, "too many clients wait for a review")
                return
            self._hosts[question.host] += 1
            task = asyncio.create_task(self._respond(connection, message.reply, question))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

        subscription = await connection.listen(CALLOUT_SUBJECT, take)
        try:
            await asyncio.Event().wait()
        finally:
            await connection.unsubscribe(subscription)

    async def _respond(self, connection: Connection, reply: str, question: _Question) -> None:
        """If the API server does not review the token, the client gets no answer: another process may have one, and else the client tries again."""
        try:
            async with asyncio.timeout(REVIEW_S), self._reviews:
                outcome = await self._outcome(question)
            await connection.send(reply, self._response(question, outcome))
        except (HBoxError, TimeoutError) as e:
            self._not_admitted(question, str(e) or f"the API server did not review its token within {REVIEW_S:g} s")
        finally:
            self._hosts[question.host] -= 1
            self._hosts += Counter()  # keeps no address without a client

    async def _outcome(self, question: _Question) -> Mapping[str, str]:
        try:
            pod = await self._reviewed(question.token)
        except InvalidRequest as e:
            self._not_admitted(question, str(e))
            return {"error": str(e)}
        log.info("%s of node %s is admitted from %s", pod.program, pod.node, question.host)
        return {"jwt": self._user(question.user, pod)}

    def _not_admitted(self, question: _Question, why: str) -> None:
        """Any pod may try as often as it likes, so most lines are left out."""
        self._unwarned += 1
        if monotonic_s() - self._warned_at >= WARNED_S:
            log.warning("a client at %s is not admitted: %s (%d since the last line)", question.host, why, self._unwarned)
            self._warned_at, self._unwarned = monotonic_s(), 0

    async def _reviewed(self, token: str) -> Reviewed:
        if not token:
            raise InvalidRequest("it has neither a key nor a token")
        if not token.isascii() or not token.isprintable():
            raise InvalidRequest("its token is malformed")
        pod = await self._review(token)
        if not is_name(pod.node):
            raise InvalidRequest("its token names no node")
        return pod

    def _user(self, user: str, pod: Reviewed) -> str:
        name, permissions = of_node(pod.program, pod.node)
        rights = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, **_permissions(permissions)}
        return self._signed({"sub": user, "aud": "$G", "name": name, "exp": int(wall_s()) + LASTS_S, "nats": rights})

    def _response(self, question: _Question, outcome: Mapping[str, str]) -> bytes:
        claims = {
            "sub": question.user,
            "aud": question.server,
            "nats": {"type": "authorization_response", "version": 2, **outcome},
        }
        return self._signed(claims).encode()

    def _signed(self, claims: Mapping[str, Any]) -> str:
        claims = {**claims, "iss": self._public, "iat": int(wall_s())}
        id_ = base64.b32encode(hashlib.sha256(json.dumps(claims, sort_keys=True).encode()).digest()).decode().rstrip("=")
        text = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part({**claims, 'jti': id_})}"
        return f"{text}.{_base64(account_signature(self._issuer, text.encode()))}"


def reviewed(status: Mapping[str, Any], *, accounts: Mapping[str, str]) -> Reviewed:
    """The pod that a TokenReview's status names. `accounts`: AGENT or REMEDY by service account, NAMESPACE:NAME. Raises InvalidRequest."""
    user = status.get("user") or {}
    if status.get("authenticated") is not True or AUDIENCE not in (status.get("audiences") or ()):
        raise InvalidRequest("the API server does not accept its token: it is wrong, expired or for another audience")
    name = user.get("username")
    programs = {f"system:serviceaccount:{account}": program for account, program in accounts.items()}
    if name not in programs:
        raise InvalidRequest(f"its token is of {name}, not of the service account {' or '.join(accounts)}")
    nodes: Sequence[Any] = (user.get("extra") or {}).get(NODE_EXTRA) or ()
    if len(nodes) != 1:
        raise InvalidRequest(
            "the API server names no node with its token",
            hint="this takes Kubernetes 1.30 or later; else set nats.agentsByNode=false",
        )
    return Reviewed(programs[name], str(nodes[0]))


def _permissions(permissions: Permissions) -> dict[str, Any]:
    publish = {"allow": list(permissions.publish), "deny": list(permissions.publish_denied)}
    return {"pub": publish, "sub": {"allow": list(permissions.subscribe)}}


def _question(token: bytes) -> _Question:
    """Raises InvalidRequest. The signature is not checked: only the server can publish on the subject."""
    try:
        body = token.split(b".")[1]
        asked = json.loads(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))["nats"]
        client, options = asked.get("client_info", {}), asked.get("connect_opts", {})
        return _Question(
            str(asked["server_id"]["id"]),
            str(asked["user_nkey"]),
            str(client.get("host", "")),
            str(options.get("auth_token", "")),
        )
    except (IndexError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise InvalidRequest(f"the broker's question is none: {e}") from e


def _part(content: Mapping[str, Any]) -> str:
    return _base64(json.dumps(content, separators=(",", ":")).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
