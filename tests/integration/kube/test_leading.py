"""Two processes of one service: one leads, the other takes over, and a leader that was paused does not go on."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from hbox_common.clock import monotonic_s
from hbox_common.kube import KubeClient
from hbox_sandbox.api.faults import Plan, Rule
from hbox_sandbox.api.server import ApiServer

from ... import forked

LEASE_S = 2


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer(port=0) as api:
        yield api


@pytest.fixture
async def kubeconfig(api: ApiServer, tmp_path: Path) -> Path:
    path = api.kubeconfig(tmp_path / "kubeconfig")
    async with KubeClient.connect(str(path), user_agent="test") as client:
        await client.json(
            "POST",
            "/api/v1/namespaces",
            body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hbox-system"}},
        )
    return path


class Pair:
    """Two processes of the service, `a` and `b`."""

    def __init__(self, kubeconfig: Path, acts: Path) -> None:
        self._kubeconfig, self._acts = kubeconfig, acts
        self.processes: dict[str, forked.Service] = {}

    def start(self, name: str, *, connects_s: float = 0.01, drains_s: float = 0.0) -> None:
        env = {
            **os.environ,
            "HBOX_KUBECONFIG": str(self._kubeconfig),
            "HBOX_LEADER_ELECTION": "true",
            "HBOX_LEASE_DURATION_S": str(LEASE_S),
            "HBOX_INSTANCE": name,
            "ACTS": str(self._acts),
            "CONNECTS_S": str(connects_s),
            "DRAINS_S": str(drains_s),
        }
        log = self._log(name)
        log.touch()
        self.processes[name] = forked.service(f"{__package__}.leading_service", env=env, err=log)

    def _log(self, name: str) -> Path:
        return self._acts.with_name(f"{name}.log")

    async def has_started(self, name: str) -> None:
        await self.until(lambda: "\n" in self._log(name).read_text(), 20)
        assert json.loads(self._log(name).read_text().splitlines()[0])["message"] == "binder started"

    def acts(self) -> list[str]:
        return self._acts.read_text().split() if self._acts.exists() else []

    async def until(self, good: Callable[[], bool], within_s: float) -> None:
        deadline = monotonic_s() + within_s
        while not good():
            assert monotonic_s() < deadline, f"not within {within_s} s; acts so far: {self.acts()[-3:]}"
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            await process.wait()


@pytest.fixture
async def pair(kubeconfig: Path, tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(kubeconfig, tmp_path / "acts")
    pair.start("a")
    await pair.until(lambda: bool(pair.acts()), 20)
    pair.start("b")
    await pair.has_started("b")
    yield pair
    await pair.stop()


async def test_a_standby_does_nothing_and_takes_over_when_the_leader_is_killed(pair: Pair) -> None:
    pair.processes["a"].kill()
    await pair.until(lambda: "b" in pair.acts(), 3 * LEASE_S + 5)
    acts = pair.acts()
    assert acts == sorted(acts), "nobody acted while the other led"


async def test_a_leader_that_stops_hands_over_at_once(pair: Pair) -> None:
    pair.processes["a"].terminate()
    assert await pair.processes["a"].wait() == 0
    stopped = monotonic_s()
    await pair.until(lambda: "b" in pair.acts(), LEASE_S + 3)
    assert monotonic_s() - stopped < LEASE_S, "a lease that was released need not run out"


async def test_a_leader_that_does_not_drain_hands_over_all_the_same(kubeconfig: Path, tmp_path: Path) -> None:
    """What it waits for may be away for as long as an upgrade takes; its lease would have to run out."""
    pair = Pair(kubeconfig, tmp_path / "acts")
    try:
        pair.start("a", drains_s=60.0)
        await pair.until(lambda: bool(pair.acts()), 20)
        pair.start("b")
        await pair.has_started("b")
        pair.processes["a"].terminate()
        asked = monotonic_s()
        await pair.until(lambda: "b" in pair.acts(), 8)
        assert pair.processes["a"].returncode is None, "it still drains"
        print(f"handed over after {monotonic_s() - asked:.2f} s")
    finally:
        await pair.stop()


async def test_who_cannot_connect_does_not_lead(kubeconfig: Path, tmp_path: Path) -> None:
    pair = Pair(kubeconfig, tmp_path / "acts")
    try:
        pair.start("a", connects_s=60.0)
        await pair.has_started("a")
        pair.start("b", connects_s=2.0)
        await pair.until(lambda: bool(pair.acts()), 20)
        assert set(pair.acts()) == {"b"}
    finally:
        await pair.stop()


async def test_a_paused_leader_ends_itself_when_it_wakes_however_slow_the_api_server_is_then(
    pair: Pair, api: ApiServer
) -> None:
    """It is to give its lease back, and does nothing meanwhile."""
    pair.processes["a"].send_signal(signal.SIGSTOP)
    await pair.until(lambda: "b" in pair.acts(), 3 * LEASE_S + 5)
    api.faults.install(Plan(rules=[Rule(resource="leases", latency_s=0.2)]))
    pair.processes["a"].send_signal(signal.SIGCONT)
    assert await pair.processes["a"].wait() == 6
    first = pair.acts().index("b")
    # One act may have been under way when it was paused; that is what fencing is for.
    assert pair.acts()[first:].count("a") <= 1
    await pair.until(lambda: pair.acts()[-1] == "b", 1)
