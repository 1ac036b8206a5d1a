"""`pods/log` and the subresources that need a kubelet. Emulated containers run no process: their log has a line for the
start and for the end of the container."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from aiohttp import web

from .cluster import Cluster
from .errors import ApiError, Json, bad_request
from .resources import PODS
from .store import EventType, Subscription
from .streams import WRITE_TIMEOUT_S
from .writes import Target

#: Subresources by the word for what they do.
CONNECTS = {"exec": "run a command in", "attach": "attach to", "portforward": "forward ports to", "proxy": "connect to"}
_ELSEWHERE = (
    "`hbox up --api assets` runs a real control plane on this machine, `hbox up --kubeconfig FILE` uses a cluster with kubelets"
)
_FLAGS = ("true", "1")


def no_process(what: str) -> ApiError:
    """The refusal of a request that only a real container could serve."""
    return ApiError(
        501, "NotImplemented", f"containers of the emulated cluster run no processes, so nothing can {what} them: {_ELSEWHERE}"
    )


def no_metrics() -> ApiError:
    return ApiError(501, "NotImplemented", f"the emulated cluster measures no use of processors and memory: {_ELSEWHERE}")


async def serve_log(
    cluster: Cluster, request: web.BaseRequest, target: Target, params: Mapping[str, str]
) -> web.StreamResponse:
    """The log of a pod's container as text; with `follow` until the container ends, the pod is deleted or the client leaves. ApiError before the first
    byte."""
    pod = cluster.find(PODS, target.namespace, target.name).load()
    name = _container(pod, params.get("container", ""))
    if params.get("previous") in _FLAGS:
        raise bad_request(f'previous terminated container "{name}" in pod "{target.name}" not found')
    sent = _Sent(params, cluster.clock())
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    if params.get("follow") not in _FLAGS:
        await response.prepare(request)
        await response.write(sent.text(_lines(pod, name)))
        return response
    woken = asyncio.Event()
    key = f"{target.namespace}/{target.name}"
    subscription = Subscription(match=lambda version: version.key == key, wake=woken.set)
    cluster.store.subscribe(PODS.storage, subscription)
    try:
        await response.prepare(request)
        gone = False
        while True:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await response.write(sent.text(_lines(pod, name)))
            if gone or subscription.ended or _phase(pod) in ("Succeeded", "Failed"):
                return response
            await woken.wait()
            woken.clear()
            for event in subscription.events:
                pod, gone = event.version.load(), event.type is EventType.DELETED
            subscription.events.clear()
    finally:
        cluster.store.unsubscribe(PODS.storage, subscription)


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _container(pod: Json, asked: str) -> str:
    """The container that is meant (pkg/registry/core/pod/strategy.go LogLocation)."""
    names = [each["name"] for part in ("containers", "initContainers") for each in pod["spec"].get(part) or ()]
    if asked and asked not in names:
        raise bad_request(f"container {asked} is not valid for pod {pod['metadata']['name']}")
    main = [each["name"] for each in pod["spec"].get("containers") or ()]
    if not asked and len(main) != 1:
        raise bad_request(
            f"a container name must be specified for pod {pod['metadata']['name']}, choose one of: [{' '.join(main)}]"
        )
    return asked or main[0]


def _lines(pod: Json, name: str) -> Iterator[tuple[str, str]]:
    """Time and text of each line."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    state: Json = next((each.get("state") or {} for each in statuses if each["name"] == name), {})
    ended: Json = state.get("terminated") or {}
    started = (state.get("running") or ended).get("startedAt")
    if not started:
        return
    container = next(
        each for part in ("containers", "initContainers") for each in pod["spec"].get(part) or () if each["name"] == name
    )
    command = " ".join([*(container.get("command") or ()), *(container.get("args") or ())]) or "the image's own"
    yield (
        started,
        f"emulated container {name} started on node {pod['spec'].get('nodeName')}: image {container.get('image')}, command: {command}",
    )
    seconds = (pod["metadata"].get("annotations") or {}).get("hbox.io/run-seconds")
    lasts = (
        f"it ends after {seconds} s"
        if seconds
        else "it runs until the pod is deleted; the annotation hbox.io/run-seconds limits it"
    )
    yield started, f"emulated container {name} runs no process; {lasts}"
    if ended:
        yield ended.get("finishedAt") or started, f"emulated container {name} ended with exit code {ended.get('exitCode', 0)}"


class _Sent:
    """What a client has of a log, by the options of its request."""

    def __init__(self, params: Mapping[str, str], now: float) -> None:
        self._timestamps = params.get("timestamps") in _FLAGS
        self._tail = _number(params, "tailLines")
        self._limit = _number(params, "limitBytes")
        since_s = _number(params, "sinceSeconds")
        self._after = now - since_s if since_s is not None else _time(params.get("sinceTime"))
        self._count: int | None = None

    def text(self, lines: Iterator[tuple[str, str]]) -> bytes:
        """The lines that the client does not have; `tailLines` counts those of the first call."""
        found: Sequence[tuple[str, str]] = [
            each for each in lines if self._after is None or (_time(each[0]) or 0.0) >= self._after
        ]
        first = self._count is None
        new = found[self._count or 0 :]
        self._count = len(found)
        if first and self._tail is not None:
            new = new[-self._tail :] if self._tail else []
        text = "".join(
            f"{time.replace('Z', '.000000000Z')} {line}\n" if self._timestamps else f"{line}\n" for time, line in new
        ).encode()
        if self._limit is not None:
            text = text[: self._limit]
            self._limit -= len(text)
        return text


def _number(params: Mapping[str, str], name: str) -> int | None:
    text = params.get(name, "")
    if not text:
        return None
    if not text.isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax ({name})')
    return int(text)


def _time(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        raise bad_request(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse') from None
