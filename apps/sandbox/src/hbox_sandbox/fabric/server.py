"""An emulated UFM: its REST interface over a snapshot, with the four login methods and the faults of real ones.

async with UfmServer(FabricPlan().snapshot()) as ufm:
    ufm.url, ufm.token
    ufm.snapshot = ...                  # the fabric changed: counters move
    ufm.faults = Faults(down=True)
"""

import asyncio
import base64
import json
import ssl
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from aiohttp import web

from hbox_common.model.fabric import Snapshot

from . import rows

_LOGIN_PAGE = "<html><head><title>UFM Login</title></head></html>"


@dataclass(frozen=True, slots=True)
class Faults:
    """The injected faults."""

    down: bool = False  #: 503, as while it fails over
    slow_s: float = 0.0  #: delay of each response
    logged_out: bool = False  #: every request gets a login page with status 200
    redirects_to: str = ""  #: every response redirects to this URL
    pages: bool = True  #: False: a version without paging
    versioning: bool = True  #: False: a version without /app/versioning
    half_paged: bool = False  #: the last page of ports has no rows
    cut: bool = False  #: the body of ports ends in the middle
    hosts: float = 1.0  #: this share of the hosts is listed
    empty: bool = False  #: no rows at all
    moves: bool = False  #: counters move with every request
    garbage: bool = False  #: rows with wrong types, and text that is no GUID
    endless: str = ""  #: a body of ports without end: rows, nothing ({}), blanks, row (one), bomb (blanks, compressed), drip (a byte at a time), headers
    events: str = ""  #: of /app/events alone: denied, flood, hang
    hangs_s: float = 5.0
    announced_pages: Any = None  #: reported number of pages; None = the true one
    repeats: bool = False  #: every page is the first
    denies_page: int = 0  #: 401 for this page of ports, the first time
    status: int = 0  #: of every response
    retry_after: str = ""  #: the Retry-After header of these responses


@dataclass(eq=False)
class UfmServer:
    """`token`, `user` and `password` are what it takes; `asked` counts requests by path."""

    snapshot_: Snapshot
    user: str = "hbox"
    password: str = "secret-of-ufm"
    token: str = "T0KEN-OF-UFM"
    word: str = "Basic"  #: before the token, of those that this version takes
    faults: Faults = field(default_factory=Faults)
    events: list[dict[str, Any]] = field(default_factory=list)
    new_events: bool = True  #: the shape of events since 6.17
    asked: dict[str, int] = field(default_factory=dict)
    url: str = ""
    tls: ssl.SSLContext | None = None  #: its certificate; clients that show one that it trusts are let in at /ufmRestV2

    def __post_init__(self) -> None:
        self._counter = 1000
        self._cookies: set[str] = set()
        self._pages: dict[str, list[str]] = {}
        self._numbers = count(1)

    @property
    def snapshot(self) -> Snapshot:
        return self.snapshot_

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot) -> None:
        self.snapshot_ = snapshot
        self.move()

    def move(self, by: int = 1) -> None:
        """Counters move."""
        self._counter += by
        self._pages.clear()

    def fail(self, **faults: Any) -> None:
        """These faults from now on, and no others; counters move where they change rows."""
        before, self.faults = self.faults, Faults(**faults)
        if replace(before, down=False, slow_s=0, logged_out=False) != replace(
            self.faults, down=False, slow_s=0, logged_out=False
        ):
            self.move()

    def add_event(self, number: int, text: str = "") -> None:
        """An event happens: 329 link down, 331 node down, 512 and 602 failover, ..."""
        kind = {"type": "Site", "event_type": str(number)} if self.new_events else {"type": str(number)}
        self.events.append({"id": len(self.events) + 1, "name": text, "severity": "Warning", "description": text, **kind})

    def log_out(self) -> None:
        """Sessions end."""
        self._cookies.clear()

    async def __aenter__(self) -> "UfmServer":
        app = web.Application()
        app.router.add_post("/dologin", self._log_in)
        app.router.add_get("/{base}/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls)
        await site.start()
        self.url = f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    # Answers.

    async def _log_in(self, request: web.Request) -> web.Response:
        form = await request.post()
        if (form.get("httpd_username"), form.get("httpd_password")) != (self.user, self.password):
            return web.Response(status=401, text=_LOGIN_PAGE, content_type="text/html")
        cookie = f"session-{next(self._numbers)}"
        self._cookies.add(cookie)
        response = web.Response(status=302, headers={"Location": "/ufm_web/"})
        response.set_cookie("session", cookie)
        return response

    def _known(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization", "")
        match request.match_info["base"]:
            case "ufmRest":
                return given == "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            case "ufmRestV2":
                shown = request.transport.get_extra_info("peercert") if request.transport is not None else None
                return bool(shown) or request.cookies.get("session") in self._cookies
            case "ufmRestV3":
                return given == f"{self.word} {self.token}"
        return False

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"]
        self.asked[path] = self.asked.get(path, 0) + 1
        faults = self.faults
        if faults.slow_s:
            await asyncio.sleep(faults.slow_s)
        if faults.redirects_to:
            raise web.HTTPFound(faults.redirects_to)
        if faults.status:
            return web.Response(status=faults.status, headers={"Retry-After": faults.retry_after})
        if faults.down:
            return web.Response(status=503, text="<html>503 Service Unavailable</html>", content_type="text/html")
        if faults.logged_out:
            return web.Response(text=_LOGIN_PAGE, content_type="text/html")
        if not self._known(request):
            return web.Response(status=401, text="<html>401 Unauthorized</html>", content_type="text/html")
        if faults.endless and path == "/resources/ports":
            return await self._endless(request, faults.endless)
        if path == "/resources/ports" and request.query.get("page_number") == str(faults.denies_page):
            self.faults = replace(faults, denies_page=0)
            self.log_out()
            return web.Response(status=401)
        match path:
            case "/app/versioning" if faults.versioning:
                self._counter += faults.moves
                return web.json_response(
                    dict.fromkeys(("servers_version", "switches_version", "ports_version", "links_version"), self._counter)
                )
            case "/app/events" if faults.events:
                if faults.events == "hang":
                    await asyncio.sleep(faults.hangs_s)
                text = "[" + "{}," * 200_000 + "{}]" if faults.events == "flood" else "{}"
                return web.Response(
                    status=403 if faults.events == "denied" else 200, text=text, content_type="application/json"
                )
            case "/app/events":
                return web.json_response(self.events)
            case "/resources/systems" | "/resources/ports":
                return self._page(path, request.query)
        return web.json_response({}) if path.startswith("/resources") else web.Response(status=404)

    def warm(self) -> None:
        """Write all rows now instead of with the first request."""
        for path in ("/resources/systems", "/resources/ports"):
            self._pages[path] = [json.dumps(row) for row in self._rows(path)]

    def _page(self, path: str, query: Mapping[str, str]) -> web.Response:
        made = self._pages.get(path)
        if made is None:
            made = self._pages[path] = [json.dumps(row) for row in self._rows(path)]
        if not self.faults.pages or "page_number" not in query:
            return self._text(path, f"[{','.join(made)}]")
        page, size = int(query["page_number"]), int(query["rpp"])
        pages = -(-len(made) // size)
        part = made[:size] if self.faults.repeats else made[(page - 1) * size : page * size]
        if self.faults.half_paged and page == pages and path == "/resources/ports":
            part = []
        paging = {
            "total_resources": len(made),
            "filtered_resources": len(made),
            "num_of_pages": pages if self.faults.announced_pages is None else self.faults.announced_pages,
            "first_index": 1,
            "last_index": len(part),
        }
        return self._text(path, f'{json.dumps(paging)[:-1]}, "data": [{",".join(part)}]}}')

    def _text(self, path: str, text: str) -> web.Response:
        if self.faults.cut and path == "/resources/ports":
            text = text[: len(text) // 2]
        return web.Response(text=text, content_type="application/json")

    def _rows(self, path: str) -> Iterator[Any]:
        if self.faults.empty:
            return
        snapshot = self.snapshot_
        if self.faults.hosts < 1.0:
            hosts = sorted({link.host for link in snapshot.hosts})
            kept = set(hosts[: round(len(hosts) * self.faults.hosts)])
            snapshot = replace(snapshot, hosts=tuple(link for link in snapshot.hosts if link.host in kept))
        for number, row in enumerate(rows.systems(snapshot) if path.endswith("systems") else rows.ports(snapshot)):
            yield _bent(row, number) if self.faults.garbage else row

    async def _endless(self, request: web.Request, what: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if what == "headers":
            response.headers.update({f"X-{number}": "x" * 4000 for number in range(1000)})
        row = json.dumps(next(rows.ports(self.snapshot_))).encode() + b","
        part = {"rows": row, "nothing": b"{},", "row": b"x"}.get(what, b" ")
        begin, more = b'[{"guid": "' if what == "row" else b"[", part * (65_536 // len(part))
        if what == "bomb":
            response.headers["Content-Encoding"] = "gzip"
            bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
            begin, more = (
                bomb.compress(begin) + bomb.flush(zlib.Z_FULL_FLUSH),
                bomb.compress(b" " * (32 << 20)) + bomb.flush(zlib.Z_FULL_FLUSH),
            )
        await response.prepare(request)
        await response.write(begin)
        with suppress(ConnectionError):  # until the other side has enough
            while True:
                if what == "drip":
                    await response.write(b" ")
                    await asyncio.sleep(0.01)
                else:
                    await response.write(more)
        return response


def _bent(row: dict[str, Any], number: int) -> Any:
    """A row that no version of UFM returns."""
    wrong: list[dict[str, Any]] = [
        {"guid": None, "name": None}, {"number": "NaN"}, {"number": -3}, {"guid": {"a": []}}, {"peer": 17}, {"node_description": ["x"]},
        {"active_width": 10**30}, {"system_name": "x" * 100_000}, {"physical_state": None, "peer": None}, {"description": 0},
    ]  # fmt: skip
    return row | wrong[number % len(wrong)] if number % 3 else row
