"""One node of each of five makers on a running platform: what a pod gets, how books and device plugin are told, and who waits with which word."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.kube import NODES, PODGROUPS, PODS, KubeClient

from .platform_world import Up, given_of, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE = "default"
NPU = "huawei.com/Ascend910B3"
VGPUS = "".join(f"V-{i},4,16384,NVIDIA-A10,true,hami-core:" for i in range(2))


def made(name: str, amounts: dict[str, str], **annotations: str) -> dict[str, Any]:
    body = node(name)
    size = {"cpu": "64", "memory": "512Gi", "pods": "110", **amounts}
    body["status"] |= {"capacity": size, "allocatable": size}
    body["metadata"]["annotations"] = {key.replace("__", "/").replace("_", "-"): text for key, text in annotations.items()}
    return body


def nodes() -> list[dict[str, Any]]:
    npus = [
        {"id": f"N-{i}", "index": i, "count": 4, "devmem": 65_536, "devcore": 20, "type": "Ascend910B3", "health": True,
         "custominfo": {"NetworkID": i // 4}}
        for i in range(8)
    ]  # fmt: skip
    sgpus = [{"uuid": "M-0", "totalDevCount": 16, "totalCompute": 100, "totalVRam": 65_536, "healthy": True, "linkZone": 1}]
    gcus = {
        "devices": [{"index": "0", "minor": "0", "capacity": 6}],
        "profiles": {"1g.6gb": "0", "3g.20gb": "1", "6g.40gb": "2"},
    }
    neuron = made("neuron", {"aws.amazon.com/neuron": "16", "aws.amazon.com/neuroncore": "32"})
    neuron["metadata"].setdefault("labels", {})["node.kubernetes.io/instance-type"] = "inf2.48xlarge"
    return [
        made("ascend", {NPU: "32"}, **{"hami.io/node-register-Ascend910B3": json.dumps(npus)}),
        made("kunlun", {"kunlunxin.com/xpu": "8"}),
        neuron,
        made("enflame", {"enflame.com/drs-gcu": "6"}, **{"enflame.com/gcu-drs-capacity": json.dumps(gcus)}),
        made("metax", {"metax-tech.com/sgpu": "16"}, **{"metax-tech.com/node-gpu-devices": json.dumps(sgpus)}),
        made("cgpu", {"aliyun.com/gpu-count": "2", "aliyun.com/gpu-mem": "30"}),
        made("qgpu", {"tke.cloud.tencent.com/qgpu-core": "200", "tke.cloud.tencent.com/qgpu-memory": "30"}),
        made("volcano", {"volcano.sh/vgpu-number": "8"}, **{"volcano.sh/node-vgpu-register": VGPUS}),
    ]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("makers") / "state") as running:
        asyncio.run(_nodes(running))
        yield running


async def _nodes(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for body in nodes():
            await client.json("POST", NODES.path(), body=body)


async def submit(
    client: KubeClient,
    name: str,
    limits: dict[str, str],
    notes: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> None:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": limits}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes or {}, "labels": labels or {}},
        "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    await client.json("POST", PODS.path(SPACE), body=body)


async def running(platform: Up, client: KubeClient, name: str) -> dict[str, Any]:
    """The pod, when it runs."""
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        pod: dict[str, Any] = await client.json("GET", PODS.path(SPACE, name))
        if pod.get("status", {}).get("phase") == "Running":
            return pod
        assert pod.get("status", {}).get("phase") != "Failed", pod["status"]
        assert asyncio.get_running_loop().time() < deadline, (pod, platform.json("jobs")["items"])
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("name", "limits", "cards", "written"),
    [
        ("template", {NPU: "1", f"{NPU}-memory": "9000"}, "0:16384:vir05_1c_16g:1", ("hami.io/Ascend910B3-devices-allocated", "N-0,Ascend910B3,16384,0:;")),
        ("pair", {"kunlunxin.com/xpu": "2"}, "100:98304,100:98304", ("BAIDU_COM_DEVICE_IDX", "0,1")),
        ("gib", {"aliyun.com/gpu-mem": "4"}, "0:4096", ("scheduler.framework.gpushare.allocation", '{"0":{"0":4}}')),
        ("core", {"aws.amazon.com/neuroncore": "1"}, "50:0:1:1", ("AWS_NEURON_IDS", "0")),
        (
            "slices", {"enflame.com/drs-gcu": "3"}, "50:20480:3g.20gb:3",
            ("assigned-containers", '{"main":{"allocated":false,"request":3,"profileID":"1","profileName":"3g.20gb"}}'),
        ),
        (
            "share", {"metax-tech.com/sgpu": "1", "metax-tech.com/vcore": "40", "metax-tech.com/vmemory": "8"}, "40:8192:best-effort:1",
            ("metax-tech.com/gpu-devices-allocated", '[[{"uuid":"M-0","compute":40,"vRam":8192}]]'),
        ),
    ],
)  # fmt: skip
async def test_each_makers_pod_runs_on_what_it_was_given(
    platform: Up, client: KubeClient, name: str, limits: dict[str, str], cards: str, written: tuple[str, str]
) -> None:
    await submit(client, name, limits)
    notes = (await running(platform, client, name))["metadata"]["annotations"]
    assert given_of(notes["hbox.io/cards"]) == cards
    assert notes[written[0]] == written[1]


async def test_what_cannot_stand_beside_it_waits_with_the_makers_word(platform: Up, client: KubeClient) -> None:
    limits = {"metax-tech.com/sgpu": "1", "metax-tech.com/vcore": "40", "metax-tech.com/vmemory": "8"}
    await submit(client, "fixed", limits, {"metax-tech.com/sgpu-qos-policy": "fixed-share"})

    def reason() -> str:
        jobs = platform.json("jobs")["items"]
        return next((str(job["reason"]) for job in jobs if "fixed" in job["name"] and job["reason"]), "")

    said = await asyncio.to_thread(until, reason, timeout_s=30, what="the reason")
    assert "1 CardQosPolicyMismatch" in said


@pytest.mark.parametrize(
    ("name", "limits", "labels", "word"),
    [
        ("tencent", {"tke.cloud.tencent.com/qgpu-core": "20", "tke.cloud.tencent.com/qgpu-memory": "4"}, {}, "only be allocated by TKE's qgpu-scheduler"),
        ("several", {"aliyun.com/gpu-mem": "4"}, {"aliyun.com/gpu-count": "2"}, "aliyun.com/gpu-count is not supported"),
    ],
)  # fmt: skip
async def test_what_cannot_be_given_is_refused_with_a_word(
    platform: Up, client: KubeClient, name: str, limits: dict[str, str], labels: dict[str, str], word: str
) -> None:
    await submit(client, name, limits, labels=labels)

    def reason() -> str:
        jobs = platform.json("jobs")["items"]
        return next((str(job["reason"]) for job in jobs if name in job["name"] and job["reason"]), "")

    said = await asyncio.to_thread(until, reason, timeout_s=30, what="the reason")
    assert word in said, said


async def test_pods_of_a_volcano_group_that_spread_have_cards_of_their_own(platform: Up, client: KubeClient) -> None:
    """A member that does not ask for it counts too, and shares with whom it likes."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "apart", "namespace": SPACE},
        "spec": {"minMember": 1, "queue": "default"},
    }
    await client.json("POST", PODGROUPS.path(SPACE), body=group)
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "4096", "volcano.sh/vgpu-cores": "20"}
    member, spread = {"scheduling.k8s.io/group-name": "apart"}, {"volcano.sh/vgpu-podgroup-policy": "spread"}
    for name in ("apart-0", "apart-1"):
        await submit(client, name, limits, member | spread)
    pods = [await running(platform, client, name) for name in ("apart-0", "apart-1")]
    notes = [pod["metadata"]["annotations"] for pod in pods]
    assert sorted(one["volcano.sh/vgpu-ids-new"] for one in notes) == ["V-0,NVIDIA,4096,20:", "V-1,NVIDIA,4096,20:"]
    await submit(client, "apart-2", limits, member | spread)
    await submit(client, "beside", limits, member)
    await running(platform, client, "beside")

    def reason() -> str:
        jobs = platform.json("jobs")["items"]
        return next((str(job["reason"]) for job in jobs if "apart" in job["name"] and job["reason"]), "")

    said = await asyncio.to_thread(until, reason, timeout_s=30, what="the reason")
    assert "CardNotFoundCustomFilterRule" in said, said


async def test_the_books_are_sound(platform: Up) -> None:
    found = {item["name"]: item["cards"] for item in platform.json("nodes")["items"]}
    assert {name: found[name]["total"] for name in ("ascend", "kunlun", "neuron", "enflame", "metax", "volcano", "cgpu", "qgpu")} == {
        "ascend": 8, "kunlun": 8, "neuron": 16, "enflame": 1, "metax": 1, "volcano": 2, "cgpu": 2, "qgpu": 2,
    }  # fmt: skip
    audit = platform.hbox("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr
