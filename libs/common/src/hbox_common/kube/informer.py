"""The shell of a reflector: does the lists, watches and sleeps that it asks for, and hands its deltas on.

Batching needs no queue: while the handler works, events gather in the socket, and the next read takes all of them. A slow handler thus
slows the watch, in the worst case until the server ends it, which the reflector takes in its stride.

Watches are short, since only the end of one is sure to bring a bookmark, and each is held against a consistent sample: see `freshness`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from random import Random
from typing import Generic, TypeVar

import msgspec

from hbox_common.clock import monotonic_s
from hbox_common.errors import Bug, HBoxError, Unavailable

from .freshness import OLD_S, Freshness, Proof
from .http1 import MAX_BODY_BYTES
from .nesting import decoded
from .objects import KubeObject
from .reflector import Delta, Effect, Emit, Expired, Failed, Lines, List, Page, Reflector, Sleep, StreamEnd, Tick, Watch
from .reflector import Event as ReflectorEvent
from .resources import Resource
from .status import Busy
from .status import Expired as ExpiredError
from .transport import KubeClient, TooLarge

T = TypeVar("T", bound=KubeObject)
Handler = Callable[[Sequence[Delta[T]]], Awaitable[None]]

_log = logging.getLogger(__name__)

#: How long a watch is asked to last. A bookmark comes 2 s before its end, and up to 1.3 s later.
WATCH_S = 6.0
#: One that has to show soon that it is alive: the shortest for which a bookmark comes.
DOUBTFUL_WATCH_S = 3.0
#: A watch that has not ended so long after its time is dead.
GRACE_S = 2.0
#: Of one page of a list, where it has several objects.
PAGE_BYTES = 32 * 2**20
_LAGS = "the watch lags behind the store, or its API server does"
_WENT_BACK = "the store's revision is older than the copy's, as after a restore from a backup"
#: For a sample to be answered.
SAMPLE_S = 5.0


class Informer(Generic[T]):
    """A live copy of one kind, or of a selection of it.

        pods = Informer(client, PODS, Pod, field_selector="spec.schedulerName=hbox")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pods.run(handle))
            await pods.synced.wait()

    `window_s`: minimum time between two calls of the handler while watching. The first change after a quiet time is delivered at once; changes within the
    window are delivered together. `watch_s`: requested duration of one watch; `list_timeout_s`: timeout of one page. `keep`: reduces an object to what the copy
    stores, if the consumer stores the rest in its own form; `old` in deltas is the reduced object. `enrich`: adds to a decoded object information that only its
    bytes contain.
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
        watch_s: float = WATCH_S,
        list_timeout_s: float = 60.0,
        rng: Random | None = None,
        keep: Callable[[T], T] | None = None,
        enrich: Callable[[T, bytes], T] | None = None,
    ) -> None:
        self.synced = asyncio.Event()  #: set once the first list has been handled
        self._client = client
        self._path = resource.path(namespace)
        self._what = resource.plural
        self._selection = {
            key: value for key, value in (("fieldSelector", field_selector), ("labelSelector", label_selector)) if value
        }
        self._page_size = self._limit = page_size
        self._window_s = window_s
        self._watch_s = watch_s
        self._list_timeout_s = list_timeout_s
        self._rng = rng or Random()
        self._reflector: Reflector[T] = Reflector(type, self._rng, keep=keep, enrich=enrich)
        self._handed_on_at = float("-inf")
        self._proof = Proof()
        self._listed_at = 0.0  # when the first page of the list under way was asked for
        self._no_sample = ""  # why
        self._delivered = ""

    @property
    def store(self) -> dict[str, T]:
        """The copy, by uid. It is the informer's: read it, between awaits, and do not change it."""
        return self._reflector.store

    @property
    def resource_version(self) -> str:
        return self._reflector.resource_version

    @property
    def delivered(self) -> str:
        """The resourceVersion up to which the handler has received all changes; empty before the first list."""
        return self._delivered

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

    def freshness(self) -> Freshness:
        """How far the copy can be trusted now."""
        age_s = monotonic_s() - self._proof.proven_at
        return Freshness(self._reflector.resource_version, age_s, self.last_error or self._no_sample)

    async def run(self, handle: Handler[T]) -> None:
        """Lists, watches and delivers deltas until cancelled; only an exception of `handle` ends it earlier.

        `handle` is called once per page (at most `page_size` deltas) while listing, then once for each block of data read from the socket. If called again
        after a cancellation, it resumes at the last position; changes whose `handle` was interrupted are not repeated.
        """
        effects = self._reflector.start()
        while True:
            *emits, then = effects  # a reflector out of a watch always ends with what to do next
            for emit in emits:
                assert isinstance(emit, Emit)
                await self._hand_on(emit, handle)
            self._delivered = self._reflector.resource_version
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
            self._proof.listed(self._listed_at)
            self.synced.set()

    async def _list(self, effect: List) -> ReflectorEvent:
        """A page, or the whole. A page that is too large is asked for again as a smaller one: objects may have a megabyte and more each, as many as their
        makers please."""
        if not effect.continue_token:
            self._listed_at = monotonic_s()
        while True:
            divided = not effect.whole and self._limit > 1
            params = {**self._selection} if effect.whole else {**self._selection, "limit": str(self._limit)}
            if effect.continue_token:
                params["continue"] = effect.continue_token
            most_bytes = PAGE_BYTES if divided else MAX_BODY_BYTES
            try:
                answer = await self._client.expected(
                    "GET", self._path, params=params, timeout_s=self._list_timeout_s, most_bytes=most_bytes
                )
            except TooLarge as e:
                if not divided:
                    return _what_happened(e)
                self._limit = max(self._limit // 4, 1)
                continue
            except HBoxError as e:
                return _what_happened(e)
            if len(answer.body) < PAGE_BYTES // 2:
                self._limit = min(2 * self._limit, self._page_size)
            return Page(answer.body)

    async def _watch(self, effect: Watch, handle: Handler[T]) -> list[Effect[T]]:
        """Delivers the changes of one watch; returns the effects to execute after it."""
        sampling = asyncio.create_task(
            self._sample(effect.resource_version)
        )  # in a TaskGroup, what the handler raises would come out in a group
        try:
            return await self._follow(effect, handle)
        finally:
            sampling.cancel()
            await asyncio.wait([sampling])

    async def _follow(self, effect: Watch, handle: Handler[T]) -> list[Effect[T]]:
        async with aclosing(self._watch_events(effect)) as events:
            async for event in events:
                effects = self._reflector.step(event)
                if effects and not isinstance(effects[-1], Emit):
                    return effects
                for emit in effects:
                    assert isinstance(emit, Emit)
                    await self._hand_on(emit, handle)
                    await asyncio.sleep(max(0.0, self._handed_on_at + self._window_s - monotonic_s()))
                self._delivered = self._reflector.resource_version
                if self._proof.reached(self._reflector.resource_version):
                    self._reflector.proven()
        raise Bug("a watch ended without an end")

    async def _sample(self, watched_from: str) -> None:
        """Read the store's resourceVersion by a consistent list of one item; the watch being opened has to reach it."""
        self._proof.forget()
        asked_at = monotonic_s()
        try:
            answer = await self._client.expected("GET", self._path, params={"limit": "1"}, timeout_s=SAMPLE_S)
            at = decoded(_SAMPLE, answer.body).metadata.resource_version
        except HBoxError as e:
            self._no_sample = f"whether the watch is alive cannot be proven: {e}"
        except msgspec.DecodeError as e:
            self._no_sample = f"whether the watch is alive cannot be proven, a list cannot be read: {e}"
        else:
            self._no_sample = ""
            self._proof.sampled(at, asked_at, watched_from=watched_from)
            if self._proof.reached(self._reflector.resource_version):
                self._reflector.proven()

    async def _watch_events(self, effect: Watch) -> AsyncGenerator[ReflectorEvent]:
        """Lines, and at last one event that is none. Errors of the transport end here, so that those of the handler do not."""
        # Spread out, or the watches of a fleet that started together would end together for ever.
        asked_s = int(DOUBTFUL_WATCH_S if effect.doubtful else self._watch_s * self._rng.uniform(1.0, 1.25))
        params = {
            **self._selection,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": effect.resource_version,
            "timeoutSeconds": str(asked_s),
        }
        opened_at: float | None = None
        unproven = ""
        try:
            async with self._client.stream(self._path, params=params, lasts_s=asked_s + GRACE_S) as lots:
                opened_at = monotonic_s()
                async for lines in lots:
                    yield Lines(lines)
            now = monotonic_s()
            had_time = now - opened_at >= asked_s - GRACE_S / 2
            if self._proof.waiting and (had_time or now - self._proof.proven_at > OLD_S / 2):
                unproven = _WENT_BACK if self._proof.went_back else _LAGS
        except HBoxError as e:
            if opened_at is None:
                yield _what_happened(e)
                return
            _log.info("%s: the watch broke: %s", self._what, e)
            if monotonic_s() - opened_at >= asked_s:
                unproven = f"the watch was not ended when its time was over, and is taken for dead: {e}"
        yield StreamEnd(monotonic_s() - opened_at, unproven)


class _SampleMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Sample(msgspec.Struct):
    metadata: _SampleMeta


_SAMPLE = msgspec.json.Decoder(_Sample)


def _what_happened(e: HBoxError) -> ReflectorEvent:
    if isinstance(e, ExpiredError):
        return Expired()
    if isinstance(e, Busy):
        return Failed(str(e), refused=e.http_status >= 500, retry_after_s=e.retry_after_s)
    return Failed(str(e), refused=not isinstance(e, Unavailable))
