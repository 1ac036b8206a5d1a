"""Requests for JSON: TLS always verified, bounded in time and size, credentials over TLS or the loopback only, redirects within one server only.

The standard library's client: aiohttp takes 190 ms to import, longer than a short command may run.
"""

import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound, Unavailable

from .credentials import Credentials, Presented, tls_context

CONNECT_S = 5.0
ANSWER_S = 30.0  #: from the request to the answer's last byte
MAX_BYTES = 64 << 20
REDIRECTS = 3
PAGES = 10_000
_CHUNK = 1 << 20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server, and how to verify it."""

    base: str  #: scheme, host, port and perhaps a path, without a slash at the end
    ca: str | None = None  #: PEM; None = the machine's own authorities
    server_name: str | None = None
    proxy: str | None = None


class NotServed(NotFound):
    """The server has no such path: it is older than this command."""


class Server:
    """One server as one user; connections are kept. Not safe for several threads."""

    def __init__(self, endpoint: Endpoint, credentials: Credentials, *, what: str, answer_s: float = ANSWER_S) -> None:
        """`what`: names the server in errors, such as `HBox's server`. `answer_s`: as ANSWER_S. Raises InvalidRequest for an address that is
        none."""
        self._endpoint, self._credentials, self.what, self._answer_s = endpoint, credentials, what, answer_s
        self._url = urlsplit(endpoint.base)
        try:
            port = self._url.port
        except ValueError:
            port = 0
        if self._url.scheme not in ("http", "https") or not self._url.hostname or port == 0 or self._url.username:
            raise InvalidRequest(f"{endpoint.base!r} is no address of a server", hint="write it like https://host:port")
        self._presented: Presented | None = None
        self._connection: HTTPConnection | None = None

    @property
    def base(self) -> str:
        return self._endpoint.base

    @property
    def ca(self) -> str | None:
        """Of its certificate, as PEM."""
        return self._endpoint.ca

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        """The answer's JSON. Raises Unavailable, NotFound, Conflict or InvalidRequest (with `HTTP 403` in the message where it is not allowed)."""
        target = self._target(path, params)
        for _ in range(REDIRECTS + 1):
            status, headers, body = self._answer(target)
            if status not in (301, 302, 303, 307, 308):
                return self._content(status, headers, body, f"GET {path}")
            target = self._redirected(target, headers.get("location") or "")
        raise Unavailable(f"{self.what} at {self.base} redirects more than {REDIRECTS} times", hint="hbox ctx show --origin")

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Any:
        """The answer's JSON to a write, which is sent once and follows no redirect. Raises as `get`; Unavailable with `outcome_unknown` if no answer came."""
        data = None if body is None else json.dumps(body).encode()
        try:
            status, headers, answer = self._exchange(self._target(path, params), method, data, content_type)
        except (HTTPException, OSError) as e:
            self.close()
            raise self._silent(e, outcome_unknown=True) from e
        return self._content(status, headers, answer, f"{method} {path}")

    def lines(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """The lines of a text as they arrive, such as a log; no time limit between two. Raises as `get`."""
        self.close()
        try:
            answer, sock = self._open(self._target(path, params), "GET", None, "")
            if answer.status != 200:
                headers = {name.lower(): value for name, value in answer.getheaders()}
                self._content(answer.status, headers, answer.read(_CHUNK), f"GET {path}")
            sock.settimeout(None)
            yield from answer
        except (HTTPException, OSError) as e:
            raise self._silent(e) from e
        finally:
            self.close()

    def _target(self, path: str, params: Mapping[str, str] | None) -> str:
        return self._url.path.rstrip("/") + path + (f"?{urlencode(params)}" if params else "")

    def pages(self, path: str, params: Mapping[str, str], *, limit: int) -> Iterator[Any]:
        """The pages of a list, each a document with `items` and `metadata.continue`; the list begins anew at most once, if its cursor expired."""
        cursor, seen = "", set[str]()
        for _ in range(PAGES):
            page = self.get(path, {**params, "limit": str(limit), **({"continue": cursor} if cursor else {})})
            if not isinstance(page, Mapping) or not isinstance(page.get("items"), list):
                raise self.odd(path)
            yield page
            metadata = page.get("metadata")
            cursor = str(metadata.get("continue") or "") if isinstance(metadata, Mapping) else ""
            if not cursor:
                return
            if cursor in seen:
                raise self.odd(path)
            seen.add(cursor)
        raise self.odd(path)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _answer(self, target: str) -> tuple[int, Mapping[str, str], bytes]:
        kept = self._connection is not None
        try:
            return self._exchange(target)
        except (HTTPException, OSError) as e:
            self.close()
            if isinstance(e, ssl.SSLCertVerificationError):
                raise Unavailable(
                    f"the certificate of {self.what} at {self.base} is not valid: {e.verify_message}",
                    hint="check the URL and the CA: `hbox ctx show --origin`",
                ) from e
            if not kept or isinstance(e, TimeoutError):
                raise self._silent(e) from e
        try:  # the server closed a connection that was kept; a GET may be repeated
            return self._exchange(target)
        except (HTTPException, OSError) as e:
            self.close()
            raise self._silent(e) from e

    def _silent(self, error: Exception, *, outcome_unknown: bool = False) -> Unavailable:
        hint = "hbox ctx show --origin"
        if isinstance(error, IncompleteRead | _TooLong):
            what = "the connection ended before the answer did" if isinstance(error, IncompleteRead) else str(error)
            return Unavailable(
                f"{self.what} at {self.base} gave no whole answer: {what}", hint=hint, outcome_unknown=outcome_unknown
            )
        reason = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return Unavailable(f"{self.what} at {self.base} does not answer: {reason}", hint=hint, outcome_unknown=outcome_unknown)

    def _exchange(
        self, target: str, method: str = "GET", data: bytes | None = None, content_type: str = ""
    ) -> tuple[int, Mapping[str, str], bytes]:
        deadline = time.monotonic() + self._answer_s
        answer, sock = self._open(target, method, data, content_type)
        body = _body(answer, deadline, sock)
        if answer.will_close:
            self.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body

    def _open(self, target: str, method: str, data: bytes | None, content_type: str) -> tuple[HTTPResponse, socket.socket]:
        presented = self._present()
        if self._connection is None:
            self._connection = self._connect(presented)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "hbox"}
        if data is not None:
            headers["Content-Type"] = content_type
        if presented.token:
            headers["Authorization"] = f"Bearer {presented.token}"
        self._connection.request(method, target, body=data, headers=headers)
        sock = self._connection.sock  # the connection forgets it where the server closes
        return self._connection.getresponse(), sock

    def _present(self) -> Presented:
        """Credentials, once a command; none over an unencrypted connection that leaves this machine."""
        if self._presented is None:
            presented = self._credentials.present(now=time.time())
            if presented != Presented() and self._url.scheme != "https" and self._url.hostname not in _LOOPBACK:
                raise InvalidRequest(
                    f"{self.base} is not encrypted: hbox sends no credentials there", hint="use an https:// address"
                )
            self._presented = presented
        return self._presented

    def _connect(self, presented: Presented) -> HTTPConnection:
        host, port = str(self._url.hostname), self._url.port
        secure = self._url.scheme == "https"
        proxy = self._endpoint.proxy or _proxy_of(self._url.scheme, host)
        via = urlsplit(proxy) if proxy else None
        to = (str(via.hostname), via.port or 80) if via is not None else (host, port or (443 if secure else 80))
        connection: HTTPConnection
        if secure:
            context = tls_context(self._endpoint.ca, presented)
            connection = _Verified(*to, timeout=CONNECT_S, context=context)
            connection.server_name = self._endpoint.server_name
        else:
            connection = HTTPConnection(*to, timeout=CONNECT_S)
        if via is not None:
            connection.set_tunnel(host, port or (443 if secure else 80))
        connection.connect()
        connection.sock.settimeout(self._answer_s)
        return connection

    def _redirected(self, target: str, location: str) -> str:
        here = urlsplit(urljoin(f"{self._url.scheme}://{self._url.netloc}{target}", location))
        if not location or (here.scheme, here.netloc) != (self._url.scheme, self._url.netloc):
            raise Unavailable(
                f"{self.what} at {self.base} redirects to another host, which hbox does not follow",
                hint="hbox ctx show --origin",
            )
        return here.path + (f"?{here.query}" if here.query else "")

    def _content(self, status: int, headers: Mapping[str, str], body: bytes, request: str) -> Any:
        content: Any = None
        good = status in (200, 201, 202)
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            if good:
                raise self.odd(request.partition(" ")[2]) from None
        if good:
            return content
        token = self._presented.token if self._presented is not None else None
        if token and isinstance(content, Mapping):  # a server may quote the request
            content = {name: _without(value, token) for name, value in content.items()}
        raise error_of(status, content, headers, what=f"{self.what} at {self.base}, {request}")

    def odd(self, path: str) -> Unavailable:
        """The error where an answer is JSON of another form."""
        return Unavailable(
            f"{self.what} at {self.base} answered GET {path} with something else than HBox's API", hint="hbox ctx show --origin"
        )


class _TooLong(OSError):
    pass


def _without(value: object, token: str) -> object:
    return value.replace(token, "***") if isinstance(value, str) else value


class _Verified(HTTPSConnection):
    """Expects the name in the certificate that a kubeconfig names (`tls-server-name`)."""

    server_name: str | None = None

    def connect(self) -> None:
        HTTPConnection.connect(self)
        name = self.server_name or getattr(self, "_tunnel_host", None) or self.host
        context: ssl.SSLContext = self._context  # type: ignore[attr-defined]
        self.sock = context.wrap_socket(self.sock, server_hostname=name)


def error_of(status: int, content: Any, headers: Mapping[str, str], *, what: str) -> HBoxError:
    """The error of a problem document (RFC 9457), or of a Status of the Kubernetes API."""
    fields = content if isinstance(content, Mapping) else {}
    detail = str(fields.get("detail") or fields.get("message") or fields.get("title") or "")
    hint = str(fields.get("hint") or "")
    message = f"{detail or what} (HTTP {status}{', ' + str(fields['code']) if isinstance(fields.get('code'), str) else ''})"
    match status:
        case 401:
            return InvalidRequest(
                message, hint=hint or "log in again: `hbox ctx login`; `hbox ctx show --origin` names the credentials"
            )
        case 403:
            return InvalidRequest(message, hint=hint or "ask for the right, or use credentials that have it: --context")
        case 404 if not detail or fields.get("code") == "NotServed":
            return NotServed(f"{what} is not served", hint="the server may be older than this hbox")
        case 404:
            return NotFound(detail, hint=hint)
        case 409 | 410 | 412:
            return Conflict(message, hint=hint)
        case 408 | 429:
            return Unavailable(
                message, hint=hint or "try again in a moment", retry_after_s=_seconds(headers.get("retry-after"))
            )
        case _ if status >= 500:
            return Unavailable(
                message, hint=hint or "hbox ctx show --origin", retry_after_s=_seconds(headers.get("retry-after"))
            )
        case _:
            return InvalidRequest(message, hint=hint)


def _body(answer: HTTPResponse, deadline: float, sock: socket.socket | None) -> bytes:
    """Raises TimeoutError at the deadline, also where a server sends a byte now and then."""
    parts: list[bytes] = []
    size = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if sock is not None:
            sock.settimeout(left)
        part = answer.read1(_CHUNK)
        if not part:
            if answer.length:
                raise IncompleteRead(b"", answer.length)
            answer.close()  # `read1` leaves an answer open that is read to its end, and the connection then takes no other request
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise _TooLong(f"it has more than {MAX_BYTES >> 20} MiB")


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None


def _proxy_of(scheme: str, host: str) -> str | None:
    """By the environment, which few have set: the standard library's reader takes 50 ms to import."""
    import os  # noqa: PLC0415

    if host in _LOOPBACK or not any(name.lower() in (f"{scheme}_proxy", "all_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined] # noqa: PLC0415

    proxies: dict[str, str] = getproxies_environment()
    if proxy_bypass_environment(host, proxies):
        return None
    found = proxies.get(scheme) or proxies.get("all")
    if found is not None and not found.startswith("http://"):
        raise InvalidRequest(
            f"proxy {found}: hbox supports http:// proxies only", hint=f"set NO_PROXY={host}, or another proxy"
        )
    return found
