"""Kills of the programs that judge and repair: `python -m tests.chaos.repairs --kills 200`. Exit status 1: a guarantee was violated.

Cards of emulated nodes break one after the other: some ask for a reset, some fall off the bus. node-remedy of each node repairs them by hooks, two gangs run
on the cards, and one node is cordoned by hand. Meanwhile random programs of PROGRAMS are killed by SIGKILL. Each fault has to be exactly one incident, which
closes; each decision is executed at most once; the cordon by hand stays; the gangs run as a whole at the end of each fault.

A repair has no deadline in seconds, since a loaded machine slows it as much as it slows this program. It has to advance: the campaign ends if incidents,
executions and pods are the same in STILL_ROUNDS successive reads of all of them, or if they change MOST_CHANGES times without an end.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests import forked
from tests.e2e.platform_world import Up, placed
from tests.e2e.traced_jobs import pod
from tests.waiting import until

from hbox_common.bus import EmbeddedServer
from hbox_common.kube import MERGE_PATCH, NODES, PODGROUPS, PODS, KubeClient
from hbox_sandbox.kubelet.hardware import NodeHardware
from hbox_sandbox.trace import TraceNode
from hbox_sandbox.trace.manifests import node_manifest

SPACE = "default"
NAMES = tuple(f"n{number}" for number in range(6))
#: Cordoned by hand, and never broken.
FOREIGN = "n5"
GANGS = ("train", "tune")
REMEDY, BROKER = "node-remedy", "broker"
PROGRAMS = ("health-monitor", "binder", "quota-ledger", REMEDY, REMEDY, BROKER)
SETTINGS = {
    "HBOX_NVML_POLL_S": "0.5", "HBOX_VALIDATED_S": "1", "HBOX_REMEDIES": "reset,reboot", "HBOX_MAX_CORDONED_FRACTION": "1",
}  # fmt: skip
#: Each fault is repaired at once: also the third one of a node or a card, and without the hour of notice for jobs on other cards of a node that boots.
POLICIES = "{neighbours_s: 1, limits: {least: 50, unit_share: 1, window_s: 1}, resets: 1000, reboots: 1000, retry_s: 2}"
#: Then the programs are left alone: one that is killed in each of its starts repairs nothing.
KILLS_OF_A_FAULT = 8
#: Reads of the state, ROUND_S apart on an idle machine, in which something has to change. The longest wait by design is a decision's lease of five minutes.
ROUND_S, STILL_ROUNDS, MOST_CHANGES = 0.2, 1800, 400
#: Fields of an incident that state no advance.
UNMOVED = ("at", "evidence")


#: Seconds until the supervisor has restarted a program, its pauses included.
RESTARTED_S = 120.0


class Violation(AssertionError):
    pass


class Progress:
    """Counts reads of a state that do not differ from the one before."""

    def __init__(self, what: str) -> None:
        self._what, self._state, self._still, self._changes = what, None, 0, 0

    def observe(self, state: Any) -> None:
        """Raises Violation."""
        if state != self._state:
            self._state, self._still = state, 0
            self._changes += 1
        self._still += 1
        if self._still > STILL_ROUNDS or self._changes > MOST_CHANGES:
            raise Violation(f"{self._what}: {self._changes} changes, then the same {self._still} times: {self._state}")


class World:
    def __init__(self, folder: Path, broker: EmbeddedServer, platform: Up, client: KubeClient, seed: int) -> None:
        self.folder, self.broker, self.platform, self.client = folder, broker, platform, client
        self.random = random.Random(seed)
        self.hardware: dict[str, NodeHardware] = {}
        self.addresses: dict[str, dict[str, str]] = {}
        self.remedies: dict[str, forked.Service] = {}
        self.kills: Counter[str] = Counter()
        self.sick: tuple[str, str] | None = None

    async def begin(self) -> None:
        for name in NAMES:
            box = TraceNode(name, cpu_milli=64_000, memory_mib=512 * 1024, cards=8, model="NVIDIA-H100-80GB-HBM3")
            await self.client.json("POST", NODES.path(), body=node_manifest(box, now="2026-01-01T00:00:00Z"))
        for name in NAMES:
            shown = await until(partial(self._cards, name), f"cards of {name}", timeout_s=60)
            self.addresses[name] = {uuid: f"0000:{0x18 + place:02x}:00.0" for place, uuid in enumerate(shown)}
            kubelet = self.platform.state / "kubelets" / name
            await until(kubelet.is_dir, f"the kubelet of {name}", timeout_s=60)
            self.hardware[name] = NodeHardware(kubelet)
            self.hardware[name].cards(self.addresses[name])
            self.hardware[name].boot()
            self._start(name)
        body = {"spec": {"unschedulable": True}}
        await self.client.json("PATCH", NODES.path(name=FOREIGN), body=body, content_type=MERGE_PATCH)
        for gang in GANGS:
            group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": gang}}
            await self.client.json("POST", PODGROUPS.path(SPACE), body=group | {"spec": {"minMember": 2}})
        progress = Progress("the start of the gangs")
        while not (found := await self._gangs_run())[0]:
            progress.observe(found)
            await asyncio.sleep(ROUND_S)

    async def _cards(self, name: str) -> list[str]:
        done = await asyncio.to_thread(self.platform.hbox, "-o", "json", "node", "show", name)
        return [] if done.returncode else [card["uuid"] for card in json.loads(done.stdout)["cards"]]

    def _start(self, name: str) -> None:
        """node-remedy of a node. Its hooks note the decision; the hardware is repaired by `_repair`."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        hook = home / "hook"
        executed = self.folder / "executed"
        hook.write_text(
            f'#!/bin/sh\necho "{name} $HBOX_VERB $HBOX_ENTITY $HBOX_INCIDENT.$HBOX_VERB.$HBOX_ATTEMPT" >> {executed}\n'
        )
        hook.chmod(0o755)
        rule = {"hook": [str(hook)], "most": 1000}
        log = home / "log"
        log.touch()
        env = {
            "HBOX_NATS_URL": self.broker.url, "HBOX_NODE_NAME": name, "HBOX_HEALTH_PORT": "0", "HBOX_LOG_FORMAT": "text",
            "HBOX_HOST_ROOT": str(self.platform.state / "kubelets" / name / "host"), "HBOX_STATE": str(home / "state"),
            "HBOX_VERBS": json.dumps({"reset": rule, "reboot": rule}), "PATH": os.environ["PATH"],
        }  # fmt: skip
        self.remedies[name] = forked.service("hbox_remedy", env=env, out=log, err=log)

    # --- faults and kills

    def executions(self) -> list[list[str]]:
        path = self.folder / "executed"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def incidents(self) -> list[dict[str, Any]]:
        """All incidents of nodes, by the database."""
        with closing(sqlite3.connect(f"file:{self.platform.state}/health.db?mode=ro", uri=True, timeout=10)) as database:
            rows = database.execute("select body from incidents where node != ''").fetchall()
        return [json.loads(row[0]) for row in rows]

    async def fault(self, name: str, uuid: str, *, lost: bool) -> None:
        """A card breaks, and is repaired while programs are killed."""
        before, done = {one["id"] for one in self.incidents()}, len(self.executions())
        if lost:
            self.hardware[name].card(uuid, lost=True)
            line = f"NVRM: Xid (PCI:{self.addresses[name][uuid][:-2]}): 79, pid=1, name=x, GPU has fallen off the bus."
            self.hardware[name].kernel(line)
        else:
            self.hardware[name].card(uuid, recovery_action=1)
        ended = asyncio.Event()
        killing = asyncio.create_task(self._kill(name, ended))
        progress = Progress(f"the repair of {uuid} on {name}")
        try:
            repaired, runs = False, False
            new: list[dict[str, Any]] = []
            while not (repaired and runs and new and all(one["state"] == "closed" for one in new)):
                repaired = repaired or self._repair(name, uuid, done)
                new = [one for one in self.incidents() if one["id"] not in before]
                runs, pods = await self._gangs_run()
                moved = [{key: value for key, value in one.items() if key not in UNMOVED} for one in new]
                progress.observe((moved, self.executions()[done:], pods, killing.done()))
                await asyncio.sleep(ROUND_S)
        finally:
            ended.set()  # not cancelled: a program that was killed is started again
            await killing
        expected = ("node", "node-fault") if lost else (f"gpu:{uuid}", "card")
        found = [(one["entity"], one["kind"]) for one in new]
        if found != [expected]:
            raise Violation(f"the fault of {uuid} on {name} is {found}, not one incident {expected}")
        await self._check()

    def _repair(self, name: str, uuid: str, done: int) -> bool:
        """What an execution does to the emulated hardware."""
        for node, verb, *_ in self.executions()[done:]:
            if node == name:
                self.hardware[name].card(uuid)
                if verb == "reboot":
                    self.hardware[name].boot()
                return True
        return False

    async def _kill(self, name: str, ended: asyncio.Event) -> None:
        for _ in range(KILLS_OF_A_FAULT):
            await asyncio.sleep(self.random.uniform(0.2, 1.5))
            if ended.is_set():
                return
            program = self.random.choice(PROGRAMS)
            self.kills[program] += 1
            if program == REMEDY:
                self.remedies[name].kill()
                await asyncio.to_thread(self.remedies[name].join, 10)
                self._start(name)
            elif program == BROKER:
                await self.broker.kill()
                await self.broker.start()
            else:
                await self._kill_service(program)

    async def _kill_service(self, program: str) -> None:
        pid = self.platform.pids()[program]
        with suppress(ProcessLookupError):  # it ended by itself, and is started again
            os.kill(pid, signal.SIGKILL)
        await until(lambda: self.platform.pids().get(program, pid) != pid, f"another {program}", timeout_s=RESTARTED_S)

    async def _check(self) -> None:
        twice = [id_ for id_, count in Counter(line[3] for line in self.executions()).items() if count > 1]
        if twice:
            raise Violation(f"executed twice: {twice}")
        node = await self.client.json("GET", NODES.path(name=FOREIGN))
        if not node["spec"].get("unschedulable") or "hbox.io/cordoned-by" in node["metadata"].get("annotations", {}):
            raise Violation(f"the cordon of {FOREIGN} by hand was touched")

    async def _gangs_run(self) -> tuple[bool, list[str]]:
        """Whether both gangs run as a whole, and their pods. Creates pods as the gangs' controllers would: all of a gang, after its last pod is gone."""
        found = (await self.client.json("GET", PODS.path(SPACE)))["items"]
        pods = [one["metadata"]["name"] for one in found]
        for gang in GANGS:
            if not any(name.startswith(gang) for name in pods):
                for number in range(2):
                    body = pod(f"{gang}-{number}", gang)
                    body["spec"]["terminationGracePeriodSeconds"] = 1
                    body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "5"
                    await self.client.json("POST", PODS.path(SPACE), body=body)
        running = await placed(self.client, SPACE)
        states = [
            f"{one['metadata']['uid']} {one['spec'].get('nodeName')} {one['metadata'].get('deletionTimestamp')}"
            for one in found
        ]
        return {f"{gang}-{number}" for gang in GANGS for number in range(2)} <= running.keys(), states


async def campaign(folder: Path, kills: int, seed: int) -> Mapping[str, int]:
    """Raises Violation."""
    async with EmbeddedServer(folder / "nats") as broker:
        (folder / "rules").mkdir()
        (folder / "rules" / "policies.yaml").write_text(POLICIES)
        env = SETTINGS | {"HBOX_RULES_FOLDER": str(folder / "rules")}
        platform = await asyncio.to_thread(Up, folder / "state", "--nats-url", broker.url, env=env)
        try:
            async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="chaos") as client:
                world = World(folder, broker, platform, client, seed)
                await world.begin()
                while sum(world.kills.values()) < kills:
                    name, lost = world.random.choice([one for one in NAMES if one != FOREIGN]), world.random.random() < 1 / 3
                    await world.fault(name, world.random.choice(list(world.addresses[name])), lost=lost)
                    sys.stdout.write(f"{'lost' if lost else 'reset'} {name}: {sum(world.kills.values())} kills\n")
                    sys.stdout.flush()
                for remedy in world.remedies.values():
                    remedy.kill()
                return world.kills
        finally:
            await asyncio.to_thread(platform.stop)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.repairs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="number of kills of all programs together")
    parser.add_argument("--seed", type=int, default=1, help="seed of the faults and of the kills")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="hbox-repairs-") as folder:
        try:
            killed = asyncio.run(campaign(Path(folder), options.kills, options.seed))
        except (Violation, AssertionError) as e:
            sys.stderr.write(f"{e}\n")
            return 1
    sys.stdout.write(f"no violation in {sum(killed.values())} kills: {', '.join(f'{n} {p}' for p, n in killed.items())}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
