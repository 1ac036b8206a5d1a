"""Jobs from job-controller through the broker, as rows of JSON, with a client of NATS' protocol that can send one request and nothing else.

The platform's own client and the message models take ten times as long to import as this takes to list 500 jobs; items are the same from both.
"""

import base64
import json
import secrets
import socket
import ssl
import time
from contextlib import suppress
from typing import IO, Any
from urllib.parse import SplitResult, urlsplit

from hbox_common.errors import HBoxError, Unavailable

from ..platform.layout import Running
from .source import Item, Wanted

#: The user of the broker, and the subject of the endpoint: as `hbox_common.bus` names them, whose import takes a second.
USER, SUBJECT = "hbox-cli", "hbox.v1.api.job-controller.listing"
CONNECT_S, ANSWER_S = 5.0, 10.0
PORT = 4222
#: The broker's own limit is 1 MiB by default.
MAX_ANSWER = 64 * 2**20


def broker_jobs(running: Running, wanted: Wanted) -> list[Item] | None:
    """Oldest first; None if the broker or an older job-controller does not answer so: then the platform's own client asks, and reports why."""
    for url in running.nats_url.split(","):
        with suppress(OSError, ValueError, KeyError, HBoxError):
            found = json.loads(_answer(running, url.strip()))
            return wanted.of(found["items"])
    return None


def _answer(running: Running, url: str) -> bytes:
    """The broker's answer to one request without parameters. Raises OSError, ValueError, Unavailable for an answer that is an error."""
    server = urlsplit(url if "://" in url else f"nats://{url}")
    with socket.create_connection((server.hostname, server.port or PORT), timeout=CONNECT_S) as plain:
        info = json.loads(_line(plain).removeprefix(b"INFO "))
        if not (server.scheme == "tls" or running.nats_ca or info.get("tls_required")):
            return _asked(plain, running, server, info)
        context = ssl.create_default_context(cafile=running.nats_ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with context.wrap_socket(plain, server_hostname=server.hostname) as encrypted:
            return _asked(encrypted, running, server, info)


def _asked(connection: socket.socket, running: Running, server: SplitResult, info: dict[str, Any]) -> bytes:
    connection.settimeout(ANSWER_S)
    inbox = f"_INBOX_{USER}.{secrets.token_hex(8)}"
    hello = {"verbose": False, "pedantic": False, "lang": "hbox", "version": "1", "protocol": 1, "name": USER}
    hello |= {"headers": True, "no_responders": True, **_identity(running, str(info.get("nonce", "")))}
    if server.username:
        hello |= {"user": server.username, "pass": server.password or ""}
    lines = (f"CONNECT {json.dumps(hello)}", f"SUB {inbox} 1", f"PUB {SUBJECT} {inbox} 2", "{}", "")
    connection.sendall("\r\n".join(lines).encode())
    with connection.makefile("rb") as received:
        return _message(connection, received)


def _line(connection: socket.socket) -> bytes:
    """The first line, byte by byte: what follows it may be encrypted."""
    found = bytearray()
    while not found.endswith(b"\r\n") and len(found) < MAX_ANSWER:
        byte = connection.recv(1)
        if not byte:
            raise OSError("the broker closed the connection")
        found += byte
    return bytes(found)


def _identity(running: Running, nonce: str) -> dict[str, Any]:
    """The user's public key and the signed nonce; nothing where the broker is open. Raises InvalidRequest."""
    seed_file = running.nats_seed(USER)
    if seed_file is None:
        return {}
    from hbox_common.brokerkeys import public_key, read_seed, signature  # noqa: PLC0415  only where the broker is closed

    seed = read_seed(seed_file)
    signed = base64.urlsafe_b64encode(signature(seed, nonce.encode())).decode().rstrip("=")
    return {"nkey": public_key(seed), "sig": signed}


def _message(connection: socket.socket, received: IO[bytes]) -> bytes:
    """The body of the first message. Raises OSError, ValueError, Unavailable."""
    until = time.monotonic() + ANSWER_S
    while time.monotonic() < until:
        line = received.readline(MAX_ANSWER)
        verb, *fields = line.split()
        match verb.upper():
            case b"PING":
                connection.sendall(b"PONG\r\n")
            case b"MSG":
                return _exactly(received, int(fields[-1]))
            case b"HMSG":
                headers, whole = int(fields[-2]), int(fields[-1])
                content = _exactly(received, whole)
                if b"\r\nNats-Service-Error" in content[:headers] or content.startswith(b"NATS/1.0 503"):
                    raise Unavailable("job-controller answers no such request")
                return content[headers:]
            case b"-ERR":
                raise Unavailable(f"the broker refuses: {line.decode('utf-8', 'replace').strip()}")
    raise OSError("no answer in time")


def _exactly(received: IO[bytes], count: int) -> bytes:
    if count > MAX_ANSWER:
        raise ValueError("too large")
    content = received.read(count)
    if len(content) != count:
        raise OSError("the broker closed the connection")
    return content
