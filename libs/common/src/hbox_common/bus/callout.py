"""The broker's authorization callout: admits agents by the tokens of their pods, each with permissions for its own node.

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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nats.aio.msg import Msg

from hbox_common.brokerkeys import account_signature, public_account_key
from hbox_common.clock import wall_s
from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.model.bounds import is_name

from .connection import Connection
from .users import CALLOUT_SUBJECT, Permissions, admitted_agent, agent_user

log = logging.getLogger(__name__)

#: Audience of agents' tokens: the API server itself does not accept them.
AUDIENCE = "hbox-bus"
NODE_EXTRA = "authentication.kubernetes.io/node-name"

#: Seconds for which a client is admitted.
LASTS_S = 3600
#: Seconds for a review; nats-server waits for 2 s in all.
REVIEW_S = 1.5
#: Reviews in progress; further questions get no answer, and those clients try again.
AT_ONCE = 64

#: A token's node. Raises InvalidRequest where the token gives no right to any, Unavailable.
Review = Callable[[str], Awaitable[str]]


class Callout:
    """Answers the questions of brokers. `issuer`: the seed of the account's key."""

    def __init__(self, issuer: str, review: Review) -> None:
        self._issuer, self._public, self._review = issuer, public_account_key(issuer), review
        self._answering: set[asyncio.Task[None]] = set()

    async def run(self, connection: Connection) -> None:
        """Answer until cancelled. Several processes may do so: the server takes the first answer."""

        def take(message: Msg) -> None:
            if len(self._answering) >= AT_ONCE:
                log.warning("%d clients are being reviewed; one more gets no answer and tries again", AT_ONCE)
                return
            task = asyncio.create_task(self._respond(connection, message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

        subscription = await connection.listen(CALLOUT_SUBJECT, take)
        try:
            await asyncio.Event().wait()
        finally:
            await connection.unsubscribe(subscription)

    async def _respond(self, connection: Connection, message: Msg) -> None:
        try:
            await connection.send(message.reply, await self.answer(message.data))
        except HBoxError as e:
            log.warning("a client gets no answer and tries again: %s", e)

    async def answer(self, question: bytes) -> bytes:
        """The JWT that admits the client or refuses it. Raises InvalidRequest for a question that is none."""
        asked = _claims(question)
        try:
            server, user = str(asked["server_id"]["id"]), str(asked["user_nkey"])
            host = str(asked.get("client_info", {}).get("host", ""))
            token = str(asked.get("connect_opts", {}).get("auth_token", ""))
        except (KeyError, TypeError, AttributeError) as e:
            raise InvalidRequest(f"the broker's question has no {e}") from e
        try:
            async with asyncio.timeout(REVIEW_S):
                node = await self._node(token)
        except (HBoxError, TimeoutError) as e:
            e = e if isinstance(e, HBoxError) else Unavailable(f"the API server did not review its token within {REVIEW_S:g} s")
            log.warning("a client at %s is not admitted: %s", host, e)
            return self._response(user, server, {"error": str(e)})
        log.info("the agent of node %s is admitted from %s", node, host)
        return self._response(user, server, {"jwt": self._user(user, node)})

    async def _node(self, token: str) -> str:
        if not token:
            raise InvalidRequest("it has neither a key nor a token")
        if not token.isascii() or not token.isprintable():
            raise InvalidRequest("its token is malformed")
        node = await self._review(token)
        if not is_name(node):
            raise InvalidRequest("its token names no node")
        return node

    def _user(self, user: str, node: str) -> str:
        rights = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, **_permissions(admitted_agent(node))}
        return self._signed(
            {"sub": user, "aud": "$G", "name": agent_user(node), "exp": int(wall_s()) + LASTS_S, "nats": rights}
        )

    def _response(self, user: str, server: str, outcome: Mapping[str, str]) -> bytes:
        claims = {"sub": user, "aud": server, "nats": {"type": "authorization_response", "version": 2, **outcome}}
        return self._signed(claims).encode()

    def _signed(self, claims: Mapping[str, Any]) -> str:
        claims = {**claims, "iss": self._public, "iat": int(wall_s())}
        id_ = base64.b32encode(hashlib.sha256(json.dumps(claims, sort_keys=True).encode()).digest()).decode().rstrip("=")
        text = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part({**claims, 'jti': id_})}"
        return f"{text}.{_base64(account_signature(self._issuer, text.encode()))}"


def reviewed_node(status: Mapping[str, Any], *, account: str) -> str:
    """The node that a TokenReview's status names. `account`: NAMESPACE:NAME of the agents' service account. Raises InvalidRequest."""
    user = status.get("user") or {}
    if status.get("authenticated") is not True or AUDIENCE not in (status.get("audiences") or ()):
        raise InvalidRequest("the API server does not accept its token: it is wrong, expired or for another audience")
    name = user.get("username")
    if name != f"system:serviceaccount:{account}":
        raise InvalidRequest(f"its token is of {name}, not of the agents' service account {account}")
    nodes: Sequence[Any] = (user.get("extra") or {}).get(NODE_EXTRA) or ()
    if len(nodes) != 1:
        raise InvalidRequest(
            "the API server names no node with its token",
            hint="this takes Kubernetes 1.30 or later; else set nats.agentsByNode=false",
        )
    return str(nodes[0])


def _permissions(permissions: Permissions) -> dict[str, Any]:
    publish = {"allow": list(permissions.publish), "deny": list(permissions.publish_denied)}
    return {"pub": publish, "sub": {"allow": list(permissions.subscribe)}}


def _claims(token: bytes) -> dict[str, Any]:
    """Of a question. Its signature is not checked: only the server can publish it."""
    try:
        body = token.split(b".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))["nats"]
        if not isinstance(claims, dict):
            raise TypeError("claims")
    except (IndexError, ValueError, KeyError, TypeError) as e:
        raise InvalidRequest("the broker's question is no JWT") from e
    return claims


def _part(content: Mapping[str, Any]) -> str:
    return _base64(json.dumps(content, separators=(",", ":")).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
