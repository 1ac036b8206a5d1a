"""The rules that departments live by, on a real control plane: who gives way to whom, by which policy, and what tenants and operators are told. What
`hbox simulate cycle` says of the cluster's own objects beforehand is what happens. Tenants try to get around each rule, and objects change in the middle.

The stories share a cluster and a platform, whose policy is changed from one to the next; each has nodes, queues and pods of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.clock import wall_s
from hbox_common.errors import NotFound
from hbox_common.kube import (
    EVENTS,
    HYPERNODES,
    MERGE_PATCH,
    NODES,
    PODDISRUPTIONBUDGETS,
    PODGROUPS,
    PODS,
    QUEUES,
    KubeClient,
    Resource,
    rfc3339,
)
from hbox_common.model.consolidation import Mode
from hbox_scheduler.core.policy.default import DEFAULT_CONF, default_text

from .. import waiting
from ..e2e import test_e2e_idle_cards as idle_cards
from ..e2e.platform_world import Up, foretold, hbox, queue, saved, simulate_cycle, up
from ..e2e.platform_world import placed as placed_in
from ..e2e.test_e2e_policy_actions import LENT, closed
from ..e2e.test_e2e_weights import POLICY as BY_WEIGHT
from ..e2e.traced_jobs import node
from .control_plane import control_plane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

Json = dict[str, Any]

SPACE, GPU = "default", "nvidia.com/gpu"
JOBS = Resource("batch", "v1", "jobs", namespaced=True)
DEPLOYMENTS = Resource("apps", "v1", "deployments", namespaced=True)
#: As Volcano writes its groups and queues.
VOLCANO = "scheduling.volcano.sh/v1beta1"

assert "after: 2m" in DEFAULT_CONF
#: HBox's own, but that large jobs have nodes set aside sooner.
OWN = DEFAULT_CONF.replace("after: 2m", "after: 2s")
MOVES = default_text(defragmentation=Mode.ON)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With Kubernetes' own controllers, kwok for kubelets, and the levels' PriorityClasses as the chart's job makes them."""
    with control_plane(tmp_path_factory.mktemp("rules")) as plane:
        made = hbox("definitions", "apply", "--levels", "--kubeconfig", str(plane.kubeconfig))
        assert made.returncode == 0, made.stderr
        yield plane


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that scheduler-core and ledger follow."""
    file = tmp_path_factory.mktemp("policy") / "volcano-scheduler.conf"
    file.write_text(OWN)
    return file


@pytest.fixture(scope="module")
def platform(plane: ControlPlane, policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    env = {"HBOX_SCHEDULER_CONF": str(policy), "HBOX_NOTICE_S": "4"}
    state = tmp_path_factory.mktemp("platform") / "state"
    with up(state, "--kubeconfig", str(plane.kubeconfig), "--shares", "policy", env=env) as running:
        yield running


@pytest.fixture
async def stage(plane: ControlPlane, platform: Up, policy: Path, tmp_path: Path) -> AsyncIterator[Stage]:
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        yield (stage := Stage(client, platform, policy, tmp_path))
        await stage.leave()


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster without nodes and pods, and what is asked of it."""

    client: KubeClient
    running: Up
    policy: Path
    folder: Path

    async def follow(self, text: str) -> None:
        """The policy from now on."""
        if self.policy.read_text() != text:
            self.policy.write_text(text)
            await asyncio.sleep(1.5)  # it is looked at twice a second

    async def make(self, *objects: Json) -> None:
        """Nodes with all that they have: an API server takes their status apart."""
        for one in objects:
            resource = {
                "Pod": PODS,
                "PodGroup": PODGROUPS,
                "Node": NODES,
                "Queue": QUEUES,
                "HyperNode": HYPERNODES,
                "Job": JOBS,
            }.get(one["kind"], DEPLOYMENTS)
            await self.client.json("POST", resource.path(SPACE if resource.namespaced else None), body=one)
        if any(one["kind"] == "Node" for one in objects):
            await waiting.until(self._all_ready, "nodes without the taint that new ones have", timeout_s=30)

    async def _all_ready(self) -> bool:
        return not any(one["spec"].get("taints") for one in (await self.client.json("GET", NODES.path()))["items"])

    async def note(self, name: str, **notes: str | None) -> None:
        """Annotations `hbox.io/...` of a pod, as its tenant writes them."""
        body = {"metadata": {"annotations": {f"hbox.io/{key.replace('_', '-')}": value for key, value in notes.items()}}}
        await self.client.json("PATCH", PODS.path(SPACE, name), body=body, content_type=MERGE_PATCH)

    async def remove(self, *prefixes: str) -> None:
        for kind in (DEPLOYMENTS, JOBS, PODGROUPS, PODS):
            for one in (await self.client.json("GET", kind.path(SPACE)))["items"]:
                if one["metadata"]["name"].startswith(prefixes):
                    with suppress(NotFound):
                        params = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
                        await self.client.json("DELETE", kind.path(SPACE, one["metadata"]["name"]), params=params)

    async def placed(self) -> dict[str, str]:
        return await placed_in(self.client, SPACE)

    async def held(self) -> dict[str, int]:
        """Pods with a node that do not leave, by their names up to the first hyphen."""
        return dict(Counter(name.partition("-")[0] for name in await self.placed()))

    async def come_to_be(self, *, stay_s: float = 0.0, timeout_s: float = 30.0, **wanted: int) -> None:
        async def so() -> bool:
            return await self.held() == wanted

        try:
            await waiting.until(so, f"{wanted}", timeout_s=timeout_s)
        except AssertionError as e:
            waits = {f"{job['name']}: {job['reason']}" for job in self.running.json("jobs", "--state-is", "waiting")["items"]}
            raise AssertionError(f"{e}: {await self.held()}; {sorted(waits)}") from e
        await asyncio.sleep(stay_s)
        assert await so(), f"{wanted} did not stay: {await self.held()}"

    async def foretold(self, *more: Json) -> dict[str, int]:
        """Whom `hbox simulate cycle` has evicted for these objects, by the policy that is followed and the cluster as it is."""
        return dict(await foretold(self.client, self.folder, *map(_in_space, more), policy=self.policy.read_text()))

    async def simulated(self, *more: Json) -> Any:
        return simulate_cycle(self.folder, [*await saved(self.client), *map(_in_space, more)], policy=self.policy.read_text())

    async def said(self, job: str, *words: str, timeout_s: float = 20.0) -> None:
        """By `hbox why`."""
        told = ""

        async def so() -> bool:
            nonlocal told
            told = " ".join((await asyncio.to_thread(self.running.hbox, "why", job)).stdout.split())
            return all(word in told for word in words)

        try:
            await waiting.until(so, f"{job} is told {words}", timeout_s=timeout_s)
        except AssertionError as e:
            raise AssertionError(f"{e}, but: {told}") from e

    async def receipt(self, pod: str) -> Json:
        """The only one about it."""
        [found] = (await asyncio.to_thread(self.running.json, "why", "--evicted", pod))["receipts"]
        return dict(found)

    async def gone(self, word: str, count: int) -> list[str]:
        """Those of `word-0`, `word-1`, ... that have no place any more."""
        there = await self.placed()
        return [name for number in range(count) if (name := f"{word}-{number}") not in there]

    async def events(self, name: str, reason: str) -> list[str]:
        found = (await self.client.json("GET", EVENTS.path(SPACE)))["items"]
        return [one["message"] for one in found if one["involvedObject"]["name"] == name and one["reason"] == reason]

    async def leave(self) -> None:
        """As it was before, but for its queues. Whatever the story was, nothing is booked twice and nothing lost."""
        try:
            await self.remove("")

            async def empty() -> bool:
                await self.remove("")
                return not (await self.client.json("GET", PODS.path(SPACE)))["items"]

            await waiting.until(empty, "no pods", timeout_s=30)
            assert (await asyncio.to_thread(self.running.json, "audit"))["faults"] == []
        finally:
            for kind in (NODES, HYPERNODES):
                for one in (await self.client.json("GET", kind.path()))["items"]:
                    await self.client.json("DELETE", kind.path(name=one["metadata"]["name"]))


def _in_space(one: Json) -> Json:
    return one if one["kind"] in ("Node", "Queue", "HyperNode") else one | {"metadata": one["metadata"] | {"namespace": SPACE}}


def named(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": VOLCANO,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": True, **spec},
    }


def pod(
    name: str,
    of: str,
    *,
    cards: int = 1,
    group: str = "",
    level: str = "",
    volcano: Mapping[str, str] | None = None,
    **notes: str,
) -> Json:
    """notes: `hbox.io/...`, where they say anything; volcano: `volcano.sh/...`."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: str(cards)}}}
    annotations = {
        "scheduling.volcano.sh/queue-name": of,
        **{f"hbox.io/{key.replace('_', '-')}": text for key, text in notes.items() if text},
    }
    annotations |= {f"volcano.sh/{key}": text for key, text in (volcano or {}).items()}
    annotations |= {"scheduling.k8s.io/group-name": group} if group else {}
    spec: Json = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]}
    spec |= {"priorityClassName": level} if level else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


def _template(one: Json, labels: Mapping[str, str]) -> Json:
    return {"metadata": {"annotations": one["metadata"]["annotations"], "labels": dict(labels)}, "spec": one["spec"]}


def deployment(name: str, one: Json, *, replicas: int = 1) -> Json:
    """Of such pods, which its controllers make anew when they go."""
    labels = {"app": name}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": _template(one, labels)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def gang(name: str, of: str, pods: int, *, cards: int = 1, walltime: str = "") -> list[Json]:
    """Its PodGroup, and its pods."""
    group = {
        "apiVersion": VOLCANO,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": pods, "queue": of},
    }
    return [group, *(pod(f"{name}-{number}", of, cards=cards, group=name, walltime=walltime) for number in range(pods))]


async def test_queues_get_their_shares_by_weight_back_and_a_changed_weight_counts_at_once(stage: Stage) -> None:
    """Volcano's classic policy. light has all 16 and says that nobody may take from it; heavy weighs three times as much. Then an administrator has both
    weigh the same."""
    await stage.follow(BY_WEIGHT)
    await stage.make(node("n0"), node("n1"), named("light"), named("heavy", weight=3))
    firm = {"preemptable": "false"}
    await stage.make(*(pod(f"light-{number}", "light", volcano=firm) for number in range(16)))
    await stage.come_to_be(light=16)
    heavy = [pod(f"heavy-{number}", "heavy") for number in range(16)]
    assert await stage.foretold(*heavy) == {"light": 12}
    await stage.make(*heavy)
    await stage.come_to_be(light=4, heavy=12, stay_s=1.0)
    assert "light has 4 of nvidia.com/gpu: it deserves 4 by its weight of 1" in stage.running.hbox("share", "light").stdout
    [rule] = {(await stage.receipt(name))["rule"] for name in await stage.gone("light", 16)}
    assert rule == "reclaim"

    await stage.client.json("PATCH", QUEUES.path(name="heavy"), body={"spec": {"weight": 1}}, content_type=MERGE_PATCH)
    await asyncio.sleep(1.0)
    assert await stage.held() == {"light": 4, "heavy": 12}, "nobody wants more"
    again = [pod(f"light-again-{number}", "light", volcano=firm) for number in range(8)]
    await stage.make(*again)
    await stage.come_to_be(light=8, heavy=8, stay_s=1.0)


async def test_a_large_gang_has_nodes_set_aside_and_small_work_fills_the_time_until_then(stage: Stage) -> None:
    """`long` holds 6 of each node's 8 cards for two hours, as it says; `big` needs all four nodes. Meanwhile only those start who say that they end before.
    A tenant that says so, says ten hours once it runs, and stays, is not believed again. When `big` is withdrawn those who waited for it start."""
    await stage.follow(OWN)
    await stage.make(*(node(f"n{number}") for number in range(4)), named("train"), named("small"), named("liar"))
    await stage.make(*gang("long", "train", 4, cards=6, walltime="2h"))
    await stage.come_to_be(long=4)
    await stage.make(*gang("big", "train", 4, cards=8))
    await stage.said("big", "reserved for it: n", "expected to start at", "there until then: 4 of queue train")
    brief = [pod(f"brief-{number}", "small", walltime="60s", run_seconds="8") for number in range(3)]
    endless = pod("endless-0", "small")
    found = await stage.simulated(endless, *brief)
    assert sorted(one["pod"] for one in found["bindings"]) == [f"{SPACE}/brief-{number}" for number in range(3)]
    assert found["pending"][f"{SPACE}/endless-0"]["reasons"] == {"ReservedForLargeJob": 4}
    assert "reserved for it: n" in found["pending"][f"{SPACE}/big-0"]["message"]
    await stage.make(endless, *brief, pod("lie-0", "liar", walltime="10s"))
    await stage.come_to_be(long=4, brief=3, lie=1)
    began = time.monotonic()
    await stage.note("lie-0", walltime="10h")
    await stage.said("endless-0", "set aside for a gang of queue train (4 pods), expected to start at")
    assert await stage.events("big", "FailedScheduling"), "its PodGroup is told too"

    await asyncio.sleep(max(0, began + 15 - time.monotonic()))  # it is over its ten seconds by a third and more
    await stage.make(pod("again-0", "liar", walltime="100m"), pod("honest-0", "small", walltime="100m"))
    await stage.come_to_be(long=4, lie=1, honest=1)  # the brief ones have ended
    await stage.said("again-0", "set aside for a gang of queue train (4 pods), expected to start at")

    await stage.remove("big")
    await stage.come_to_be(long=4, lie=1, honest=1, endless=1, again=1)


async def test_work_without_cards_leaves_idle_cards_their_cores_and_what_it_took_is_taken_back(stage: Stage) -> None:
    """`plain` has 8 cards, `hami` 8 in ten slots each; both 64 cores. Pods without cards get 16 cores of each, also where they write that they ask for 0
    cards; those with cards find their 6, and who needs 14 takes the rest back by its priority."""
    await stage.follow(OWN)
    await stage.make(*idle_cards.nodes())
    cpu = idle_cards.pods("cpu", 36, cpu="1", level="low")
    for one in cpu[:4]:
        one["spec"]["containers"][0]["resources"]["limits"] = {GPU: "0"}
    found = await stage.simulated(*cpu)
    assert len(found["bindings"]) == 32
    assert {str(one["reasons"]) for one in found["pending"].values()} == {"{'ResourcesKeptForIdleCards': 2}"}
    await stage.make(*cpu)
    await stage.come_to_be(cpu=32)
    waits = (await stage.gone("cpu", 36))[0]
    await stage.said(waits, "2 ResourcesKeptForIdleCards", "2 nodes keep cores and memory for idle cards")

    cards = idle_cards.pods("card", 14, cpu="6", cards=1)
    assert len((await stage.simulated(*cards))["bindings"]) == 14
    await stage.make(*cards)
    await stage.come_to_be(cpu=32, card=14)
    large = idle_cards.pods("large", 2, cpu="14", cards=1)
    assert await stage.foretold(*large) == {"cpu": 16}  # 6 cores for each are there, 8 more have to be left
    await stage.make(*large)
    await stage.come_to_be(cpu=16, card=14, large=2)


async def test_a_node_for_cards_alone_takes_no_other_work_until_its_label_says_so(stage: Stage) -> None:
    """Not even a pod that asks for nothing. Who runs there when the label comes stays."""
    await stage.follow(OWN)
    await stage.make(node("n0"))
    await stage.make(*idle_cards.pods("early", 1, cpu="1"))
    await stage.come_to_be(early=1)
    for word, pods in ((True, {"early": 1, "card": 1}), (None, {"early": 1, "card": 1, "cpu": 1, "nothing": 1})):
        label = {"metadata": {"labels": {"hbox.io/cards-only": "true" if word else None}}}
        await stage.client.json("PATCH", NODES.path(name="n0"), body=label, content_type=MERGE_PATCH)
        if word:
            await asyncio.sleep(1.0)
            nothing = idle_cards.pods("nothing", 1, cpu="1")
            nothing[0]["spec"]["containers"][0]["resources"] = {}
            late = [*idle_cards.pods("cpu", 1, cpu="1"), *nothing, *idle_cards.pods("card", 1, cpu="1", cards=1)]
            found = await stage.simulated(*late)
            assert [one["pod"] for one in found["bindings"]] == [f"{SPACE}/card-0"]
            assert {str(one["reasons"]) for one in found["pending"].values()} == {"{'NodeTakesCardsOnly': 1}"}
            await stage.make(*late)
            for waits in ("cpu-0", "nothing-0"):
                await stage.said(waits, "1 node = 0 with room + 1 NodeTakesCardsOnly")
        await stage.come_to_be(**pods)


async def test_nobody_with_room_of_its_own_waits_behind_a_borrower_that_came_first(stage: Stage) -> None:
    """All wait before there is a node. six deserves 6 of 16 cards, four 4 in gangs of 2; what nobody deserves goes by weight, 6 to 3."""
    await stage.follow(OWN)
    await stage.make(
        named("six", deserved={GPU: "6"}),
        named("four", deserved={GPU: "4"}),
        named("loaner", weight=6),
        named("late", weight=3),
    )
    wanted = {"six": 6, "four": 4, "loaner": 4, "late": 2}
    await stage.make(*(one for number in range(8) for one in gang(f"loaner-{number}", "loaner", 2)))
    await stage.make(*(pod(f"late-{number}", "late") for number in range(6)))
    await stage.make(*(pod(f"six-{number}", "six") for number in range(10)))
    await stage.make(*(one for number in range(3) for one in gang(f"four-{number}", "four", 2)))

    async def all_told() -> bool:
        pods = (await stage.client.json("GET", PODS.path(SPACE)))["items"]
        return all(one["status"].get("conditions") for one in pods)

    await waiting.until(all_told, "all wait", timeout_s=30)
    nodes = [node("n0"), node("n1")]
    found = await stage.simulated(*nodes)
    assert Counter(one["pod"].partition("/")[2].partition("-")[0] for one in found["bindings"]) == wanted
    await stage.make(*nodes)
    await stage.come_to_be(**wanted, stay_s=2.0)


async def test_nobody_is_taken_from_before_its_queues_time_nor_twice_in_a_row(stage: Stage) -> None:
    """The borrower's pods are left alone for 15 s whatever they write themselves, and then one goes though nothing else happens; the one that its ReplicaSet
    makes in its place cools down, and another one goes."""
    await stage.follow(OWN)
    await stage.make(node("n0"))
    queue(stage.running, "create", "patient", "--min-run-time", "15s", "--cool-down", "60s")
    queue(stage.running, "create", "entitled", "--deserved", f"{GPU}=4")
    began = time.monotonic()
    await stage.make(*(deployment(f"lent{number}", pod("", "patient", min_run_time="9h")) for number in range(8)))
    await stage.come_to_be(**{f"lent{number}": 1 for number in range(8)})
    before = await stage.placed()
    mine = [pod(f"mine-{number}", "entitled") for number in range(2)]
    found = await stage.simulated(mine[0])
    assert found["evictions"] == []
    assert (
        "pods that are not evictable yet: 8 of queue patient in minimum run time until 20"
        in found["pending"][f"{SPACE}/mine-0"]["message"]
    )
    await stage.make(mine[0])
    await stage.said("mine-0", "of queue patient in minimum run time until 20")

    async def has(name: str) -> bool:
        return name in await stage.placed()

    await waiting.until(lambda: has("mine-0"), "the owner has its card", timeout_s=30)
    assert time.monotonic() - began >= 15
    [gone] = before.keys() - (await stage.placed()).keys()
    queue(stage.running, "set", "patient", "--min-run-time", "0s")
    await stage.remove("mine-0")
    evicted = gone.partition("-")[0]

    async def again() -> str:
        return next((name for name in await stage.placed() if name.startswith(f"{evicted}-")), "")

    await waiting.until(again, "the one that was evicted is back", timeout_s=30)
    back = await again()
    assert back != gone
    await stage.make(mine[1])
    await waiting.until(lambda: has("mine-1"), "the owner has its card again", timeout_s=30)
    assert await has(back), "it was served last, and was evicted a moment ago"
    await stage.client.json("DELETE", DEPLOYMENTS.path(SPACE, evicted), params={"propagationPolicy": "Background"})


async def test_who_loses_least_goes_first_with_notice_and_is_told_for_whom(stage: Stage) -> None:
    """One says that it has just written a checkpoint and takes an hour to write another: it has 4 s for it. One says so of tomorrow, one writes rubbish:
    they lose all of their run, as those do that say nothing."""
    await stage.follow(OWN)
    await stage.make(node("n0"), named("borrows"), named("deserves", deserved={GPU: "4"}))
    told = pod("told-0", "borrows", checkpoint_on_notice="1h")
    await stage.make(
        told, pod("liar-0", "borrows"), pod("rubbish-0", "borrows"), *(pod(f"lent-{number}", "borrows") for number in range(5))
    )
    await stage.come_to_be(told=1, liar=1, rubbish=1, lent=5)
    await asyncio.sleep(2.0)
    await stage.note("told-0", checkpointed_at=rfc3339(wall_s()))
    await stage.note("liar-0", checkpointed_at=rfc3339(wall_s() + 86_400), checkpoint_interval="-1s")
    await stage.note("rubbish-0", checkpointed_at="yes", checkpoint_interval="often")
    assert await stage.foretold(pod("mine-0", "deserves")) == {"told": 1}
    asked = time.time()
    await stage.make(pod("mine-0", "deserves"))

    async def noticed() -> Json:
        with suppress(NotFound):
            notes: Json = (await stage.client.json("GET", PODS.path(SPACE, "told-0")))["metadata"]["annotations"]
            return notes if "hbox.io/eviction-deadline" in notes else {}
        return {}

    notes = await waiting.until(noticed, "the notice", timeout_s=20)
    assert 3 < datetime.fromisoformat(notes["hbox.io/eviction-deadline"]).timestamp() - asked < 15
    assert "default/mine-0" in notes["hbox.io/eviction-reason"]
    await stage.come_to_be(mine=1, liar=1, rubbish=1, lent=5)
    receipt = await stage.receipt("told-0")
    assert (receipt["rule"], receipt["queue"], receipt["noticeSeconds"]) == ("reclaim", "borrows", 4)
    assert receipt["for"]["name"] == "mine-0"
    assert "queue deserves uses 0 of nvidia.com/gpu and deserves 4" in receipt["message"]
    text = stage.running.hbox("why", "--evicted", f"{SPACE}/told-0").stdout
    assert "returns:  when the resources that it requests are idle" in text

    async def published() -> list[str]:
        return await stage.events("told-0", "Preempted")

    [event] = await waiting.until(published, "the pod's Event", timeout_s=20)
    assert "reclaimed for default/mine-0 of queue deserves" in event


async def test_an_owner_is_told_whose_budget_keeps_what_it_deserves_and_has_it_once_that_is_gone(stage: Stage) -> None:
    """Its borrower's tenant writes a PodDisruptionBudget by which nobody may go. Kubernetes' own controller counts for it."""
    await stage.follow(OWN)
    queue(stage.running, "create", "guarded")
    queue(stage.running, "create", "rightful", "--deserved", f"{GPU}=4")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "nobody"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "lent"}}},
    }
    await stage.client.json("POST", PODDISRUPTIONBUDGETS.path(SPACE), body=budget)
    await stage.make(node("n0"), deployment("lent", pod("", "guarded"), replicas=8))
    await stage.come_to_be(lent=8)

    async def counted() -> bool:
        found = await stage.client.json("GET", PODDISRUPTIONBUDGETS.path(SPACE, "nobody"))
        return bool(found.get("status", {}).get("expectedPods") == 8)

    await waiting.until(counted, "the budget's controller has seen all", timeout_s=30)
    told = "pods whose PodDisruptionBudgets let no more go: 8 of queue guarded (default/nobody)"
    mine = pod("mine-0", "rightful")
    found = await stage.simulated(mine)
    assert (found["evictions"], told in found["pending"][f"{SPACE}/mine-0"]["message"]) == ([], True)
    await stage.make(mine)
    await stage.said("mine-0", told)
    assert await stage.held() == {"lent": 8}
    await stage.client.json("DELETE", PODDISRUPTIONBUDGETS.path(SPACE, "nobody"))
    await stage.come_to_be(lent=7, mine=1)


async def test_pods_move_for_a_gang_where_that_pays_and_their_successors_find_their_places_kept(stage: Stage) -> None:
    """Two singles on each of three nodes, each a Deployment's; `wide` needs two nodes whole. Four move to the third: what their ReplicaSets make gets the
    places that were kept, though others ask for a card at the same moment."""
    await stage.follow(MOVES)
    await stage.make(*(node(f"n{number}") for number in range(3)), named("mixed", deserved={GPU: "24"}))
    for number in range(3):
        for single in range(2):
            await stage.make(deployment(f"s{number}{single}", pod("", "mixed", level="medium")))
        await stage.make(pod(f"filler-{number}", "mixed", cards=6, level="medium"))
        names = {f"s{one}{single}": 1 for one in range(number + 1) for single in range(2)}
        await stage.come_to_be(**names, filler=number + 1)
    await stage.remove("filler")
    singles = {f"s{number}{single}": 1 for number in range(3) for single in range(2)}
    await stage.come_to_be(**singles)
    wide = gang("wide", "mixed", 2, cards=8)
    for one in wide[1:]:
        one["spec"]["priorityClassName"] = "medium"
    told = await stage.foretold(*wide)
    assert sum(told.values()) == 4
    before = await stage.placed()
    await stage.make(*wide)
    await stage.come_to_be(**singles, wide=2, timeout_s=60)
    after = await stage.placed()
    moved = before.keys() - after.keys()
    assert len(moved) == 4
    [third] = {"n0", "n1", "n2"} - {after["wide-0"], after["wide-1"]}
    assert {after[name] for name in after if not name.startswith("wide")} == {third}
    for name in moved:
        receipt = await stage.receipt(name)
        assert receipt["rule"] == "consolidate"
        assert "which gains 16 cards for 1 h (16 card-hours), 4 pods with 4 cards move and lose" in receipt["message"]


async def test_pods_leave_a_node_when_its_hour_is_over_by_the_clock_of_its_time_zone(stage: Stage) -> None:
    """n0 is lent by the hours of Shanghai, to who may be taken from. When they are over all leave, a gang one pod at a time though its budget lets nobody
    go, and one whose queue has nobody taken from it too; what their ReplicaSets make goes elsewhere."""
    await stage.follow(LENT % "00:00-00:00")
    lent = node("n0")
    lent["metadata"]["labels"]["volcano.sh/revocable-zone"] = "night"
    group = gang("g", "default", 0)[0]
    group["metadata"]["annotations"] = {"volcano.sh/jdb-max-unavailable": "0"}
    group["spec"]["minMember"] = 1
    queue(stage.running, "create", "listed", "--deserved", f"{GPU}=8", "--non-preemptible-classes", "*")
    await stage.make(lent, group, deployment("g", pod("", "default", group="g", volcano={"preemptable": "true"}), replicas=3))
    await stage.make(deployment("any", pod("", "listed", volcano={"revocable-zone": "*"})), pod("firm-0", "default"))
    await stage.come_to_be(g=3, any=1)
    await stage.said("firm-0", "1 node = 0 with room + 1 RevocableZone")
    await stage.make(node("n1"))
    await stage.come_to_be(g=3, any=1, firm=1)
    assert sorted((await stage.placed()).values()) == ["n0"] * 4 + ["n1"]
    stage.policy.write_text(LENT % closed())
    assert await stage.foretold() == {"g": 1, "any": 1}
    fewest = 4

    async def all_elsewhere() -> bool:
        nonlocal fewest
        there = await stage.placed()
        fewest = min(fewest, sum(name.startswith("g-") for name in there))
        return len(there) == 5 and set(there.values()) == {"n1"}

    await waiting.until(all_elsewhere, "all on the node that is not lent", timeout_s=60)
    assert fewest == 2


LEAVES = {"leaf-0": ("n0", "n2"), "leaf-1": ("n1", "n3")}
IN_SERVICE = {"in-service": "yes"}


async def test_ranks_of_kubernetes_own_jobs_walk_the_fabric_leaf_by_leaf(stage: Stage) -> None:
    """An Indexed Job's controller labels its pods; each of four nodes has room for two. Two neighbouring ranks share a node, four a leaf."""
    await stage.follow(OWN)
    for leaf, names in LEAVES.items():
        members = [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in names]
        spec = {"tier": 1, "members": members}
        await stage.make(
            {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": leaf}, "spec": spec}
        )
    nodes = [node(name) for names in LEAVES.values() for name in names]
    template = pod("", "default", cards=4, group="ranks")
    template["metadata"]["annotations"]["hbox.io/run-seconds"] = "600"
    template["spec"] |= {"restartPolicy": "Never", "nodeSelector": IN_SERVICE}
    spec = {"completionMode": "Indexed", "completions": 8, "parallelism": 8, "template": _template(template, {})}
    await stage.make(
        gang("ranks", "default", 8)[0], {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "ranks"}, "spec": spec}
    )

    async def pods() -> list[Json]:
        found = (await stage.client.json("GET", PODS.path(SPACE)))["items"]
        return sorted(found, key=lambda one: int(one["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))

    async def made() -> bool:
        return len(await pods()) == 8

    await waiting.until(made, "its controller has made eight", timeout_s=30)
    order = [f"{SPACE}/{one['metadata']['name']}" for one in await pods()]
    in_service = [
        one | {"metadata": one["metadata"] | {"labels": one["metadata"].get("labels", {}) | IN_SERVICE}} for one in nodes
    ]
    at = {one["pod"]: one["node"] for one in (await stage.simulated(*in_service))["bindings"]}
    assert [at[name] for name in order] == ["n0", "n0", "n2", "n2", "n1", "n1", "n3", "n3"]
    await stage.make(*nodes)

    async def in_the_fabric() -> bool:
        [fabric] = (await asyncio.to_thread(stage.running.json, "topo", "sources"))["items"]
        return bool(fabric["nodes"] == len(nodes))

    await waiting.until(in_the_fabric, "all nodes in the fabric, which is said half a second after them")
    for one in nodes:
        body = {"metadata": {"labels": IN_SERVICE}}
        await stage.client.json("PATCH", NODES.path(name=one["metadata"]["name"]), body=body, content_type=MERGE_PATCH)
    await stage.come_to_be(ranks=8)
    assert [one["spec"]["nodeName"] for one in await pods()] == ["n0", "n0", "n2", "n2", "n1", "n1", "n3", "n3"]
    assert [one["metadata"]["annotations"]["hbox.io/rank"] for one in await pods()] == [str(rank) for rank in range(8)]
