"""The shell of a reflector: does the lists, watches and sleeps that it asks for, and hands its deltas on.

Batching needs no queue: while the handler works, events gather in the socket, and the next read takes all of them. A slow handler thus
slows the watch, in the worst case until the server ends it, which the reflector takes in its stride.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from random import Random
from typing import Generic, TypeVar

from hbox_common.clock import monotonic_s
from hbox_common.errors import Bug, HBoxError, Unavailable

from .objects import KubeObject
from .reflector import Delta, Effect, Emit, Expired, Failed, Lines, List, Page, Reflector, Sleep, StreamEnd, Tick, Watch
from .reflector import Event as ReflectorEvent
from .resources import Resource
from .status import Busy
from .status import Expired as ExpiredError
from .transport import KubeClient

T = TypeVar("T", bound=KubeObject)
Handler = Callable[[Sequence[Delta[T]]], Awaitable[None]]

_log = logging.getLogger(__name__)


class Informer(Generic[T]):
    """A live copy of one kind, or of a selection of it.

        pods = Informer(client, PODS, Pod, field_selector="spec.schedulerName=hbox")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pods.run(handle))
            await pods.synced.wait()

    `window_s`: the least time between two calls of the handler while watching. The first change of a quiet time is handed on at once,
    what follows within the window comes together. `watch_s`: how long one watch is asked to last; `inactivity_s`: how long it may be
    silent (the API server sends bookmarks every minute); `list_timeout_s`: for one page.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        type: type[T],  # it reads well where it is called
        *,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
        page_size: int = 500,
        window_s: float = 0.0,
        watch_s: float = 240.0,
        inactivity_s: float = 120.0,
        list_timeout_s: float = 60.0,
        rng: Random | None = None,
    ) -> None:
        self.synced = asyncio.Event()  #: set once the first list has been handled
        self.last_event_at = monotonic_s()  #: when the server last said anything, in monotonic seconds
        self._client = client
        self._path = resource.path(namespace)
        self._what = resource.plural
        self._selection = {
            key: value for key, value in (("fieldSelector", field_selector), ("labelSelector", label_selector)) if value
        }
        self._page_size = page_size
        self._window_s = window_s
        self._watch_s = watch_s
        self._inactivity_s = inactivity_s
        self._list_timeout_s = list_timeout_s
        self._rng = rng or Random()
        self._reflector: Reflector[T] = Reflector(type, self._rng)
        self._handed_on_at = float("-inf")

    @property
    def store(self) -> dict[str, T]:
        """The copy, by uid. It is the informer's: read it, between awaits, and do not change it."""
        return self._reflector.store

    @property
    def resource_version(self) -> str:
        return self._reflector.resource_version

    @property
    def relists(self) -> int:
        """Lists begun anew, after the first."""
        return self._reflector.relists

    @property
    def watches(self) -> int:
        """Watches begun."""
        return self._reflector.watches

    @property
    def decode_errors(self) -> int:
        """Objects skipped because they do not fit the type."""
        return self._reflector.decode_errors

    @property
    def last_error(self) -> str:
        """What is wrong at the moment, for people; empty when all is well."""
        return self._reflector.last_error

    async def run(self, handle: Handler[T]) -> None:
        """Lists, watches and hands deltas on until cancelled; only what `handle` raises ends it earlier.

        `handle` gets one call a page (at most `page_size` deltas) while listing, then one for each lot that the socket held.
        Called again after it was cancelled, it goes on where it stood; changes that `handle` was cut short in are not repeated.
        """
        effects = self._reflector.start()
        while True:
            *emits, then = effects  # a reflector out of a watch always ends with what to do next
            for emit in emits:
                assert isinstance(emit, Emit)
                await self._hand_on(emit, handle)
            match then:
                case List():
                    effects = self._reflector.step(await self._list(then))
                case Sleep(seconds):
                    _log.warning(
                        "%s: %s; trying again in %.1f s", self._what, self.last_error or "a watch ended at once", seconds
                    )
                    await asyncio.sleep(seconds)
                    effects = self._reflector.step(Tick())
                case Watch():
                    effects = await self._watch(then, handle)
                case Emit():
                    raise Bug("the reflector did not say what to do next")

    async def _hand_on(self, emit: Emit[T], handle: Handler[T]) -> None:
        for start in range(0, len(emit.deltas), self._page_size):
            await handle(emit.deltas[start : start + self._page_size])
        self._handed_on_at = monotonic_s()
        if emit.synced:
            self.synced.set()

    async def _list(self, effect: List) -> ReflectorEvent:
        params = {**self._selection, "limit": str(self._page_size)}
        if effect.continue_token:
            params["continue"] = effect.continue_token
        elif effect.resource_version:
            params["resourceVersion"] = effect.resource_version
        try:
            answer = await self._client.expected("GET", self._path, params=params, timeout_s=self._list_timeout_s)
        except HBoxError as e:
            return _what_happened(e)
        self.last_event_at = monotonic_s()
        return Page(answer.body)

    async def _watch(self, effect: Watch, handle: Handler[T]) -> list[Effect[T]]:
        """Hands on what the watch brings; returns what to do after it."""
        async with aclosing(self._watch_events(effect)) as events:
            async for event in events:
                effects = self._reflector.step(event)
                if effects and not isinstance(effects[-1], Emit):
                    return effects
                for emit in effects:
                    assert isinstance(emit, Emit)
                    await self._hand_on(emit, handle)
                    await asyncio.sleep(max(0.0, self._handed_on_at + self._window_s - monotonic_s()))
        raise Bug("a watch ended without an end")

    async def _watch_events(self, effect: Watch) -> AsyncGenerator[ReflectorEvent]:
        """Lines, and at last one event that is none. Errors of the transport end here, so that those of the handler do not."""
        params = {
            **self._selection,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": effect.resource_version,
            # Spread out, or the watches of a fleet that started together would end together for ever.
            "timeoutSeconds": str(int(self._watch_s * self._rng.uniform(1.0, 1.25))),
        }
        opened_at: float | None = None
        try:
            async with self._client.stream(self._path, params=params, inactivity_s=self._inactivity_s) as lots:
                opened_at = monotonic_s()
                async for lines in lots:
                    self.last_event_at = monotonic_s()
                    yield Lines(lines)
        except HBoxError as e:
            if opened_at is None:
                yield _what_happened(e)
                return
            _log.info("%s: the watch broke: %s", self._what, e)
        yield StreamEnd(monotonic_s() - opened_at)


def _what_happened(e: HBoxError) -> ReflectorEvent:
    if isinstance(e, ExpiredError):
        return Expired()
    if isinstance(e, Busy):
        return Failed(str(e), refused=e.http_status >= 500, retry_after_s=e.retry_after_s)
    return Failed(str(e), refused=not isinstance(e, Unavailable))
