"""UFM's REST interface: a stranger, whatever it says.

Logged in to in four ways (basic, client certificate, session cookie, token); credentials are read from their folder at each login, so that they
may be rotated, and stand in no message. No redirect is followed, no certificate trusted but those of the given CA, and every answer is bounded in
size and time. The counters of /app/versioning are asked every few seconds, and ports and systems only when one of theirs moved; they are read page
by page, and again when a counter moved meanwhile, since pages are no snapshot. A page that says what it said before, byte for byte, is not parsed again: a
change of some cables is in a few pages of many. Events are advice on which changes to believe: an account that may not read them, or more of them than fit,
hold no fabric up. Facts and traps (sources: ufm-rest).
"""

import asyncio
import logging
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import aiohttp

from hbox_common.clock import monotonic_s
from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.model.fabric import Snapshot

from ..core.fabric.names import MAX_LINKS
from ..core.fabric.ufm import EventKind, UfmReading, event_of, integer, port_row, system_row, versions_of
from .fabricsfile import Auth, UfmSpec
from .jsonrows import Rows, read_rows
from .sources import Reading

log = logging.getLogger(__name__)

#: Bases by login.
_BASES = {Auth.BASIC: "/ufmRest", Auth.CERTIFICATE: "/ufmRestV2", Auth.SESSION: "/ufmRestV2", Auth.TOKEN: "/ufmRestV3"}
_CHUNK = 1 << 16
_MAX_SECRET = 16_384
#: Of small answers.
_SMALL = 8 << 20
#: Readings in a row during which a counter may move, before what was read counts as a snapshot after all.
_ATTEMPTS = 3
_MAX_PAGES = 100_000
#: A page that is longer is parsed as it comes, and anew each time.
_KEPT = 8 << 20

#: Of the time for a reading, what events may take; and how many there may be.
_EVENTS_PART, _MOST_EVENTS = 0.25, 100_000

_R = TypeVar("_R")


class UfmSource:
    """One UFM. To be used by one task."""

    kind = "ufm"

    def __init__(self, spec: UfmSpec) -> None:
        self._spec = spec
        self._session: aiohttp.ClientSession | None = None
        self._scheme = "Basic"  #: the word before a token: which one depends on the version
        self._logged_in = False
        self._fresh = True  #: nothing was answered under this login yet
        self._secret: dict[str, str] = {}
        self._versions: tuple[int, ...] | None = None
        self._read_at = -float("inf")
        self._last_event = -1
        self._no_events = ""  #: why they could not be read last
        self._cookies: dict[str, str] = {}
        self._kept: dict[str, _Page] = {}  #: by address, as read last
        self.rows_parsed = 0  #: so far
        self.poll_s = spec.poll_s

    async def close(self) -> None:
        self._logged_in = False
        if self._session is not None:
            await self._session.close()
            self._session = None

    def forget(self) -> None:
        """Read everything at the next poll."""
        self._versions = None

    async def read(self) -> Reading:
        """What is new; a reading without a snapshot where nothing is. Raises Unavailable and InvalidRequest, without credentials in either."""
        try:
            async with asyncio.timeout(self._spec.timeout_s):
                return await self._read()
        except TimeoutError as e:
            await self.close()
            raise Unavailable(f"UFM {self._spec.host} did not answer within {self._spec.timeout_s:g} s") from e
        except (aiohttp.ClientError, OSError, ssl.SSLError) as e:
            await self.close()
            raise Unavailable(f"UFM {self._spec.host}: {type(e).__name__}: {self._plain(str(e))}") from e
        except HBoxError:
            await self.close()  # whatever state the session is in
            raise

    async def _read(self) -> Reading:
        before = await self._counters()
        failovers, downs = await self._events()
        due = monotonic_s() - self._read_at >= self._spec.resync_s
        if before is not None and before == self._versions and not due:
            return Reading(None, failovers=failovers, downs=downs)
        for _ in range(_ATTEMPTS):
            snapshot = await self._snapshot()
            after = await self._counters()
            if after == before:
                break
            before = after
        self._versions, self._read_at = before, monotonic_s()
        return Reading(snapshot, failovers=failovers, downs=downs)

    async def _counters(self) -> tuple[int, ...] | None:
        """None where this version has none."""
        document = await self._document("/app/versioning")
        return None if document is None else versions_of(document)

    async def _events(self) -> tuple[int, int]:
        """Failovers, and links, nodes and switches that went down, since the last call. The first call counts none: all of them are old; so does the next one
        after one that failed, which is logged once."""
        why = ""
        try:
            async with asyncio.timeout(self._spec.timeout_s * _EVENTS_PART):
                return await self._count_events()
        except TimeoutError:
            why = f"no answer within {self._spec.timeout_s * _EVENTS_PART:g} s"
        except HBoxError as e:
            why = str(e)
        finally:
            if why and why != self._no_events:
                log.warning(
                    "UFM %s: events cannot be read, failovers and losses are judged without them: %s", self._spec.host, why
                )
            self._no_events = why
        self._last_event = -1
        return 0, 0

    async def _count_events(self) -> tuple[int, int]:
        newest, rows, found = 0, 0, {EventKind.FAILOVER: 0, EventKind.DOWN: 0}

        def take(row: Mapping[str, Any]) -> None:
            nonlocal newest, rows
            rows += 1
            if rows > _MOST_EVENTS:
                raise InvalidRequest(f"more than {_MOST_EVENTS} of them")
            event = event_of(row)
            if event is not None:
                newest = max(newest, event.number)
                found[event.kind] += event.number > self._last_event

        if await self._rows("/app/events", take, most=_SMALL * 4) is None:
            return 0, 0
        first, self._last_event = self._last_event < 0, newest  # which is less than it was where they are numbered anew
        return (0, 0) if first else (found[EventKind.FAILOVER], found[EventKind.DOWN])

    async def _snapshot(self) -> Snapshot:
        reading, kept = UfmReading(), self._kept
        self._kept = {}  # what is not read anew is gone
        systems, ports = "/resources/systems", "/resources/ports"
        if not await self._pages(systems, system_row, reading.system, kept):
            raise Unavailable(f"UFM {self._spec.host}: {systems} is empty, or not there")
        if not await self._pages(ports, port_row, reading.port, kept):
            raise Unavailable(f"UFM {self._spec.host}: {ports} is empty, or not there")
        return await asyncio.to_thread(reading.snapshot)

    async def _pages(
        self, path: str, parse: Callable[[Mapping[str, Any]], _R], take: Callable[[_R], None], kept: Mapping[str, "_Page"]
    ) -> int:
        """All rows of a collection, parsed; returns how many there were. A server that knows no pages says all of them at once. `kept`: pages as they were read
        last, by address."""
        total, bytes_left, digests = 0, self._spec.most_mib << 20, set[bytes]()

        def take_all(rows: Sequence[_R]) -> None:
            for row in rows:
                take(row)

        for page in range(1, _MAX_PAGES + 1):
            address = f"{path}?page_number={page}&rpp={self._spec.page}"
            answer = await self._page(address, parse, most=bytes_left, before=kept.get(address))
            if answer is None:
                break
            rows, bytes_left = answer.rows, bytes_left - answer.size
            if answer.digest in digests:
                raise Unavailable(f"UFM {self._spec.host}: page {page} of {path} repeats another page")
            digests.add(answer.digest)
            total += rows.count
            if total > MAX_LINKS:
                raise InvalidRequest(f"UFM {self._spec.host}: {path} has more than {MAX_LINKS} rows")
            await asyncio.to_thread(take_all, answer.parsed)
            if not rows.wrapped:
                break
            pages, resources = (
                integer(rows.fields.get("num_of_pages", 1)),
                integer(rows.fields.get("filtered_resources", total)),
            )
            if not 0 <= pages <= _MAX_PAGES or resources < 0:
                raise Unavailable(f"UFM {self._spec.host}: how many pages {path} has cannot be read")
            if page >= pages:
                if resources != total:
                    raise Unavailable(f"UFM {self._spec.host}: {path} announces {resources} rows and contains {total}")
                break
            if not rows.count:
                raise Unavailable(f"UFM {self._spec.host}: page {page} of {pages} of {path} is empty")
        return total

    # Requests.

    async def _page(
        self, address: str, parse: Callable[[Mapping[str, Any]], Any], *, most: int, before: "_Page | None"
    ) -> "_Page | None":
        """A page with its rows parsed: `before`, where it says the same. None as of `_rows`."""
        async with self._get(address) as response:
            if response is None:
                return None
            bounded, digest, held = _Bounded(response, most, self._spec.host), blake2b(digest_size=16), list[bytes]()
            chunks = bounded.read()
            async for chunk in chunks:
                digest.update(chunk)
                held.append(chunk)
                if bounded.size > _KEPT:
                    break
            whole = bounded.size <= _KEPT
            if whole and before is not None and before.digest == digest.digest():
                self._kept[address] = before
                return before
            parsed: list[Any] = []

            def take(row: Mapping[str, Any]) -> None:
                if len(parsed) >= MAX_LINKS:
                    raise InvalidRequest(f"UFM {self._spec.host}: a page of more than {MAX_LINKS} rows")
                parsed.append(parse(row))

            rows = await read_rows(_behind(held, chunks), take)
            self.rows_parsed += len(parsed)
            if not rows.listed:
                return None
            page = _Page(digest.digest(), rows, bounded.size, parsed)
            if whole:
                self._kept[address] = page
            return page

    async def _rows(self, path: str, take: Callable[[Mapping[str, Any]], None], *, most: int) -> tuple[Rows, int] | None:
        """Rows and bytes of a list; None where it is not there (404, or the empty object that some versions say instead)."""
        async with self._get(path) as response:
            if response is None:
                return None
            chunks = _Bounded(response, most, self._spec.host)
            rows = await read_rows(chunks.read(), take)
            return (rows, chunks.size) if rows.listed else None

    async def _document(self, path: str) -> Mapping[str, Any] | None:
        async with self._get(path) as response:
            if response is None:
                return None
            rows = await read_rows(_Bounded(response, _SMALL, self._spec.host).read(), lambda _: None)
            return rows.fields

    @asynccontextmanager
    async def _get(self, path: str) -> AsyncIterator[aiohttp.ClientResponse | None]:
        """None = 404."""
        response = await self._open(path)
        try:
            yield response
        finally:
            if response is not None:
                response.release()

    async def _open(self, path: str) -> aiohttp.ClientResponse | None:
        """A login that has ended is made anew, once; a token that is not taken under one word is sent under the other."""
        while True:
            if not self._logged_in:
                await self._log_in()
            assert self._session is not None
            url = f"{self._spec.url}{_BASES[self._spec.auth]}{path}"
            response = await self._session.get(url, headers=self._headers(), cookies=self._cookies, allow_redirects=False)
            if response.status == 404:
                response.release()
                return None
            ended = response.status in (301, 302, 303, 307, 308, 401) or "html" in response.content_type
            if response.status == 401 and self._spec.auth is Auth.TOKEN and self._scheme == "Basic":
                self._scheme = "Bearer"
            elif ended and not self._fresh:
                self._logged_in = False
            else:
                self._check(response, path)
                self._fresh = False
                return response
            response.release()

    def _check(self, response: aiohttp.ClientResponse, path: str) -> None:
        """Raises unless it is an answer."""
        where = f"UFM {self._spec.host}: GET {path.partition('?')[0]}"
        if response.status in (401, 403):
            self._scheme = "Basic"
            raise InvalidRequest(
                f"{where} answers {response.status}",
                hint=f"are the credentials in {self._spec.credentials} right for auth {self._spec.auth}?",
            )
        if 300 <= response.status < 400:
            raise Unavailable(
                f"{where} sends us elsewhere ({response.status}), and we do not go", hint="log in failed, or the url is wrong"
            )
        if response.status >= 400:
            raise Unavailable(f"{where} answers {response.status}")
        if "html" in response.content_type:
            raise Unavailable(f"{where} answers with a page of HTML", hint="the login has ended, or the url is wrong")

    # Logging in.

    async def _log_in(self) -> None:
        await self.close()
        spec = self._spec
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=await asyncio.to_thread(self._context), limit=2),
            timeout=aiohttp.ClientTimeout(total=None, connect=10.0, sock_read=min(30.0, spec.timeout_s)),
            cookie_jar=aiohttp.DummyCookieJar(),  # those of the login are all that we send, and they are bounded by its one answer
            trust_env=False,
        )
        self._cookies = {}
        self._secret = await asyncio.to_thread(self._credentials)
        if spec.auth is Auth.SESSION:
            form = {"httpd_username": self._secret["username"], "httpd_password": self._secret["password"]}
            async with self._session.post(f"{spec.url}/dologin", data=form, allow_redirects=False) as response:
                if response.status >= 400 or not response.cookies:
                    raise InvalidRequest(
                        f"UFM {spec.host}: /dologin answers {response.status}"
                        + ("" if response.cookies else " without a cookie"),
                        hint=f"are the credentials in {spec.credentials} right?",
                    )
                self._cookies = {name: morsel.value for name, morsel in response.cookies.items()}
        self._logged_in = self._fresh = True

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        if self._spec.auth is Auth.BASIC:
            pair = f"{self._secret['username']}:{self._secret['password']}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        elif self._spec.auth is Auth.TOKEN:
            headers["Authorization"] = f"{self._scheme} {self._secret['token']}"
        return headers

    def _context(self) -> ssl.SSLContext | bool:
        spec = self._spec
        if spec.url.startswith("http:"):
            return True
        try:
            context = ssl.create_default_context(cafile=None if spec.ca is None else str(spec.ca))
            if spec.auth is Auth.CERTIFICATE:
                context.load_cert_chain(spec.credentials / "tls.crt", spec.credentials / "tls.key")
        except (OSError, ssl.SSLError) as e:
            raise InvalidRequest(
                f"UFM {spec.host}: certificates of {spec.ca or spec.credentials} cannot be used: {e.strerror or e}"
            ) from e
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def _credentials(self) -> dict[str, str]:
        """Raises InvalidRequest that names the file."""
        wanted = {Auth.TOKEN: ("token",), Auth.CERTIFICATE: ()}.get(self._spec.auth, ("username", "password"))
        found = {}
        for name in wanted:
            path = self._spec.credentials / name
            try:
                with path.open("rb") as file:
                    text = file.read(_MAX_SECRET + 1).decode().strip()
            except (OSError, UnicodeDecodeError) as e:
                why = e.strerror if isinstance(e, OSError) else "is no text"
                raise InvalidRequest(f"UFM {self._spec.host}: {path}: {why}", hint=f"auth {self._spec.auth} needs it") from e
            if not text or len(text) > _MAX_SECRET or any(ord(char) < 32 for char in text):
                raise InvalidRequest(
                    f"UFM {self._spec.host}: {path} has to hold one line", hint=f"auth {self._spec.auth} needs it"
                )
            found[name] = text
        return found

    def _plain(self, text: str) -> str:
        """Without secrets, should a library print one."""
        for secret in self._secret.values():
            text = text.replace(secret, "***")
        return text[:300]


@dataclass(frozen=True, slots=True)
class _Page:
    """`digest`: of its bytes, so many as `size` says."""

    digest: bytes
    rows: Rows
    size: int
    parsed: Sequence[Any]


async def _behind(held: Sequence[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in held:
        yield chunk
    async for chunk in rest:
        yield chunk


class _Bounded:
    """A body in chunks, of no more than so many bytes; those that come one by one are gathered, since each chunk has the row that it cuts read anew."""

    def __init__(self, response: aiohttp.ClientResponse, most: int, host: str) -> None:
        self._response, self._most, self._host = response, most, host
        self.size = 0

    async def read(self) -> AsyncIterator[bytes]:
        gathered = bytearray()
        async for chunk in self._response.content.iter_chunked(_CHUNK):
            self.size += len(chunk)
            if self.size > self._most:
                raise Unavailable(f"UFM {self._host} sends more than {self._most >> 20} MiB")
            gathered += chunk
            if len(gathered) >= _CHUNK:
                yield bytes(gathered)
                gathered.clear()
        if gathered:
            yield bytes(gathered)
