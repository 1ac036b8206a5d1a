"""An API server with any number of pods and nodes, which are generated on request and not stored.

Lists with `resourceVersion=0` are complete, whatever their `limit`, as from a real API server's cache; consistent lists have pages. Watches contain only
bookmarks and the pods that `POST /burst?pods=N` creates. Writes are answered and discarded.

    python -m tests.bench.many_objects --nodes 10000 --pods 100000
"""

import argparse
import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from aiohttp import web

VERSION = 1_000_000
CARDS = 8
BOOKMARK_S = 1.0
CHUNK = 500
LOT = 50  #: lines of a watch written at once


def node(number: int) -> dict[str, Any]:
    name = f"node-{number:05}.zone-{number % 8}.example.com"
    amounts = {"cpu": "128", "memory": "1Ti", "nvidia.com/gpu": str(CARDS), "pods": "110"}
    labels = {
        "kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559",
        "topology.kubernetes.io/zone": f"zone-{number % 8}", "topology.kubernetes.io/region": "region-1",
    }  # fmt: skip
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-22T12:00:00Z", "reason": "KubeletReady"}
    images = [{"names": [f"registry.example.com/images/model-{i}:v{number % 7}"], "sizeBytes": 10**9} for i in range(20)]
    return {
        "metadata": {
            "name": name, "uid": f"00000000-0000-4000-a000-{number:012d}", "resourceVersion": str(VERSION), "labels": labels,
            "creationTimestamp": "2026-11-22T10:00:00Z",
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready], "images": images},
    }  # fmt: skip


def pod(number: int, *, nodes: int, waits: bool = False) -> dict[str, Any]:
    """A pod as big as real ones are (about 4 KB): with an environment, volumes, what its controller and its kubelet say of it."""
    host, card = divmod(number, CARDS)
    name = f"{'burst' if waits else 'train'}-{number:07}"
    container = {
        "name": "main", "image": "registry.example.com/research/train:2026.11",
        "command": ["python", "-m", "train", f"--seed={number}"],
        "env": [{"name": f"SETTING_{i}", "value": f"value-{i}-of-{number % 100}"} for i in range(16)],
        "resources": {"limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}, "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}],
    }  # fmt: skip
    annotations = {"scheduling.volcano.sh/queue-name": f"team-{number % 50}"}
    if not waits:
        annotations |= {"hbox.io/claim": f"{number:032x}", "hbox.io/cards": f"{card}:100:81559"}
    managed = {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {f"f:field-{i}": {} for i in range(40)}}
    conditions = [
        {"type": t, "status": "True", "lastTransitionTime": "2026-11-22T11:00:00Z"}
        for t in ("Initialized", "Ready", "PodScheduled")
    ]
    return {
        "metadata": {
            "name": name, "namespace": f"team-{number % 50}", "uid": f"00000000-0000-4000-{'9' if waits else '8'}000-{number:012d}",
            "resourceVersion": str(VERSION + number if waits else VERSION), "creationTimestamp": "2026-11-22T11:00:00Z",
            "labels": {"app": "train", "job-name": name, "controller-uid": f"{number:036d}"}, "annotations": annotations, "managedFields": [managed],
        },
        "spec": {
            "schedulerName": "hbox", "containers": [container], "serviceAccountName": "default", "restartPolicy": "Never", "priority": 0,
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            **({} if waits else {"nodeName": f"node-{host % nodes:05}.zone-{host % nodes % 8}.example.com"}),
        },
        "status": {"phase": "Pending"} if waits else {"phase": "Running", "conditions": conditions, "podIP": "10.0.0.1", "startTime": "2026-11-22T11:00:00Z"},
    }  # fmt: skip


#: What differs between two pods or nodes, in places where `%` puts it: made anew by json.dumps, 100,000 pods would take a minute.
N = 987_654_321


def _template(made: dict[str, Any]) -> str:
    text = json.dumps(made).replace("%", "%%")
    host, zone = f"node-{N // CARDS:05}.zone-{N // CARDS % 8}.example.com", f"zone-{N % 8}"
    text = text.replace(host, "node-%(host)05d.zone-%(host_zone)d.example.com").replace(f"{N:032x}", "%(number)032x")
    text = text.replace(f"node-{N:05}.{zone}.example.com", "node-%(number)05d.zone-%(zone)d.example.com")
    text = re.sub(rf"0*{VERSION + N}", "%(version)d", text)
    return re.sub(rf"0*{N}", lambda found: f"%(number)0{len(found[0])}d", text)


RUNS, WAITS, NODE = _template(pod(N, nodes=10**10)), _template(pod(N, nodes=10**10, waits=True)), _template(node(N))


def written(template: str, number: int, *, nodes: int) -> str:
    host = number // CARDS % nodes
    return template % {
        "number": number, "version": VERSION + number, "zone": number % 8, "host": host, "host_zone": host % 8,
    }  # fmt: skip


class Server:
    def __init__(self, *, nodes: int, pods: int) -> None:
        self._nodes, self._pods = nodes, pods
        self._came = 0  # with the burst
        self._more = asyncio.Event()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/burst", self._burst)
        app.router.add_route("*", "/{path:.*}", self._any)
        return app

    def _total(self, plural: str) -> int:
        return {"pods": self._pods + self._came, "nodes": self._nodes}.get(plural, 0)

    def _items(self, plural: str, first: int, count: int | None) -> Iterator[str]:
        total = self._total(plural)
        for number in range(first, total if count is None else min(total, first + count)):
            if plural == "nodes":
                yield written(NODE, number, nodes=self._nodes)
            elif number < self._pods:
                yield written(RUNS, number, nodes=self._nodes)
            else:
                yield written(WAITS, number - self._pods + 1, nodes=self._nodes)

    async def _any(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ConnectionResetError:  # who asked was ended
            return web.Response()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        words = request.path.strip("/").split("/")
        if request.method != "GET" or request.path.startswith("/apis/topology") or "metrics" in request.path:
            written = request.method in ("POST", "PATCH", "PUT")
            return web.json_response(
                {"kind": "Status", "code": 200 if written else 404, "reason": "NotFound"}, status=200 if written else 404
            )
        plural = words[-1]
        query = request.query
        if query.get("watch") in ("1", "true"):
            return await self._watch(request, plural)
        whole = query.get("resourceVersion") == "0" or "limit" not in query
        first, count = int(query.get("continue") or 0), None if whole else int(query["limit"])
        total = self._total(plural)
        more = "" if count is None or first + count >= total else str(first + count)
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        meta = json.dumps({"resourceVersion": str(VERSION + self._came), **({"continue": more} if more else {})})
        await answer.write(f'{{"kind":"List","apiVersion":"v1","metadata":{meta},"items":['.encode())
        lot: list[str] = []
        begun = False
        for item in self._items(plural, first, count):
            lot.append(item)
            if len(lot) == CHUNK:
                await answer.write(("," * begun + ",".join(lot)).encode())
                await asyncio.sleep(0)
                lot, begun = [], True
        if lot:
            await answer.write(("," * begun + ",".join(lot)).encode())
        await answer.write(b"]}")
        await answer.write_eof()
        return answer

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        done = max(0, int(request.query.get("resourceVersion") or 0) - VERSION)
        if request.query.get("sendInitialEvents") == "true":
            done = self._came
            for item in self._items(plural, 0, None):
                await answer.write(_line("ADDED", item))
            end = {"metadata": {"resourceVersion": str(VERSION + done), "annotations": {"k8s.io/initial-events-end": "true"}}}
            await answer.write(_line("BOOKMARK", json.dumps(end)))
        while True:
            while plural == "pods" and done < self._came:
                lot = range(done + 1, min(self._came, done + LOT) + 1)
                await answer.write(b"".join(_line("ADDED", written(WAITS, number, nodes=self._nodes)) for number in lot))
                done = lot[-1]
                await asyncio.sleep(0)
            await answer.write(_line("BOOKMARK", json.dumps({"metadata": {"resourceVersion": str(VERSION + done)}})))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._more.wait(), BOOKMARK_S)

    async def _burst(self, request: web.Request) -> web.StreamResponse:
        self._came += int(request.query["pods"])
        self._more.set()
        await asyncio.sleep(0)
        self._more.clear()
        return web.json_response({"pods": self._came})


def _line(kind: str, item: str) -> bytes:
    return f'{{"type":"{kind}","object":{item}}}\n'.encode()


async def serve(*, nodes: int, pods: int) -> None:
    runner = web.AppRunner(Server(nodes=nodes, pods=pods).app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"ready {runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    arguments = parser.parse_args()
    asyncio.run(serve(nodes=arguments.nodes, pods=arguments.pods))
