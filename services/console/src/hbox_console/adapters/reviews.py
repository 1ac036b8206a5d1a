"""Asks the API server who a client is (TokenReview) and what it may see (SubjectAccessReview), and keeps the answers for a while.

Reviews in progress are limited, and so are those that wait for a turn: a flood of unknown tokens gets 503, and the API server sees no more than AT_ONCE at a
time. Tokens are kept as digests. If the API server does not answer, nothing is shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, TypeVar

from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.kube import TOKEN_REVIEWS, KubeClient, Resource

from .. import metrics
from ..core.cache import Expiring
from ..core.rights import ALL_JOBS, ALL_NODES, ALL_QUEUES, Access, Identity, Scope, jobs_in, queue_named

T = TypeVar("T")

ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)

#: Reviews in progress, and reviews that wait for a turn.
AT_ONCE, WAITING = 16, 4096
REVIEW_S = 5.0
#: Kept answers about tokens, about wrong tokens, and about rights.
MAX_TOKENS, MAX_WRONG, MAX_RIGHTS = 10_000, 10_000, 200_000
#: A token of a service account has 1 to 2 KiB; OIDC tokens with many groups more.
MAX_TOKEN_BYTES = 16 * 1024


class Unauthenticated(InvalidRequest):
    """The API server does not know the client."""


class Reviews:
    """One for all requests of the process. `lasts_s`: for how long an answer is used."""

    def __init__(self, client: KubeClient, *, lasts_s: float) -> None:
        self._client = client
        self._tokens: Expiring[bytes, Identity] = Expiring(size=MAX_TOKENS, lasts_s=lasts_s)
        self._wrong: Expiring[bytes, str] = Expiring(size=MAX_WRONG, lasts_s=min(10.0, lasts_s))
        self._rights: Expiring[tuple[Identity, Access], bool] = Expiring(size=MAX_RIGHTS, lasts_s=lasts_s)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._asked: dict[Any, asyncio.Task[Any]] = {}

    async def identity(self, token: str) -> Identity:
        """Raises Unauthenticated, Unavailable."""
        if not token or len(token) > MAX_TOKEN_BYTES or not token.isascii() or not token.isprintable():
            raise Unauthenticated("the bearer token is malformed", hint="see `hbox ctx show`")
        key, now = sha256(token.encode()).digest(), monotonic_s()
        if (found := self._tokens.get(key, now)) is not None:
            return found
        if (why := self._wrong.get(key, now)) is not None:
            raise Unauthenticated(why)
        return await self._once(key, lambda: self._review_token(token, key))

    async def _review_token(self, token: str, key: bytes) -> Identity:
        asked_at = monotonic_s()
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = await self._review(TOKEN_REVIEWS, "token", body)
        user = status.get("user")
        if status.get("authenticated") is not True or not isinstance(user, dict) or not user.get("username"):
            metrics.REVIEWS.labels("token", "refused").inc()
            why = "the API server does not accept the bearer token: it is wrong or has expired"
            self._wrong.put(key, why, asked_at)
            raise Unauthenticated(why)
        metrics.REVIEWS.labels("token", "accepted").inc()
        extra = user.get("extra") or {}
        identity = Identity(
            str(user["username"]),
            tuple(map(str, user.get("groups") or ())),
            str(user.get("uid") or ""),
            tuple(sorted((str(name), tuple(map(str, values or ()))) for name, values in extra.items())),
        )
        self._tokens.put(key, identity, asked_at)
        return identity

    async def allowed(self, identity: Identity, access: Access) -> bool:
        """Raises Unavailable."""
        key = (identity, access)
        if (found := self._rights.get(key, monotonic_s())) is not None:
            return found
        return await self._once(key, lambda: self._review_access(identity, access))

    async def _review_access(self, identity: Identity, access: Access) -> bool:
        asked_at = monotonic_s()
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": identity.user,
                "groups": list(identity.groups),
                "uid": identity.uid,
                "extra": {name: list(values) for name, values in identity.extra},
                "resourceAttributes": access.attributes(),
            },
        }
        status = await self._review(ACCESS_REVIEWS, "access", body)
        yes = status.get("allowed") is True
        metrics.REVIEWS.labels("access", "allowed" if yes else "denied").inc()
        self._rights.put((identity, access), yes, asked_at)
        return yes

    async def any_allowed(self, identity: Identity, some: Iterable[Access]) -> bool:
        """Raises Unavailable."""
        for access in some:
            if await self.allowed(identity, access):
                return True
        return False

    async def nodes(self, identity: Identity) -> bool:
        return await self.any_allowed(identity, ALL_NODES)

    async def scope(self, identity: Identity, *, namespaces: Iterable[str], queues: Iterable[str]) -> Scope:
        """Which of these the client may see. Raises Unavailable."""
        scope = Scope()
        if wanted := list(namespaces):
            if await self.any_allowed(identity, ALL_JOBS):
                scope.namespaces = None
            else:
                scope.namespaces = await self._of(identity, wanted, jobs_in)
        if wanted := list(queues):
            if await self.any_allowed(identity, ALL_QUEUES):
                scope.queues = None
            else:
                scope.queues = await self._of(identity, wanted, queue_named)
        return scope

    async def _of(self, identity: Identity, names: Sequence[str], asked: Callable[[str], Sequence[Access]]) -> set[str]:
        answers = await asyncio.gather(*(self.any_allowed(identity, asked(name)) for name in names))
        return {name for name, yes in zip(names, answers, strict=True) if yes}

    async def _review(self, resource: Resource, kind: str, body: Any) -> dict[str, Any]:
        if self._waiting >= WAITING:
            metrics.REVIEWS.labels(kind, "too-many").inc()
            raise Unavailable("too many reviews wait for the API server", hint="ask again", retry_after_s=1.0)
        self._waiting += 1
        try:
            async with self._turns:
                answer = await self._client.json("POST", resource.path(), body=body, timeout_s=REVIEW_S)
        except (Unavailable, InvalidRequest) as e:
            metrics.REVIEWS.labels(kind, "failed").inc()
            raise Unavailable(
                "the API server does not review the request, so nothing is shown", hint="ask again", retry_after_s=1.0
            ) from e
        finally:
            self._waiting -= 1
        status = answer.get("status") if isinstance(answer, dict) else None
        if not isinstance(status, dict):
            metrics.REVIEWS.labels(kind, "failed").inc()
            raise Unavailable("the API server's review has no status, so nothing is shown", retry_after_s=1.0)
        return status

    async def _once(self, key: Any, ask: Callable[[], Awaitable[T]]) -> T:
        """One review for all requests that need the same answer. If a client disconnects, the review continues."""
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(ask())
            task.add_done_callback(lambda done: self._end(key, done))
        result: T = await asyncio.shield(task)
        return result

    def _end(self, key: Any, task: "asyncio.Task[Any]") -> None:
        del self._asked[key]
        if not task.cancelled():
            task.exception()  # retrieved: those who wait have it as well

    def export(self) -> None:
        metrics.REVIEWS_CACHED.labels("token").set(len(self._tokens))
        metrics.REVIEWS_CACHED.labels("access").set(len(self._rights))
