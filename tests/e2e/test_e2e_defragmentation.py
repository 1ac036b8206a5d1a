"""Moves have to pay, through all services: who moves for whom, that nobody does where it costs more, and what happens when processes die in the
middle (ADR 41). The same stories in `hbox simulate cycle` are in tests/unit/hbox_cli/test_simulate_defragmentation.py.

Drawing: three nodes of 8 cards, two singles on each; `wide` is a gang of two pods with 8 cards each. All are on level medium, which nobody preempts."""

import json
import os
import signal
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from hbox_common.kube import NODES, PODDISRUPTIONBUDGETS, PODGROUPS, PODS, KubeClient

from ..policies import MOVING
from ..waiting import until
from .platform_world import Up, placed, queue, up
from .test_e2e_policy_actions import pod
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE = "default"
POLICY = (
    MOVING.replace("{name: gang}", "{name: gang}\n  - {name: levels}")
    + """\
configurations:
- name: consolidate
  arguments: {%s}
"""
)
SINGLES = [f"s{n}{i}" for n in range(3) for i in range(2)]


async def post(client: KubeClient, *pods: dict[str, Any]) -> None:
    for one in pods:
        await client.json("POST", PODS.path(SPACE), body=one)


async def run_there(client: KubeClient, *names: str) -> None:
    async def there() -> bool:
        return set(names) <= (await placed(client, SPACE)).keys()

    await until(there, f"{', '.join(names)} have places", timeout_s=60)


async def spread(client: KubeClient, *, nodes: int = 3, annotations: dict[str, str] | None = None) -> None:
    """Two singles on each node: fillers kept them apart, and are gone."""
    for number in range(nodes):
        await client.json("POST", NODES.path(), body=node(f"n{number}"))
        singles, filler = [pod(f"s{number}{single}") for single in range(2)], pod(f"filler{number}", cards=6)
        for one in (*singles, filler):
            one["spec"]["priorityClassName"] = "medium"
            one["metadata"]["annotations"] |= annotations or {}
            one["metadata"]["labels"] = {"app": one["metadata"]["name"]}
        await post(client, *singles, filler)
        await run_there(client, f"s{number}0", f"s{number}1", f"filler{number}")
    for number in range(nodes):
        await client.json("DELETE", PODS.path(SPACE, f"filler{number}"))

    async def apart() -> bool:
        where = await placed(client, SPACE)
        return len(where) == 2 * nodes and all(where[f"s{n}{s}"] == f"n{n}" for n in range(nodes) for s in range(2))

    await until(apart, "two singles on each node", timeout_s=60)


async def gang(client: KubeClient, *, pods: int = 2) -> None:
    body = {"metadata": {"name": "wide"}, "spec": {"minMember": pods}}
    await client.json(
        "POST", PODGROUPS.path(SPACE), body={"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **body}
    )
    members = [pod(f"wide-{number}", "wide", cards=8) for number in range(pods)]
    for one in members:
        one["spec"]["priorityClassName"] = "medium"
    await post(client, *members)


async def gone(client: KubeClient, names: Iterable[str], *, count: int) -> list[str]:
    """Those of these pods that were evicted, once there are `count` of them."""
    listed = list(names)

    async def left() -> list[str]:
        there = await placed(client, SPACE)
        away = [name for name in listed if name not in there]
        return away if len(away) == count else []

    await until(left, f"{count} of {listed} are evicted", timeout_s=60)
    return await left()


def receipts(running: Up, *pods: str) -> list[dict[str, Any]]:
    """Of all that were written about these pods."""
    found = {}
    for name in pods:
        done = running.hbox("-o", "json", "why", "--evicted", name)
        assert done.returncode in (0, 3), done.stderr
        for one in json.loads(done.stdout)["receipts"] if done.returncode == 0 else ():
            found[one["job"], one["at"]] = one
    return list(found.values())


async def why(running: Up, job: str, words: str) -> str:
    async def said() -> str:
        text = running.hbox("why", job).stdout
        return text if words in text else ""

    await until(said, f"hbox why {job} says {words!r}", timeout_s=60)
    return await said()


async def measured(running: Up, *, largest: dict[str, int]) -> None:
    """What scheduler-core exports: measured every ten seconds at most."""
    url = json.loads((running.state / "platform.json").read_text())["health"]["scheduler-core"]

    def figures() -> dict[str, float]:
        with urlopen(f"{url}/metrics", timeout=10) as answer:
            lines = [line.rpartition(" ") for line in answer.read().decode().splitlines() if not line.startswith("#")]
        return {
            name.removeprefix("hbox_scheduler_"): float(value) for name, _, value in lines if name.startswith("hbox_scheduler_")
        }

    async def right() -> bool:
        found = figures()
        shapes = {cards: found.get(f'largest_gang_pods{{cards="{cards}"}}', -1) for cards in largest}
        return shapes == largest and found["idle_cards"] == 18 and 0 < found["fragment_cards"] <= 18

    await until(right, f"the metrics say {largest}: {figures()}", timeout_s=60)


async def test_singles_move_for_a_gang_where_that_pays_and_nothing_is_lost_when_everybody_dies(tmp_path: Path) -> None:
    """First moves would cost more than they gain; then they are only looked for; then they are made, by a scheduler-core that has
    placed nobody. It and the ledger die when the singles have left: the places of both stay kept, and nobody moves twice."""
    policy = tmp_path / "volcano-scheduler.conf"
    policy.write_text(POLICY % "horizon: 1s")
    with up(tmp_path / "state", "--levels", env={"HBOX_SCHEDULER_CONF": str(policy)}) as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await spread(client)
            await gang(client)
            text = await why(running, "wide", "costs more than it gains")
            assert "moving 4 pods would make room for it, which costs more than it gains: gains 16 cards" in text
            shown = running.json("defrag")
            assert (shown["mode"], shown["cards"], shown["idleCards"], shown["largestGangs"]["8"]) == ("on", 24, 18, 0)
            [proposal] = shown["proposals"]
            assert (proposal["pays"], proposal["cardsGained"], len(proposal["moves"])) == (False, 16, 4)
            assert proposal["cardHoursLost"] > proposal["cardHoursGained"]
            table = running.hbox("defrag", "-o", "wide").stdout
            assert all(move["pod"] in table for move in proposal["moves"])
            await measured(running, largest={"1": 18, "2": 9, "4": 3, "8": 0})
            assert (await placed(client, SPACE)).keys() == set(SINGLES), "nobody moved"

            policy.write_text(POLICY % "mode: preview")
            await why(running, "wide", "which pays, but the policy has mode: preview")
            [proposal] = running.json("defrag")["proposals"]
            assert proposal["pays"]
            assert "does not pay" not in running.hbox("defrag").stdout
            assert (await placed(client, SPACE)).keys() == set(SINGLES), "nobody moved"

            old = running.pids()["scheduler-core"]
            os.kill(old, signal.SIGKILL)  # whoever comes next has placed none of them

            async def another() -> bool:
                return running.pids()["scheduler-core"] != old

            await until(another, "another scheduler-core", timeout_s=60)
            policy.write_text(POLICY % "mode: on")
            moved = await gone(client, SINGLES, count=4)
            for name in ("scheduler-core", "quota-ledger"):
                os.kill(running.pids()[name], signal.SIGKILL)
            await post(client, *(pod(f"again-{name}") for name in moved))
            await run_there(client, "wide-0", "wide-1", *(f"again-{name}" for name in moved))
            where = await placed(client, SPACE)
            stayed = {where[name] for name in SINGLES if name in where}
            assert len(stayed) == 1
            assert {where[f"again-{name}"] for name in moved} == stayed, "the places were kept"
            assert {where["wide-0"], where["wide-1"]} == {"n0", "n1", "n2"} - stayed
            told = receipts(running, *SINGLES)
            assert sorted(one["pod"] for receipt in told for one in receipt["pods"]) == sorted(moved), "nobody was moved twice"
            assert {receipt["rule"] for receipt in told} == {"consolidate"}
            assert all(
                "which gains 16 cards for 1 h (16 card-hours), 4 pods with 4 cards move and lose" in one["message"]
                for one in told
            )
            assert receipts(running, *(f"again-{name}" for name in moved)) == []
        assert running.json("audit")["faults"] == []


async def test_nobody_moves_within_its_minimum_run_time_nor_under_a_budget_that_is_used_up(tmp_path: Path) -> None:
    """HBox's own policy, by setting. The singles' queue says that they run for 30 s at least; the gang could start at once if they moved. One of
    those on n0 is under a budget that allows no disruption: those on n1 move."""
    with up(tmp_path / "state", "--levels", env={"HBOX_DEFRAGMENTATION": "on"}) as running:
        queue(running, "create", "steady", "--deserved", "nvidia.com/gpu=8", "--min-run-time", "30s")
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            began = datetime.now(UTC)
            singles = [f"s{n}{s}" for n in range(2) for s in range(2)]
            await spread(client, nodes=2, annotations={"scheduling.volcano.sh/queue-name": "steady"})
            spec = {"selector": {"matchLabels": {"app": "s00"}}, "maxUnavailable": 0}
            budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "s00"}, "spec": spec}
            await client.json("POST", PODDISRUPTIONBUDGETS.path(SPACE), body=budget)
            await gang(client, pods=1)
            moved = await gone(client, singles, count=2)
            assert moved == ["s10", "s11"]
            told = receipts(running, *singles)
            assert sorted(one["pod"] for receipt in told for one in receipt["pods"]) == moved
            for receipt in told:
                assert datetime.fromisoformat(receipt["at"]) - began > timedelta(seconds=30)
            await post(client, *(pod(f"again-{name}") for name in moved))
            await run_there(client, "wide-0")
        assert running.json("audit")["faults"] == []


def shared(name: str) -> dict[str, Any]:
    """A node of two cards in ten slots each, registered by HAMi's plugin."""
    cards = [
        {
            "id": f"GPU-{name}-{i}",
            "index": i,
            "count": 10,
            "devmem": 40_960,
            "devcore": 100,
            "type": "NVIDIA-A100",
            "health": True,
        }
        for i in range(2)
    ]
    body = node(name)
    body["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps(cards)}
    body["status"]["allocatable"] = body["status"]["capacity"] = body["status"]["capacity"] | {"nvidia.com/gpu": "20"}
    return body


def part(name: str, *, percent: int) -> dict[str, Any]:
    made = pod(name)
    wanted = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(40_960 * percent // 100), "nvidia.com/gpucores": str(percent)}
    made["spec"]["containers"][0]["resources"]["limits"] = wanted
    made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "100m"} | wanted
    return made


async def test_slices_move_together_for_a_pod_that_needs_whole_cards(tmp_path: Path) -> None:
    """A slice of a tenth on each of four cards: fillers of nine tenths kept them apart, and are gone. Nobody has a whole card until two of them move; their
    device plugins hand each what HBox chose, before and after."""
    policy = tmp_path / "volcano-scheduler.conf"
    policy.write_text(POLICY % "mode: preview")
    names = [f"s{n}{i}" for n in range(2) for i in range(2)]
    with up(tmp_path / "state", "--levels", env={"HBOX_SCHEDULER_CONF": str(policy)}) as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            for number in range(2):
                await client.json("POST", NODES.path(), body=shared(f"n{number}"))
                for i in range(2):
                    await post(client, part(f"s{number}{i}", percent=10), part(f"filler{number}{i}", percent=90))
                    await run_there(client, f"s{number}{i}", f"filler{number}{i}")
            fillers = [f"filler{n}{i}" for n in range(2) for i in range(2)]
            for name in fillers:
                await client.json("DELETE", PODS.path(SPACE, name))

            async def apart() -> bool:
                return (await placed(client, SPACE)).keys() == set(names)

            await until(apart, "four slices, each on a card of its own", timeout_s=60)
            await post(client, pod("whole", cards=2))
            text = await why(running, "whole", "which pays, but the policy has mode: preview")
            assert "moving 2 pods would make room for it" in text
            [proposal] = running.json("defrag")["proposals"]
            assert (proposal["pays"], proposal["cardsGained"], len(proposal["moves"])) == (True, 2, 2)
            assert (await placed(client, SPACE)).keys() == set(names), "nobody moved"

            policy.write_text(POLICY % "mode: on")
            moved = await gone(client, names, count=2)
            assert len({name[1] for name in moved}) == 1, "those of one node"
            await post(client, *(part(f"again-{name}", percent=10) for name in moved))
            await run_there(client, "whole", *(f"again-{name}" for name in moved))
            where = await placed(client, SPACE)
            assert where["whole"] == f"n{moved[0][1]}"
            assert {where[f"again-{name}"] for name in moved} == {"n0", "n1"} - {where["whole"]}
        assert running.json("audit")["faults"] == []
