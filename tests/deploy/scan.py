"""Run in a tenant's pod (`python3 - ADDRESS...`, no packages): which ports answer there, and what each does for somebody without credentials. JSON out.

Every port of every address is tried. Each one that is open is spoken to as an HTTP client that changes things would, and as a client of a broker would, in
plain words and by TLS without a certificate.
"""

import json
import selectors
import socket
import ssl
import sys
import time
from typing import cast

CONNECT_S, ANSWER_S = 2.0, 2.0
AT_ONCE = 400
#: What mutating APIs of schedulers and webhooks are called, beside our own.
PATHS = (
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/metrics/queues",
    "/metrics/cards",
    "/filter",
    "/bind",
    "/webhook",
    "/refresh",
    "/v1/queues",
    "/debug/pprof",
    "/shutdown",
)
METHODS = ("POST", "PUT", "PATCH", "DELETE")
TO_BROKER = (
    b'CONNECT {"verbose":true,"headers":true}\r\nSUB > 1\r\nPUB hbox.v1.job.pending.0 2\r\n{}\r\n'
    b"PUB $JS.API.STREAM.LIST answer 0\r\n\r\nPING\r\n"
)


def open_ports(address: str) -> list[int]:
    found: list[int] = []
    ports = iter(range(1, 65536))
    waiting = selectors.DefaultSelector()
    begun: dict[socket.socket, float] = {}

    def begin() -> None:
        for port in ports:
            connection = socket.socket()
            connection.setblocking(False)
            if connection.connect_ex((address, port)) == 0:
                found.append(port)
                connection.close()
                continue
            waiting.register(connection, selectors.EVENT_WRITE, port)
            begun[connection] = time.monotonic()
            return

    def end(connection: socket.socket, port: int) -> None:
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and port:
            found.append(port)
        waiting.unregister(connection)
        connection.close()
        del begun[connection]
        begin()

    for _ in range(AT_ONCE):
        begin()
    while begun:
        for key, _ in waiting.select(0.2):
            end(cast("socket.socket", key.fileobj), key.data)
        late = time.monotonic() - CONNECT_S
        for connection in [c for c, since in begun.items() if since < late]:
            end(connection, 0)
    return sorted(found)


def _read(connection: socket.socket) -> tuple[bytes, str]:
    """What comes until the end, or for a while; and how it ended."""
    said = b""
    connection.settimeout(ANSWER_S)
    try:
        while len(said) < 65536 and (more := connection.recv(65536)):
            said += more
    except OSError as e:
        return said, str(e)
    return said, "end"


def http(address: str, port: int) -> dict[str, int]:
    """Status by method and path, of whoever speaks HTTP."""
    answers: dict[str, int] = {}
    for path in PATHS:
        for method in ("GET", *METHODS):
            with socket.create_connection((address, port), CONNECT_S) as connection:
                body = b"{}" if method != "GET" else b""
                head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)
                said, _ = _read(connection)
            if not said.startswith(b"HTTP/"):
                return {}
            answers[f"{method} {path}"] = int(said.split(maxsplit=2)[1])
    return answers


def broker(address: str, port: int, way: str) -> str:
    """What a broker says to who has no credentials, and how it ends: in plain words, by TLS after its first line, or by TLS from the start."""
    with socket.create_connection((address, port), CONNECT_S) as plain:
        plain.settimeout(ANSWER_S)
        connection: socket.socket = plain
        first = b""
        try:
            if way != "TLS":
                first = plain.recv(65536)
            if way != "plain":
                anybody = ssl.create_default_context()
                anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
                connection = anybody.wrap_socket(plain)
            connection.sendall(TO_BROKER)
        except OSError as e:
            return f"{first.decode(errors='replace')} {e}"
        said, end = _read(connection)
        return f"{(first + said).decode(errors='replace')} {end}"


def main() -> None:
    found: dict[str, dict[str, dict[str, object]]] = {}
    for address in sys.argv[1:]:
        for port in open_ports(address):
            said: dict[str, object] = {}
            found.setdefault(address, {})[str(port)] = said
            said["http"] = http(address, port)
            if not said["http"]:
                said |= {way: broker(address, port, way) for way in ("plain", "TLS after INFO", "TLS")}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
