"""HAMi's webhook as far as HBox's meets it (pkg/scheduler/webhook.go and the vendors' MutateAdmission, HEAD of 2026-08), in our words: an oracle, and an
endpoint beside ours."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

from aiohttp import web

from hbox_common.errors import InvalidRequest
from hbox_common.model.devices.ascend import CHIPS, MODE, SOFT
from hbox_common.model.devices.metax import APP_CLASS, ONLINE, QOS

SCHEDULER = "hami-scheduler"

_GPU, _MEM, _PERCENT, _CORES = (f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores"))
_XPU, _XPU_MEMORY = "kunlunxin.com/vxpu", "kunlunxin.com/vxpu-memory"


def mutated(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What it makes of a pod. Raises InvalidRequest where it refuses it."""
    found = deepcopy(dict(pod))
    spec = found["spec"]
    if spec.get("schedulerName", "") not in ("", "default-scheduler", SCHEDULER):
        return found
    notes = found["metadata"].setdefault("annotations", {})
    asking = [_asks(one, notes) for one in (*spec.get("initContainers", ()), *spec["containers"])]
    if any(asking):
        spec["schedulerName"] = SCHEDULER
        if spec.get("nodeName"):
            raise InvalidRequest("pod has node assigned")
    return found


def _asks(one: dict[str, Any], notes: dict[str, str]) -> bool:
    limits = one.setdefault("resources", {}).setdefault("limits", {})
    asks = False

    def number(name: str) -> int:
        return int(float(limits[name]))

    if _PERCENT in limits and not 0 <= number(_PERCENT) <= 100:
        raise InvalidRequest("percentage")
    if "nvidia.com/priority" in limits:
        one.setdefault("env", []).append({"name": "CUDA_TASK_PRIORITY", "value": limits["nvidia.com/priority"]})
    if _GPU not in limits and not limits.keys().isdisjoint((_MEM, _PERCENT, _CORES)):
        limits[_GPU] = "1"
    if _GPU in limits:
        asks = True
        if _CORES not in limits and (number(_PERCENT) == 100 if _PERCENT in limits else _MEM not in limits):
            limits[_CORES] = "100"
    for chip in CHIPS:
        name, memory = f"huawei.com/{chip.word}", f"huawei.com/{chip.word}-memory"
        if name not in limits:
            continue
        asks = True
        if chip.dies > 1 and number(name) == 1:
            limits[name] = "2"
        elif chip.dies > 1 and number(name) % 2:
            raise InvalidRequest("dies")
        trimmed = chip.memory_mib
        if memory in limits and notes.get(MODE) != SOFT:
            sizes = [size.memory_mib for size in chip.templates if number(memory) <= size.memory_mib]
            trimmed = sizes[0] if sizes else chip.memory_mib
            if number(memory) > chip.capacity_mib or (number(name) > 1 and trimmed != chip.memory_mib):
                raise InvalidRequest("memory")
        elif memory in limits:
            trimmed = number(memory)
        limits[memory] = str(trimmed)
    if _XPU in limits:
        asks = True
        if _XPU_MEMORY in limits:
            limits[_XPU_MEMORY] = str(next((size for size in (24_576, 49_152) if number(_XPU_MEMORY) <= size), 98_304))
    if "metax-tech.com/sgpu" in limits:
        asks = True
        if notes.get(APP_CLASS) != ONLINE:
            notes.setdefault(QOS, "best-effort")
    if "requests" in one["resources"]:
        one["resources"]["requests"] |= {name: amount for name, amount in limits.items() if "/" in name}
    return asks


@asynccontextmanager
async def served(certificate: ssl.SSLContext) -> AsyncIterator[int]:
    """As an endpoint for API servers at /webhook of the port."""

    async def answer(request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        response: dict[str, Any] = {"uid": asked["uid"], "allowed": True}
        try:
            after = mutated(asked["object"])
            patch = [{"op": "replace", "path": f"/{key}", "value": after[key]} for key in ("metadata", "spec")]
            response |= {"patchType": "JSONPatch", "patch": b64encode(json.dumps(patch).encode()).decode()}
        except InvalidRequest as e:
            response |= {"allowed": False, "status": {"message": e.message}}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    app = web.Application(client_max_size=8 << 20)
    app.router.add_post("/webhook", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
