"""Through all services: a UFM says how machines are cabled, and gangs go by it. No HyperNode is in the cluster."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODGROUPS, PODS, PRIORITYCLASSES, KubeClient
from hbox_common.model.fabric import Snapshot
from hbox_sandbox.fabric import FabricPlan, UfmServer

from ..waiting import until
from .platform_world import Up, emptied, placed, simulate_cycle, up
from .test_e2e_fabric import hypernode
from .test_e2e_shares_and_neighbours import SPACE, create, pod
from .traced_jobs import node

pytestmark = pytest.mark.e2e

#: Two units of four machines, each with a leaf for each of eight rails.
PLAN = FabricPlan(host_name="n{}")
UNITS = {"leaf-p1u01": {"n0", "n1", "n2", "n3"}, "leaf-p1u02": {"n4", "n5", "n6", "n7"}}
MAX_AGE_S = 9


@contextmanager
def served(ufm: UfmServer) -> Iterator[None]:
    """On a loop of its own, beside that of tests."""
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with ufm:
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


@pytest.fixture(scope="module")
def ufm() -> Iterator[UfmServer]:
    server = UfmServer(PLAN.snapshot())
    with served(server):
        yield server


@pytest.fixture(scope="module")
def platform(ufm: UfmServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("ufm")
    (folder / "token").write_text(ufm.token)
    (folder / "fabrics.yaml").write_text(
        f"fabrics: [{{name: compute, ufm: {{url: '{ufm.url}', auth: token, credentials: {folder}, pollSeconds: 0.3}}}}]"
    )
    env = {"HBOX_FABRICS_FILE": str(folder / "fabrics.yaml"), "HBOX_FABRIC_MAX_AGE_S": str(MAX_AGE_S)}
    with up(folder / "state", env=env) as running:
        asyncio.run(_furnish(folder / "state" / "kubeconfig"))
        yield running


async def _furnish(kubeconfig: Path) -> None:
    async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
        for number in range(8):
            made = node(f"n{number}")
            made["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = f"n{number}"
            await client.json("POST", NODES.path(), body=made)
        for name, value in (("meek", 10), ("urgent", 1000)):
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
            await client.json("POST", PRIORITYCLASSES.path(), body=body)


@pytest.fixture
async def client(platform: Up) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        yield client
        await emptied(platform, client, SPACE)


async def gang(
    client: KubeClient, name: str, *, members: int, word: str, cards: Sequence[int] = (), rank: str = "", level: str = ""
) -> None:
    """A PodGroup with its pods, each with all cards of a machine, or with `cards`. rank: the PriorityClass of all."""
    await client.json(
        "POST",
        PODGROUPS.path(SPACE),
        body={
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {
                "name": name,
                "namespace": SPACE,
                "annotations": {"hbox.io/network-topology": word}
                | ({"hbox.io/network-topology-level": level} if level else {}),
            },
            "spec": {"minMember": members} | ({"priorityClassName": rank} if rank else {}),
        },
    )
    pods = [pod(f"{name}-{number}", cards=cards[number] if cards else 8) for number in range(members)]
    for one in pods:
        one["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = name
        one["spec"] |= {"priorityClassName": rank} if rank else {}
    await create(client, *pods)


async def nodes_of(client: KubeClient, name: str, members: int) -> set[str]:
    async def whole() -> bool:
        return len(await placed(client, SPACE, f"{name}-")) == members

    await until(whole, f"{name} whole", timeout_s=60)
    return set((await placed(client, SPACE, f"{name}-")).values())


async def waits(client: KubeClient, name: str, says: Callable[[str], bool]) -> str:
    """Why a gang waits, once the reason is as asked for."""

    async def told() -> str:
        listed = (await client.json("GET", PODS.path(SPACE)))["items"]
        mine = [one for one in listed if one["metadata"]["name"].startswith(f"{name}-")]
        messages = [c.get("message", "") for one in mine for c in one.get("status", {}).get("conditions", ())]
        return next(filter(says, messages), "")

    found: Any = await until(told, f"why {name} waits", timeout_s=60)
    return str(found)


async def test_a_gang_of_one_switch_is_in_one_unit_and_a_larger_one_is_told_which_has_most_room(
    client: KubeClient, platform: Up
) -> None:
    await gang(client, "near", members=3, word="singleSwitch")
    where = await nodes_of(client, "near", 3)
    [unit] = [name for name, hosts in UNITS.items() if where <= hosts]
    [other] = set(UNITS) - {unit}
    drawn = platform.hbox("topo", "draw").stdout
    assert all(f"<title>{name}: {SPACE}/near" in drawn for name in where), drawn
    await gang(client, "big", members=5, word="singleSwitch")
    said = await waits(client, "big", lambda message: "TopologyFull" in message)
    assert f"5 pods have to be in one domain of tier 1 or lower; the best, {other}, has room for 4" in said
    assert not await placed(client, SPACE, "big-")


async def test_one_switch_may_be_said_to_be_the_whole_fabric(client: KubeClient) -> None:
    await gang(client, "wide", members=6, word="singleSwitch", level="fabric")
    assert len(await nodes_of(client, "wide", 6)) == 6


async def test_the_command_shows_what_the_platform_knows(platform: Up, ufm: UfmServer) -> None:
    before = ufm.snapshot
    try:
        kept = tuple(link for link in before.hosts if (link.host, link.hca) != ("n2", "mlx5_4"))
        ufm.snapshot = replace(before, hosts=kept)
        [gap] = await until(lambda: platform.json("topo", "gaps")["items"], "the gap", timeout_s=20)
        assert gap["message"] == "n2 has no link on rail 3 (mlx5_4)"
        [source] = platform.json("topo", "sources")["items"]
        assert (source["name"], source["source"], source["nodes"], source["held"]) == ("compute", "ufm", 8, "")
        assert source["ageSeconds"] < MAX_AGE_S
        said = platform.hbox("topo", "tree", "--hosts").stdout
        assert "  leaf-p1u01  tier 1 (leafgroup), 4 nodes" in said
        assert "n2  without rail 3" in said
    finally:
        ufm.snapshot = before


async def test_a_machine_that_is_cabled_elsewhere_belongs_there_within_moments(client: KubeClient, ufm: UfmServer) -> None:
    before = ufm.snapshot
    leaves = {switch.name: guid for guid, switch in before.switches.items()}
    try:
        ufm.snapshot = replace(
            before,
            hosts=tuple(
                replace(link, switch=leaves[before.switches[link.switch].name.replace("u01", "u02")], switch_port=60)
                if link.host == "n3"
                else link
                for link in before.hosts
            ),
        )
        await asyncio.sleep(2.0)
        await gang(client, "five", members=5, word="singleSwitch")
        assert await nodes_of(client, "five", 5) == {"n3", "n4", "n5", "n6", "n7"}
    finally:
        ufm.snapshot = before
        await asyncio.sleep(2.0)


def swapped(before: Snapshot) -> Snapshot:
    """n3 and n7 are cabled in each other's place."""
    others = {"n3": "n7", "n7": "n3"}
    places = {(link.host, link.hca): (link.switch, link.switch_port) for link in before.hosts}
    moved = []
    for link in before.hosts:
        switch, port = places[others.get(link.host, link.host), link.hca]
        moved.append(replace(link, switch=switch, switch_port=port))
    return replace(before, hosts=tuple(moved))


AFTER = ({"n0", "n1", "n2", "n7"}, {"n4", "n5", "n6", "n3"})


async def binding_fails(client: KubeClient, *names: str) -> None:
    """Until it is called without names; "" = of all pods."""
    rules = [{"verb": "create", "resource": "pods/binding", "status": 503, "name": name} for name in names]
    await client.json("PUT", "/_sandbox/faults", body={"rules": rules})


async def fired(client: KubeClient) -> bool:
    return all((await client.json("GET", "/_sandbox/faults"))["fired"])


async def test_hosts_that_move_between_plan_and_binding_have_the_gang_planned_anew(client: KubeClient, ufm: UfmServer) -> None:
    before = ufm.snapshot
    try:
        await binding_fails(client, "")
        await gang(client, "moves", members=4, word="singleSwitch")
        await until(lambda: fired(client), "the ledger has decided, and the binder tries", timeout_s=60)
        ufm.snapshot = swapped(before)
        await asyncio.sleep(5.0)  # a poll, and the ledger's look at what has not begun
        assert not await placed(client, SPACE, "moves-")
        await binding_fails(client)
        assert await nodes_of(client, "moves", 4) in AFTER
    finally:
        await binding_fails(client)
        ufm.snapshot = before
        await asyncio.sleep(2.0)


async def test_a_gang_that_is_half_bound_when_hosts_move_is_not_torn(client: KubeClient, ufm: UfmServer) -> None:
    before = ufm.snapshot
    try:
        await binding_fails(client, "half-2", "half-3")
        await gang(client, "half", members=4, word="singleSwitch")
        await until(lambda: _bound(client, "half-", 2), "half of it is bound", timeout_s=60)
        first = await placed(client, SPACE, "half-")
        ufm.snapshot = swapped(before)
        await asyncio.sleep(5.0)
        assert await placed(client, SPACE, "half-") == first
        await binding_fails(client)
        assert await nodes_of(client, "half", 4) in UNITS.values()
        assert (await placed(client, SPACE, "half-")).items() >= first.items()
    finally:
        await binding_fails(client)
        ufm.snapshot = before
        await asyncio.sleep(2.0)


async def _bound(client: KubeClient, prefix: str, members: int) -> bool:
    return len(await placed(client, SPACE, prefix)) == members


async def test_when_nobody_confirms_the_fabric_gangs_of_one_switch_wait_and_others_go_on(
    client: KubeClient, ufm: UfmServer, platform: Up
) -> None:
    ufm.fail(down=True)
    try:
        await asyncio.sleep(MAX_AGE_S + 2)
        await gang(client, "strict", members=2, word="singleSwitch")
        said = await waits(client, "strict", lambda message: "TopologyOld" in message)
        assert f"fabric compute was not confirmed by its source for more than {MAX_AGE_S} s" in said
        await gang(client, "easy", members=4, word="bestEffort")
        where = await nodes_of(client, "easy", 4)
        assert where in UNITS.values()
        assert not await placed(client, SPACE, "strict-")
    finally:
        ufm.fail()
    await nodes_of(client, "strict", 2)


async def test_pods_without_wishes_leave_the_whole_unit_to_a_gang(client: KubeClient) -> None:
    pinned = pod("pinned-0", cards=1)
    pinned["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n6"}
    await create(client, pinned)
    await nodes_of(client, "pinned", 1)
    await create(client, *(pod(f"plain-{number}", cards=8) for number in range(3)))
    assert await nodes_of(client, "plain", 3) == {"n4", "n5", "n7"}
    await gang(client, "whole", members=4, word="singleSwitch")
    assert await nodes_of(client, "whole", 4) == UNITS["leaf-p1u01"]


async def test_a_gang_of_two_shapes_is_in_one_unit(client: KubeClient) -> None:
    await gang(client, "shapes", members=5, word="singleSwitch", cards=(4, 4, 8, 8, 8))
    assert await nodes_of(client, "shapes", 5) in UNITS.values()


async def test_a_gang_of_one_switch_takes_from_the_fewest_and_in_one_unit(client: KubeClient) -> None:
    """Eight machines are full of pods that give; three of them leave, all of one unit."""
    low = [pod(f"low-{number}", cards=8) for number in range(8)]
    for one in low:
        one["spec"]["priorityClassName"] = "meek"
    await create(client, *low)
    await nodes_of(client, "low", 8)
    await gang(client, "urgent", members=3, word="singleSwitch", rank="urgent")
    where = await nodes_of(client, "urgent", 3)
    assert any(where <= hosts for hosts in UNITS.values())
    assert len(await placed(client, SPACE, "low-")) == 5


STAGES: dict[str, Any] = {
    "name": "stage", "matchLabelKeys": ["stage"], "subGroupSize": 3, "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
}  # fmt: skip


def staged(name: str, members: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A PodGroup whose sub-groups of three have to be under one switch each, and its pods."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"minMember": members, "subGroupPolicy": [STAGES]},
    }
    pods = [pod(f"{name}-{number}", cards=8) for number in range(members)]
    for number, one in enumerate(pods):
        one["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = name
        one["metadata"]["labels"]["stage"] = str(number % (members // 3))
    return group, pods


async def test_each_sub_group_is_in_one_unit_and_a_gang_with_one_too_many_starts_not_at_all(client: KubeClient) -> None:
    """Two units of four machines hold two sub-groups of three, each in its own; of three sub-groups nothing starts."""
    group, pods = staged("three", 9)
    await client.json("POST", PODGROUPS.path(SPACE), body=group)
    await create(client, *pods)
    await waits(client, "three", bool)
    group, pods = staged("two", 6)
    await client.json("POST", PODGROUPS.path(SPACE), body=group)
    await create(client, *pods)
    await nodes_of(client, "two", 6)
    where = await placed(client, SPACE, "two-")
    stages = [{where[f"two-{number}"] for number in range(6) if number % 2 == stage} for stage in (0, 1)]
    assert all(any(stage <= hosts for hosts in UNITS.values()) for stage in stages), stages
    assert not await placed(client, SPACE, "three-")


async def test_machines_without_a_rail_are_taken_last_and_when_all_are_needed(
    client: KubeClient, ufm: UfmServer, platform: Up
) -> None:
    before = ufm.snapshot
    try:
        lost = {("n1", "mlx5_4"), ("n6", "mlx5_0")}
        ufm.snapshot = replace(before, hosts=tuple(link for link in before.hosts if (link.host, link.hca) not in lost))
        await until(lambda: len(platform.json("topo", "gaps")["items"]) == 2, "the gaps", timeout_s=20)
        await gang(client, "whole", members=3, word="singleSwitch")
        first = await nodes_of(client, "whole", 3)
        assert first in ({"n0", "n2", "n3"}, {"n4", "n5", "n7"})
        await gang(client, "two", members=3, word="bestEffort")
        assert first | await nodes_of(client, "two", 3) == {"n0", "n2", "n3", "n4", "n5", "n7"}
        await gang(client, "rest", members=1, word="singleSwitch")
        assert await nodes_of(client, "rest", 1) < {"n1", "n6"}
    finally:
        ufm.snapshot = before
        await until(lambda: not platform.json("topo", "gaps")["items"], "no gaps", timeout_s=20)


async def test_a_job_of_one_pod_goes_to_the_unit_that_is_broken_already(client: KubeClient) -> None:
    await gang(client, "near", members=3, word="singleSwitch")
    where = await nodes_of(client, "near", 3)
    [unit] = [hosts for hosts in UNITS.values() if where <= hosts]
    await gang(client, "one", members=1, word="singleSwitch")
    assert await nodes_of(client, "one", 1) == unit - where


# The same by `hbox simulate cycle`, on a saved cluster.


def saved(*objects: dict[str, Any], **fabric: Any) -> list[dict[str, Any]]:
    """The machines, their units as HyperNodes, and how the fabric is."""
    machines = []
    for number in range(8):
        machines.append(node(f"n{number}"))
        machines[-1]["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = f"n{number}"
    units = [hypernode(name, 1, *({"exactMatch": {"name": host}} for host in sorted(hosts))) for name, hosts in UNITS.items()]
    simulation = {"apiVersion": "hbox.io/v1alpha1", "kind": "Simulation", "metadata": {"name": "s"}, "spec": {"fabric": fabric}}
    spaced = [one | {"metadata": one["metadata"] | {"namespace": SPACE}} if one["kind"] == "Pod" else one for one in objects]
    return [*machines, *units, simulation, *spaced]


def grouped(name: str, members: int, word: str) -> list[dict[str, Any]]:
    group: dict[str, Any] = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": SPACE, "annotations": {"hbox.io/network-topology": word}},
        "spec": {"minMember": members},
    }
    pods = [pod(f"{name}-{number}", cards=8) for number in range(members)]
    for one in pods:
        one["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = name
    return [group, *pods]


def nodes_in(said: Any, name: str) -> set[str]:
    return {one["node"] for one in said["bindings"] if one["pod"].startswith(f"{SPACE}/{name}-")}


def test_an_old_fabric_has_gangs_of_one_switch_wait_in_simulate_cycle_too(tmp_path: Path) -> None:
    jobs = [*grouped("strict", 2, "singleSwitch"), *grouped("easy", 4, "bestEffort")]
    said = simulate_cycle(tmp_path, saved(*jobs, ageSeconds=20, maxAgeSeconds=MAX_AGE_S))
    assert nodes_in(said, "easy") in UNITS.values()
    assert not nodes_in(said, "strict")
    message = said["pending"][f"{SPACE}/strict-0"]["message"]
    assert (
        f"TopologyOld: 2 pods have to be in one domain of the fabric, and the fabric was not confirmed by its source for more than {MAX_AGE_S} s"
        in message
    )
    said = simulate_cycle(tmp_path, saved(*jobs, ageSeconds=MAX_AGE_S, maxAgeSeconds=MAX_AGE_S))
    assert len(nodes_in(said, "strict")) == 2


def test_machines_without_a_rail_are_taken_last_in_simulate_cycle_too(tmp_path: Path) -> None:
    jobs = [*grouped("whole", 3, "singleSwitch"), *grouped("two", 3, "bestEffort")]
    said = simulate_cycle(tmp_path, saved(*jobs, degradedRails={"n1": [3], "n6": [0]}))
    assert nodes_in(said, "whole") | nodes_in(said, "two") == {"n0", "n2", "n3", "n4", "n5", "n7"}
    assert any(nodes_in(said, "whole") < hosts for hosts in UNITS.values())
    said = simulate_cycle(tmp_path, saved(*grouped("all", 4, "singleSwitch"), degradedRails={"n1": [3], "n6": [0]}))
    assert nodes_in(said, "all") in UNITS.values(), "a rail less is better than another switch"


def test_sub_groups_are_in_one_unit_each_in_simulate_cycle_too(tmp_path: Path) -> None:
    three, two = staged("three", 9), staged("two", 6)
    said = simulate_cycle(tmp_path, saved(three[0], *three[1], two[0], *two[1]))
    where = {one["pod"].partition("/")[2]: one["node"] for one in said["bindings"]}
    stages = [{where[f"two-{number}"] for number in range(6) if number % 2 == stage} for stage in (0, 1)]
    assert all(any(stage <= hosts for hosts in UNITS.values()) for stage in stages), stages
    assert not nodes_in(said, "three")


def test_a_gang_of_two_shapes_and_one_that_takes_from_others_in_simulate_cycle_too(tmp_path: Path) -> None:
    shapes = grouped("shapes", 5, "singleSwitch")
    for one, cards in zip(shapes[1:], (4, 4, 8, 8, 8), strict=True):
        one["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(cards)
    assert nodes_in(simulate_cycle(tmp_path, saved(*shapes)), "shapes") in UNITS.values()

    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("meek", 10), ("urgent", 1000))
    ]
    low = [pod(f"low-{number}", cards=8) for number in range(8)]
    for number, one in enumerate(low):
        one["spec"] |= {"priorityClassName": "meek", "nodeName": f"n{number}"}
        one["status"] = {"phase": "Running"}
    urgent = grouped("urgent", 3, "singleSwitch")
    for one in urgent:
        one["spec"]["priorityClassName"] = "urgent"
    said = simulate_cycle(tmp_path, saved(*classes, *low, *urgent))
    left = {one["node"] for one in said["evictions"]}
    assert (len(left), any(left <= hosts for hosts in UNITS.values())) == (3, True)
    assert {one["node"] for one in said["nominations"]} == left
