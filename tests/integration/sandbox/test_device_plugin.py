"""The plugin that is run beside a real kubelet: what it says at the kubelet's sockets, by what stands on pods and nodes of an API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient
from hbox_common.kubelet import Refused, call, listening
from hbox_common.kubelet.protobuf import fields, message, put_bytes, put_int, put_text, text
from hbox_common.model import VENDORS
from hbox_common.model.devices import NodeReport
from hbox_sandbox.api.server import ApiServer
from hbox_sandbox.kubelet.served import KUBELET, NVIDIA, SOCKET, Cards, serve

from ... import waiting

LOCK, NODE = "hami.io/mutex.lock", "n1"
TO_ALLOCATE, PHASE, INSTANCES = "hami.io/vgpu-devices-to-allocate", "hami.io/bind-phase", "hami.io/vgpu-mig-allocations"
FIRST, SECOND = Cards(NODE).uuids()[:2]


@dataclass
class Kubelet:
    """Asks as a kubelet does."""

    folder: Path
    client: KubeClient

    async def allocate(self, *slots: str) -> dict[str, str]:
        """The environment of a container."""
        request = put_bytes(1, b"".join(put_text(1, slot) for slot in slots))
        answer = await call(self.folder / SOCKET, "/v1beta1.DevicePlugin/Allocate", request)
        [container] = [message(value) for number, value in fields(answer) if number == 1]
        pairs = [dict(fields(message(value))) for number, value in fields(container) if number == 1]
        return {text(pair[1]): text(pair[2]) for pair in pairs}

    async def prefers(self, size: int, *available: str) -> list[str]:
        request = put_bytes(1, b"".join(put_text(1, slot) for slot in available) + put_int(3, size))
        answer = await call(self.folder / SOCKET, "/v1beta1.DevicePlugin/GetPreferredAllocation", request)
        [container] = [message(value) for number, value in fields(answer) if number == 1]
        return [text(value) for _, value in fields(container)]

    async def bound(self, name: str, *containers: str, **notes: str) -> None:
        """A pod as binder leaves it, and its node's lock."""
        body = {
            "metadata": {"name": name, "annotations": {TO_ALLOCATE: ";".join(containers), PHASE: "allocating"} | notes},
            "spec": {"nodeName": NODE, "containers": [{"name": f"c{i}", "image": "x"} for i, _ in enumerate(containers)]},
        }
        await self.client.json("POST", PODS.path("default"), body=body)
        await self._annotate_node({LOCK: f"2026-11-23T12:00:00Z,default,{name}"})

    async def notes(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.client.json("GET", PODS.path("default", name)))["metadata"]["annotations"]
        return found

    async def lock(self) -> str:
        return str((await self.client.json("GET", NODES.path(name=NODE)))["metadata"]["annotations"].get(LOCK, ""))

    async def _annotate_node(self, notes: dict[str, str]) -> None:
        await self.client.json(
            "PATCH",
            NODES.path(name=NODE),
            body={"metadata": {"annotations": notes}},
            content_type="application/merge-patch+json",
        )


@pytest.fixture(params=["hami-core"])
async def kubelet(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Kubelet]:
    heard: list[bytes] = []

    async def register(body: bytes) -> bytes:
        heard.append(body)
        return b""

    async with ApiServer() as api, listening(tmp_path / KUBELET, {"/v1beta1.Registration/Register": register}):
        kubeconfig = str(api.kubeconfig(tmp_path / "kubeconfig"))
        async with KubeClient.connect(kubeconfig, user_agent="test") as client:
            await client.json("POST", NODES.path(), body={"metadata": {"name": NODE}})
            task = asyncio.create_task(serve(Cards(NODE, mode=request.param, slots=7), folder=tmp_path, kubeconfig=kubeconfig))

            async def registered() -> bool:
                return bool(heard)

            await waiting.until(registered, "the plugin registers")
            assert {number: value for number, value in fields(heard[0]) if number < 4} == {
                1: b"v1beta1", 2: SOCKET.encode(), 3: b"nvidia.com/gpu",
            }  # fmt: skip
            yield Kubelet(tmp_path, client)
            task.cancel()


async def test_a_slice_and_whole_cards_come_with_the_environment_of_hamis_plugin(kubelet: Kubelet) -> None:
    await kubelet.bound("slice", f"{SECOND},NVIDIA,4000,30:")
    assert await kubelet.allocate("any-0") == {
        "NVIDIA_VISIBLE_DEVICES": SECOND, "CUDA_DEVICE_MEMORY_LIMIT_0": "4000m", "CUDA_DEVICE_SM_LIMIT": "30",
    }  # fmt: skip
    assert {(await kubelet.notes("slice"))[note] for note in (TO_ALLOCATE, PHASE)} == {"", "success"}
    assert await kubelet.lock() == ""

    await kubelet.bound("whole", "", f"{FIRST},NVIDIA,36000,70:{FIRST[:-1]}x,NVIDIA,1,1:")
    with pytest.raises(Refused, match="unknown"):
        await kubelet.allocate("any-1", "any-2")
    assert (await kubelet.notes("whole"))[PHASE] == "failed"
    assert await kubelet.lock() == ""


async def test_what_another_pod_has_is_not_given_again(kubelet: Kubelet) -> None:
    await kubelet.bound("one", f"{FIRST},NVIDIA,30000,30:")
    await kubelet.allocate("any-0")
    await kubelet.bound("two", f"{FIRST},NVIDIA,30000,30:")
    with pytest.raises(Refused, match="too little: 60000 MiB"):
        await kubelet.allocate("any-1")
    await kubelet.client.json("DELETE", PODS.path("default", "one"), body={"gracePeriodSeconds": 0})
    await kubelet.bound("three", f"{FIRST},NVIDIA,30000,30:")
    assert (await kubelet.allocate("any-2"))["NVIDIA_VISIBLE_DEVICES"] == FIRST


async def test_slots_of_the_cards_on_the_pod_are_preferred(kubelet: Kubelet) -> None:
    await kubelet.bound("pod", f"{SECOND},NVIDIA,4000,30:")
    assert await kubelet.prefers(1, f"{FIRST}-0", f"{SECOND}-3", f"{SECOND}-4") == [f"{SECOND}-3"]
    assert await kubelet.prefers(1, f"{FIRST}-0") == [], "it leaves the choice to the kubelet"


def reservation(container: int, uuid: str, profile: str, start: int, size: int) -> dict[str, Any]:
    placement = {"start": start, "size": size}
    return {"containerIndex": container, "deviceIndex": 0, "gpuUUID": uuid, "profile": profile, "placement": placement}


@pytest.mark.parametrize("kubelet", ["mig"], indirect=True)
async def test_instances_are_made_where_the_record_has_them_and_no_two_overlap(kubelet: Kubelet) -> None:
    record = [reservation(1, FIRST, "1g.5gb", 6, 1), reservation(0, FIRST, "3g.20gb", 0, 4)]
    await kubelet.bound("mig", f"{FIRST},NVIDIA,20480,42:", f"{FIRST},NVIDIA,5120,14:", **{INSTANCES: json.dumps(record)})
    one, two = await kubelet.allocate("any-0"), await kubelet.allocate("any-1")
    made = json.loads((await kubelet.notes("mig"))[INSTANCES])
    assert ([one], [two]) == (
        [{"NVIDIA_VISIBLE_DEVICES": made[1]["migUUID"]}],
        [{"NVIDIA_VISIBLE_DEVICES": made[0]["migUUID"]}],
    )
    assert one["NVIDIA_VISIBLE_DEVICES"].startswith("MIG-")
    assert one != two
    assert (await kubelet.notes("mig"))[PHASE] == "success"

    for name, wrong, why in (
        ("over", reservation(0, FIRST, "2g.10gb", 2, 2), "has another instance on its slices 2 to 3"),
        ("odd", reservation(0, FIRST, "2g.10gb", 3, 2), "cannot be divided into 2g.10gb at 3"),
        ("other", reservation(0, SECOND, "2g.10gb", 4, 2), "does not match"),
    ):
        await kubelet.bound(name, f"{FIRST},NVIDIA,10240,28:", **{INSTANCES: json.dumps([wrong])})
        with pytest.raises(Refused, match=why):
            await kubelet.allocate("any-2")
        assert (await kubelet.notes(name))[PHASE] == "failed"
        assert await kubelet.lock() == ""


@pytest.mark.parametrize("mode", ["hami-core", "mig"])
def test_its_register_is_read_as_these_cards(mode: str) -> None:
    plugin_cards = Cards(NODE, count=2, mode=mode)
    cards = VENDORS.kind("NVIDIA").register(NodeReport(NODE, annotations={NVIDIA.register: plugin_cards.register()}))
    assert [(card.uuid, card.memory_mib, card.effective_traits.mode) for card in cards] == [
        (uuid, 40_960, mode) for uuid in plugin_cards.uuids()
    ]
    assert [len(card.effective_traits.profiles) for card in cards] == [4 if mode == "mig" else 0] * 2
