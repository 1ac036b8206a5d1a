"""The quota-ledger as it runs: its own process-like task on a real broker and the emulated API, with the other services played by the test."""

import asyncio
import json
import os
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import nats
import pytest

from hbox_common.bus import EmbeddedServer
from hbox_common.events import (
    BindDecided,
    BindOutcome,
    ClaimsAsked,
    ClaimsChanged,
    ClaimsPage,
    Outcome,
    OutcomesObserved,
    PodsObserved,
    QueueStateChanged,
    Usage,
    UsageAsked,
    UsageKey,
    UsagePage,
)
from hbox_common.kube import QUEUES, KubeClient
from hbox_common.model import NodeName, PodPhase
from hbox_ledger.settings import LedgerSettings

from ... import forked
from ...waiting import until
from .conftest import Kit
from .ledger_world import DEADLINE_S, others, running

GUIDE = Path(__file__).parents[3] / "docs/guides/integrators.md"


async def test_who_asks_for_usage_gets_it_up_to_now(kit: Kit, broker: EmbeddedServer, settings: LedgerSettings) -> None:
    async with others(broker) as world, running(settings):
        epoch = await world.open_epoch()
        await world.propose(epoch, kit.plan("p", ("pod", "n0", (kit.whole(0), kit.whole(1)))))

        async def used() -> list[Usage]:
            asked = UsageAsked(asker="test", by=(UsageKey.QUEUE, UsageKey.USER, UsageKey.MODEL))
            return [row for page in await world.bus.ask(asked, UsagePage) for row in page.usage]

        [row] = await until(used, timeout_s=DEADLINE_S)
        assert (row.queue, row.user, row.model, row.own, row.borrowed % 2000) == ("default", "ml", "A100", 0, 0)


async def test_a_pod_goes_from_plan_to_bound_to_gone(kit: Kit, broker: EmbeddedServer, settings: LedgerSettings) -> None:
    async with others(broker) as world, running(settings) as health:
        epoch = await world.open_epoch()
        await until(lambda: health.ready, timeout_s=DEADLINE_S)
        await world.propose(epoch, kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        await until(lambda: world.all(BindDecided), timeout_s=DEADLINE_S)
        [bind] = world.all(BindDecided)[0].binds
        bound = Outcome(
            decision=bind.id, claim=bind.claim, generation=1, job=bind.job, pod_uid="pod", outcome=BindOutcome.BOUND, node="n0"
        )
        world.pods.append(kit.fact("pod", "n0", claim=bind.claim))
        for _ in range(2):
            await world.bus.publish(OutcomesObserved(epoch=epoch, outcomes=(bound,)), "0")
        await until(
            lambda: [c.state for e in world.all(ClaimsChanged) for c in e.claims] == ["pending", "posted"], timeout_s=DEADLINE_S
        )
        await until(lambda: any(e.used.get("nvidia.com/gpu") == 1 for e in world.all(QueueStateChanged)), timeout_s=DEADLINE_S)
        world.pods.clear()
        await world.bus.publish(PodsObserved(pods=(kit.fact("pod", "n0", PodPhase.GONE),)), "0")
        await until(lambda: [c.state for e in world.all(ClaimsChanged) for c in e.claims][-1] == "void", timeout_s=DEADLINE_S)
        feed = world.all(ClaimsChanged)
        assert all(later.previous == earlier.index for earlier, later in pairwise(feed))
        await until(lambda: not world.all(QueueStateChanged)[-1].used, timeout_s=DEADLINE_S)


async def test_a_ledger_that_is_restarted_goes_on_in_a_new_epoch_with_the_same_claims(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world:
        async with running(settings):
            first = await world.open_epoch()
            await world.propose(first, kit.plan("p", ("pod", "n0", ())))
            await until(lambda: world.all(BindDecided), timeout_s=DEADLINE_S)
        async with running(settings):
            second = await world.open_epoch()
            assert second > first
            [page] = await world.claims()
            assert [c.pod for c in page.claims] == ["pod"]
            await until(lambda: len(world.all(BindDecided)) == 2, timeout_s=DEADLINE_S)
            before, after = world.all(BindDecided)
            assert (before.binds, after.epoch) == (after.binds, second)
            await world.propose(first, kit.plan("old", ("other", "n0", ())))
            assert world.answers()["old"].reason == "StaleEpoch"
            await world.propose(second, kit.plan("p", ("pod", "n0", ())))
            assert world.answers()["p"].committed
            [page] = await world.claims()
            assert len(page.claims) == 1


async def test_pods_that_run_already_are_accounted_for_before_the_books_open(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world:
        world.pods.append(kit.fact("found", "n0", slices=(kit.whole(0),)))
        async with running(settings):
            epoch = await world.open_epoch()
            [page] = await world.claims()
            assert [(c.pod, c.state) for c in page.claims] == [("found", "posted")]
            await world.propose(epoch, kit.plan("p", ("pod", "n0", (kit.whole(0),))))
            assert world.answers()["p"].reason == "CardTaken"


async def test_when_another_job_controller_speaks_pods_that_ended_between_the_two_are_found_missing(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_ledger.app.FOLLOWS_S", 0.1)
    async with others(broker) as world:
        world.pods.append(kit.fact("ends", "n0", slices=(kit.whole(0),)))
        async with running(settings.model_copy(update={"reconcile_s": 600.0})):
            await world.open_epoch()
            world.pods.clear()
            other = kit.fact("stays", "n0", slices=(kit.whole(1),))
            world.pods.append(other)
            await world.bus.publish(PodsObserved(pods=(other,)), "0")
            await until(
                lambda: any(c.pod == "ends" and c.state == "void" for e in world.all(ClaimsChanged) for c in e.claims),
                timeout_s=DEADLINE_S,
            )
            [page] = await world.claims()
            assert [c.pod for c in page.claims] == ["stays"]


async def test_a_pod_that_was_bound_and_ended_while_nobody_watched_holds_its_card_for_seconds_only(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end was told nobody, and the comparison that a new job-controller makes necessary comes before the binder's word: then its claim is pending."""
    monkeypatch.setattr("hbox_ledger.app.FOLLOWS_S", 0.2)
    monkeypatch.setattr("hbox_ledger.app.UNSEEN_TICKS", 1)
    async with others(broker) as world, running(settings.model_copy(update={"reconcile_s": 600.0})):
        epoch = await world.open_epoch()
        await world.propose(epoch, kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        await until(lambda: world.all(BindDecided), timeout_s=DEADLINE_S)
        stays = kit.fact("stays", "n0", slices=(kit.whole(1),))
        world.pods.append(stays)
        await world.bus.publish(PodsObserved(pods=(stays,)), "0")
        await until(lambda: any(c.pod == "stays" for e in world.all(ClaimsChanged) for c in e.claims), timeout_s=DEADLINE_S)
        await asyncio.sleep(1.0)  # the comparison, and the one that follows it
        [bind] = world.all(BindDecided)[0].binds
        bound = Outcome(
            decision=bind.id, claim=bind.claim, generation=1, job=bind.job, pod_uid=bind.pod_uid, outcome=BindOutcome.BOUND, node=NodeName("n0")
        )  # fmt: skip
        await world.bus.publish(OutcomesObserved(epoch=epoch, outcomes=(bound,)), "0")
        await until(
            lambda: any(c.pod == "pod" and c.state == "void" for e in world.all(ClaimsChanged) for c in e.claims), timeout_s=15
        )
        [page] = await world.claims()
        assert [c.pod for c in page.claims] == ["stays"]


async def test_after_a_comparison_that_something_made_necessary_one_more_follows(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_ledger.app.FOLLOWS_S", 1.0)
    async with others(broker) as world, running(settings.model_copy(update={"reconcile_s": 600.0})):
        await world.open_epoch()
        both = [kit.fact(name, "n0", slices=(kit.whole(i),)) for i, name in enumerate(("ends", "stays"))]
        world.pods += both
        asked = world.asked
        await world.bus.publish(PodsObserved(pods=tuple(both)), "0")
        await until(lambda: world.asked > asked, timeout_s=DEADLINE_S)
        world.pods.pop(0)
        await until(
            lambda: any(c.pod == "ends" and c.state == "void" for e in world.all(ClaimsChanged) for c in e.claims), timeout_s=15
        )


async def test_what_a_list_lacks_stays_booked_until_the_api_server_says_that_it_is_gone(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """job-controller forgets a pod that runs. Two lists without it freed its card before."""
    monkeypatch.setattr("hbox_ledger.app.FOLLOWS_S", 0.1)
    monkeypatch.setattr("hbox_ledger.app.READ_AGAIN_S", 0.1)
    async with others(broker) as world:
        runs = kit.fact("runs", "n0", slices=(kit.whole(0),))
        world.pods.append(runs)
        async with running(settings.model_copy(update={"reconcile_s": 0.2})):
            epoch = await world.open_epoch()
            world.pods.clear()
            world.there = {runs.uid}
            await until(lambda: world.read.count(runs.uid) > 3, timeout_s=DEADLINE_S)
            await world.propose(epoch, kit.plan("p", ("pod", "n0", (kit.whole(0),))))
            assert world.answers()["p"].reason == "CardTaken"
            world.there = set()
            await until(
                lambda: any(c.pod == "runs" and c.state == "void" for e in world.all(ClaimsChanged) for c in e.claims),
                timeout_s=DEADLINE_S,
            )


async def test_while_nobody_sees_the_pods_plans_are_held_and_that_is_said(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world, running(settings) as health:
        epoch = await world.open_epoch()
        await until(lambda: health.ready, timeout_s=DEADLINE_S)
        world.age_s = 31.0
        await until(lambda: not health.ready, timeout_s=DEADLINE_S)
        await until(lambda: health.condition("pods").message, timeout_s=DEADLINE_S)
        assert "the watch is silent" in health.condition("pods").message
        await world.propose(epoch, kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        assert world.answers()["p"].reason == "PodsUnseen"
        [head] = await world.bus.ask(ClaimsAsked(asker="test", head=True), ClaimsPage)
        assert "the watch is silent" in head.held
        asked = world.asked
        await asyncio.sleep(2.5)
        assert world.asked > asked, "it goes on asking for a list that it may compare with"
        world.age_s = 0.0
        await until(lambda: health.ready, timeout_s=DEADLINE_S)
        await world.propose(epoch, kit.plan("q", ("pod", "n0", (kit.whole(0),))))
        assert world.answers()["q"].committed


async def test_queues_come_from_kubernetes_and_their_rules_hold(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world, running(settings), KubeClient.connect(settings.kubeconfig, user_agent="test") as kube:
        epoch = await world.open_epoch()
        small = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "small"}}
        await kube.json(
            "POST", QUEUES.path(), body={**small, "spec": {"capability": {"nvidia.com/gpu": "1"}}}, expect=(200, 201)
        )
        await until(lambda: any(e.queue.name == "small" for e in world.all(QueueStateChanged)), timeout_s=DEADLINE_S)
        in_small = [
            kit.plan(f"p{i}", (f"pod{i}", "n0", (kit.whole(i),))).model_copy(update={"queue": "small"}) for i in range(3)
        ]
        await world.propose(epoch, *in_small[:2])
        assert [world.answers()[f"p{i}"].reason for i in range(2)] == [None, "QueueCapabilityExceeded"]
        await kube.json("DELETE", QUEUES.path(name="small"), expect=(200, 202))
        await until(lambda: any(e.gone and e.queue.name == "small" for e in world.all(QueueStateChanged)), timeout_s=DEADLINE_S)
        await world.propose(epoch, in_small[2])
        assert world.answers()["p2"].reason == "QueueNotFound"


async def test_what_is_wrong_with_a_queue_is_told_and_told_again_when_its_relatives_change(
    broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world, running(settings), KubeClient.connect(settings.kubeconfig, user_agent="test") as kube:
        await world.open_epoch()

        async def put(name: str, **spec: object) -> None:
            body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
            await kube.json("POST", QUEUES.path(), body=body, expect=(200, 201))

        def told(name: str) -> list[str]:
            states = [e for e in world.all(QueueStateChanged) if e.queue.name == name]
            return list(states[-1].faults) if states else ["nothing yet"]

        await put("train", parent="vision")
        await until(
            lambda: told("train") == ["its parent vision does not exist; it takes nothing until that is mended"],
            timeout_s=DEADLINE_S,
        )
        await put("vision")
        await until(lambda: told("train") == [], timeout_s=DEADLINE_S)
        await put("odd", deserved={"nvidia.com/gpu": "-4"})
        await until(
            lambda: told("odd") == ["deserved of nvidia.com/gpu: -4 is negative; it takes nothing until that is mended"],
            timeout_s=DEADLINE_S,
        )


async def test_the_broker_may_be_killed_between_plan_and_answer(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world, running(settings):
        epoch = await world.open_epoch()
        plans = [kit.plan(f"p{i}", (f"pod{i}", "n0", ())) for i in range(20)]
        await world.propose(epoch, *plans, wait=False)
        await broker.kill()
        await broker.start()
        async with asyncio.timeout(DEADLINE_S):
            # Plans and answers may have died with the broker's memory (ADR 9): what is unanswered is proposed again under its id.
            while unanswered := [p for p in plans if p.id not in world.answers()]:
                await world.propose(await world.open_epoch(), *unanswered, wait=False)
                await asyncio.sleep(0.5)
        assert all(answer.committed for answer in world.answers().values())
        [page] = await world.claims()
        assert sorted(c.pod for c in page.claims) == sorted(f"pod{i}" for i in range(20))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"HBOX_DATABASE_URL": "sqlite:////nowhere/x.db"}, "does not exist"),
        ({"HBOX_DATABASE_URL": "oracle"}, "cannot be read"),
        ({"HBOX_RECONCILE_S": "-1"}, "HBOX_RECONCILE_S"),
    ],
)
async def test_a_wrong_setting_ends_the_process_with_one_clear_line(
    change: dict[str, str], said: str, kubeconfig: str, tmp_path: Path
) -> None:
    env = {"HBOX_LOG_FORMAT": "text", "HBOX_LOG_LEVEL": "error", "HBOX_KUBECONFIG": kubeconfig, **change}
    err = tmp_path / "err"
    err.touch()
    process = forked.service("hbox_ledger", env=env, err=err)
    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait() == 2
    [line] = err.read_text().strip().splitlines()
    assert said in line


async def test_integrators_ask_the_bank_for_queues_and_usage_in_json(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    client = await nats.connect(broker.url)

    async def ask(name: str, **asked: object) -> dict[str, Any]:
        answer = await client.request(f"hbox.v1.api.quota-ledger.{name}", json.dumps(asked).encode(), timeout=10)
        if answer.headers:
            return {"code": answer.headers["Nats-Service-Error-Code"], "error": answer.headers["Nats-Service-Error"]}
        found: dict[str, Any] = json.loads(answer.data)
        return found

    async with others(broker) as world, running(settings):
        epoch = await world.open_epoch()
        await world.propose(epoch, kit.plan("p", ("pod", "n0", (kit.whole(0), kit.whole(1)))))
        await until(lambda: world.all(BindDecided), timeout_s=DEADLINE_S)
        listed = json.loads((await client.request("$SRV.INFO.hbox-quota-ledger")).data)
        assert {e["name"] for e in listed["endpoints"]} == {"queues", "dry-run", "usage", "claims", "epoch"}

        found = await ask("queues", names=["default"])
        assert (found["epoch"], found["index"], found["frozen"]) == (epoch, 1, False)
        [queue] = found["queues"]
        assert queue["used"] == queue["total"] == {"cpu": 1000, "pods": 1, "nvidia.com/gpu": 2}
        assert (queue["borrowed"], queue["rules"]["phase"], queue["faults"]) == ({"nvidia.com/gpu": 2}, "Open", [])
        assert await ask("queues") == found

        async def used() -> Any:
            return (await ask("usage", by=["queue", "user"]))["usage"]

        rows = await until(used, timeout_s=DEADLINE_S)
        assert [(row["queue"], row["user"], row["own"]) for row in rows] == [("default", "ml", 0)]

        [example] = re.findall("```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        environment = {**os.environ, "NATS_URL": broker.url}
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", example, env=environment, stdout=asyncio.subprocess.PIPE
        )
        assert (await program.communicate())[0] == b"default 2 cards\n"

        change = {"name": "lab", "deserved": {"nvidia.com/gpu": "1"}}
        smaller = {"name": "default", "deserved": {"nvidia.com/gpu": "1"}}
        would = await ask("dry-run", queues=[change, smaller])
        assert (would["epoch"], would["index"], would["faults"]) == (epoch, 1, [])
        assert [(one["queue"], one["to"], one["units"]) for one in would["give_back"]] == [
            ("default", "", 1),
            ("default", "lab", 1),
        ]
        assert [(one["pod"], one["units"]) for one in would["give_back"][0]["leavers"]] == [("pod", 2)]
        assert [one["rules"] for one in (await ask("queues"))["queues"]] == [queue["rules"]], "a dry run changed something"
        assert (await ask("dry-run"))["error"] == "dry-run: queues: Field required"
        lots = await ask("dry-run", queues=[{"name": "lab", "deserved": {"nvidia.com/gpu": "lots"}}])
        assert (lots["code"], lots["error"]) == ("400", "dry-run: queues.0.deserved: nvidia.com/gpu: 'lots' is not a quantity")

        wrong = await ask("queues", names=["nobodys"])
        assert wrong["error"] == "queues: names: there is no queue nobodys (ask without names for all of them)"
        assert (await ask("usage", since=5, until=3))["error"] == "usage: until: 3 is not after since, 5"
        assert (await ask("usage", by=["planet"]))["error"].startswith("usage: by.0: Input should be 'department', 'queue'")
    await client.close()
