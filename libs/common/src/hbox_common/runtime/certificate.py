"""The certificate of an endpoint: two files, as a Secret of cert-manager or of the chart is mounted, which are renewed while the service runs.

A connection takes the pair that is in force when it begins (by a callback of the handshake, which is asked also where a client names no server). A new pair
comes into force once it has been read whole, and certificate and key belong together; until then, and for a pair that is wrong, the former one stays: an API
server refuses what has expired by itself.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from hbox_common.errors import InvalidRequest
from hbox_common.x509 import Validity, in_pem

log = logging.getLogger(__name__)

EVERY_S = 2.0

#: Of one file: a chain of a handful of certificates is 10 KiB.
MOST_BYTES = 1 << 20


class Certificate:
    """`context`: for a server, whose connections have the pair in force. `problem`: why what the files say now is not; "" = it is. `client_ca`: certificates
    (PEM) of the authorities that sign the certificates of clients; a client may have one, and one of another authority ends its connection. "" = no client is
    asked for one.

    Raises InvalidRequest where there is no pair to begin with.
    """

    def __init__(self, certificate: Path, key: Path, *, client_ca: str = "") -> None:
        self._certificate, self._key = certificate, key
        self._client_ca = client_ca
        self.problem = ""
        self._seen = self._read()
        self._now, self.validity = self._load(self._seen)
        self.context = self._now
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._now

    def trust_clients_of(self, client_ca: str) -> None:
        """From the next connection on, clients may have certificates of these authorities. Only for an endpoint that began with some. Raises InvalidRequest."""
        former, self._client_ca = self._client_ca, client_ca
        try:
            self._now, self.validity = self._load(self._seen)
        except InvalidRequest:
            self._client_ca = former
            raise

    async def watch(self, changed: Callable[[], None]) -> NoReturn:
        """Report each new pair and each new problem, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            before = self.problem
            if await asyncio.to_thread(self.look) or self.problem != before:
                changed()

    def look(self) -> bool:
        """Whether there is a new pair."""
        try:
            seen = self._read()
            if seen == self._seen:
                self.problem = ""
                return False
            self._now, self.validity = self._load(seen)
        except InvalidRequest as e:
            if str(e) != self.problem:
                log.error("%s; the former certificate stays in use until %s", e, _day(self.validity.ends))
            self.problem = str(e)
            return False
        self._seen, self.problem = seen, ""
        log.info("a new certificate is in use, until %s", _day(self.validity.ends))
        return True

    def _read(self) -> tuple[bytes, bytes]:
        try:
            return _content(self._certificate), _content(self._key)
        except OSError as e:
            raise InvalidRequest(
                f"{e.filename} cannot be read: {e.strerror}", hint="mount the Secret with tls.crt and tls.key"
            ) from e

    def _load(self, read: tuple[bytes, bytes]) -> tuple[ssl.SSLContext, Validity]:
        context = _server_context()
        if self._client_ca:
            try:
                context.load_verify_locations(cadata=self._client_ca)
            except (OSError, ValueError) as e:
                raise InvalidRequest(f"the client CA is no certificate: {e}") from e
            context.verify_mode = ssl.CERT_OPTIONAL
        try:
            context.load_cert_chain(self._certificate, self._key)
            found = in_pem(read[0].decode("ascii", errors="replace"))[0]  # its own comes first
        except (OSError, InvalidRequest) as e:  # an SSLError is an OSError
            raise InvalidRequest(
                f"{self._certificate} and {self._key.name} are no certificate and its key: {e}",
                hint="PEM files that were made for one another",
            ) from e
        if self._read() != read:
            raise InvalidRequest(f"{self._certificate} changes while it is read")
        return context, found


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES)


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
