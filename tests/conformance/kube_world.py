"""What the conformance tests share: the plain HTTP client, manifests, and the emulator as a process."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

Json = dict[str, Any]


@dataclass(frozen=True)
class KubeApi:
    """Where the API under test is, and how to be let in."""

    url: str
    kubeconfig: Path
    headers: dict[str, str]
    emulated: bool
    tls: ssl.SSLContext | bool = True  #: as aiohttp takes it: True verifies by the system's authorities


def start_sandbox(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], KubeApi]:
    kubeconfig = folder / "kubeconfig"
    process = subprocess.Popen(
        [sys.executable, "-m", "hbox_sandbox", "--port", "0", "--kubeconfig-out", str(kubeconfig), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    word, _, url = process.stdout.readline().strip().partition(" ")
    assert word == "ready"
    return process, KubeApi(url=url, kubeconfig=kubeconfig, headers={}, emulated=True)


def stop(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    with process:
        return process.wait(timeout=10)


#: What kubectl accepts when it prints.
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class Raw:
    """The first of the independent clients: plain HTTP."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **params: str,
    ) -> tuple[int, Json]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Accept": accept} | ({"Content-Type": content_type} if data is not None else {})
        async with self.session.request(method, self.base + path, data=data, headers=headers, params=params) as response:
            text = await response.read()
            return response.status, json.loads(text) if response.content_type == "application/json" and text else {}

    async def get(self, path: str, **params: str) -> tuple[int, Json]:
        return await self.call("GET", path, **params)

    async def post(self, path: str, body: Any, **params: str) -> tuple[int, Json]:
        return await self.call("POST", path, body, **params)

    async def put(self, path: str, body: Any, **params: str) -> tuple[int, Json]:
        return await self.call("PUT", path, body, **params)

    async def delete(self, path: str, body: Any = None, **params: str) -> tuple[int, Json]:
        return await self.call("DELETE", path, body, **params)

    async def patch(self, path: str, body: Any, kind: str = "merge", **params: str) -> tuple[int, Json]:
        media = "application/apply-patch+yaml" if kind == "apply" else f"application/{kind}-patch+json"
        return await self.call("PATCH", path, body, content_type=media, **params)

    async def made(self, path: str, body: Any) -> Json:
        """Create, and insist."""
        status, obj = await self.post(path, body)
        assert status == 201, obj
        return obj

    async def watch(
        self, path: str, *, until: Callable[[list[Json]], bool], timeout_s: float = 5.0, **params: Any
    ) -> list[Json]:
        """Events of a watch until `until` holds of them, or the stream ends."""
        events: list[Json] = []
        async with asyncio.timeout(timeout_s), self.session.get(self.base + path, params={"watch": "1", **params}) as response:
            if response.status != 200:
                return [{"type": "HTTP", "object": await response.json()}]
            async for line in response.content:
                events.append(json.loads(line))
                if until(events):
                    break
        return events


def a_pod(name: str, *, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    meta: Json = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [{"name": "main", "image": "busybox"}], **spec},
    }


def a_binding(name: str, node: str, **meta: Any) -> Json:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **meta}, "target": target}
