"""Each rule of the judge fires on a history that breaks it, and not on one that keeps it. The histories are written into the API server's store."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import insert

from hbox_common.model.annotations import CARDS, CLAIM, QUEUE_NAME
from hbox_common.model.devices.nvidia import NVIDIA
from hbox_common.store.engine import engine, parse
from hbox_ledger.adapters import tables
from hbox_ledger.adapters.load import begin_epoch
from hbox_sandbox.api.resources import NODES as NODE_TYPE
from hbox_sandbox.api.resources import PODS as POD_TYPE
from hbox_sandbox.api.selectors import field_values
from hbox_sandbox.api.store import Store
from hbox_sandbox.trace import TraceNode, TracePod, node_manifest, pod_group_manifest, pod_manifest

from .broker import Consumer, Stored, StreamState
from .disk import template
from .faults import Fault
from .judge import FREE_S, GANG_S, LATE_S, NODES, PODGROUPS, PODS, QUEUES, UNDER_WAY_S, Judge
from .loop import EPOCH_S
from .users import BY_HAND

CARDS_OF_NODE, MEMORY_MIB = 2, 1024
SETTLED_S = 100.0


class History:
    """A store whose writes are judged, with a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.ledger_path = folder / "quota-ledger.db"
        self.ledger_path.write_bytes(template("quota-ledger"))
        made = engine(parse(f"sqlite:///{self.ledger_path}"))
        with made.begin() as connection:
            begin_epoch(connection, now=1.0)
        made.dispose()
        self.faults: list[Fault] = []
        self.limits_evictions = False
        self.skews: dict[str, float] = {}
        self.broker = SimpleNamespace(streams={})
        self.store = Store()
        self.api = SimpleNamespace(store=self.store)
        for kind in (NODE_TYPE, POD_TYPE):
            self.store.open(kind.storage, field_values(kind))
        for storage in (PODGROUPS, QUEUES):
            self.store.open(storage, lambda _: {})
        self.judge = Judge(self)
        self.store.listeners.append(self.judge.after_event)
        for name in ("n0", "n1"):
            self.put(NODES, node_manifest(TraceNode(name, 16_000, 65_536, CARDS_OF_NODE, "H100"), now="2027-01-01T00:00:00Z"))
        self.cards = list(self.judge._nodes["n0"].cards)
        for name, spec in (
            ("default", {}),
            ("spot", {"capability": {NVIDIA.cards: "1"}}),
            ("prod", {"deserved": {NVIDIA.cards: "2"}}),
            ("dev", {"deserved": {NVIDIA.cards: "1"}}),
        ):
            self.put(QUEUES, {"metadata": {"name": name}, "spec": spec})
        self.now = SETTLED_S

    def put(self, storage: str, raw: dict[str, Any]) -> None:
        raw["metadata"].setdefault("uid", raw["metadata"]["name"])
        self.store.create(storage, raw)

    def gang(self, name: str, members: int) -> None:
        self.put(PODGROUPS, pod_group_manifest(name, namespace="team", members=members, queue="default") | {"status": {}})

    def pod(
        self, name: str, *, cards: int = 1, milli: int = 1000, queue: str = "default", gang: str = "", cpu: int = 1000
    ) -> None:
        shape = TracePod(name, cpu, 1024, cards=cards, card_milli=milli if cards else 0, gang=gang)
        raw = pod_manifest(shape, namespace="team", queue=queue)
        raw["metadata"]["namespace"] = "team"
        raw["metadata"].setdefault("annotations", {})[QUEUE_NAME] = queue
        self.put(PODS, raw | {"status": {"phase": "Pending"}})

    def change(self, name: str, how: Callable[[dict[str, Any]], object]) -> None:
        current = self.store.collection(PODS).entries[f"team/{name}"]
        raw = current.load()
        how(raw)
        self.store.replace(PODS, current, raw)

    def bind(self, name: str, node: str, *cards: int, claim: str | None = None) -> None:
        """`cards`: numbers of cards of n0 or n1."""

        def bound(raw: dict[str, Any]) -> None:
            own = list(self.judge._nodes[node].cards) if node in self.judge._nodes else self.cards
            raw["spec"]["nodeName"] = node
            notes = raw["metadata"]["annotations"]
            notes[CARDS] = ",".join(f"{own[card]}:100:{MEMORY_MIB}" for card in cards)
            if claim != "":
                notes[CLAIM] = claim or f"claim-{name}"

        self.change(name, bound)

    def claim(self, name: str, *, plan: str, at: float, state: str = "pending", members: int = 1) -> None:
        """A claim of a pod in the ledger's database. `at`: seconds since the epoch."""
        texts = dict.fromkeys(("reason", "intent_reason", "resource_version", "traceparent", "slices", "slots"), "")
        row = texts | {
            "id": f"claim-{name}",
            "pod_uid": name,
            "namespace": "team",
            "pod": name,
            "job": "team/g",
            "plan": plan,
            "queue": "default",
            "priority": 0,
            "node": "n0",
            "requests": "{}",
            "state": state,
            "generation": 1,
            "intent": "bind",
            "deadline": at + 60,
            "forced": False,
            "changed_at": at,
            "claimed_at": at,
            "min_member": members,
        }
        made = engine(parse(f"sqlite:///{self.ledger_path}"))
        with made.begin() as connection:
            connection.execute(insert(tables.claims), row)
        made.dispose()

    def end(self, name: str) -> None:
        self.change(name, lambda raw: raw["status"].update(phase="Succeeded"))

    @property
    def broken(self) -> set[str]:
        return {one.rule for one in self.judge.violations}

    def at_end(self, *, later_s: float = 0.0) -> set[str]:
        self.now += later_s
        return {one.rule for one in self.judge.at_end()}


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_pods_one_after_the_other_on_a_card_break_nothing(history: History) -> None:
    for name in ("a", "b"):
        history.pod(name)
        history.bind(name, "n0", 0)
        history.end(name)
    assert history.broken == set()


def test_two_pods_on_a_card(history: History) -> None:
    for name in ("a", "b"):
        history.pod(name)
        history.bind(name, "n0", 0)
    assert history.broken == {"card"}


def test_a_card_that_the_node_does_not_have(history: History) -> None:
    history.pod("a")
    history.change(
        "a",
        lambda raw: (
            raw["spec"].update(nodeName="n0"),
            raw["metadata"]["annotations"].update({CARDS: f"{history.cards[0]}9:100:{MEMORY_MIB}", CLAIM: "c"}),
        ),
    )
    assert history.broken == {"card"}


def test_more_cpu_than_the_node_has(history: History) -> None:
    for name in ("a", "b"):
        history.pod(name, cards=0, cpu=9000)
        history.bind(name, "n0")
    assert history.broken == {"capacity"}


def test_bound_to_a_node_that_is_gone_for_a_while(history: History) -> None:
    history.pod("early", cards=0)
    history.pod("late", cards=0)
    history.store.remove(NODES, history.store.collection(NODES).entries["n1"])
    history.bind("early", "n1")
    assert history.broken == set()
    history.now += UNDER_WAY_S + 1
    history.bind("late", "n1")
    assert history.broken == {"capacity"}


def test_bound_without_a_claim(history: History) -> None:
    history.pod("a")
    history.bind("a", "n0", 0, claim="")
    assert history.broken == {"decision"}


def test_bound_with_the_claim_of_another_pod(history: History) -> None:
    for card, name in enumerate(("a", "b")):
        history.pod(name)
        history.bind(name, "n0", card, claim="one")
    assert history.broken == {"decision"}


def test_bound_with_fewer_cards_than_requested(history: History) -> None:
    history.pod("a", cards=2)
    history.bind("a", "n0", 0)
    assert history.broken == {"decision"}


def test_moved_to_another_node(history: History) -> None:
    history.pod("a")
    history.bind("a", "n0", 0)
    history.bind("a", "n1", 0)
    assert history.broken == {"moved"}


@pytest.mark.parametrize("bound", [1, 2])
def test_a_gang_in_part_past_its_deadline(history: History, bound: int) -> None:
    history.gang("g", 2)
    for i in range(2):
        history.pod(f"g-{i}", gang="g")
    for i in range(bound):
        history.bind(f"g-{i}", "n0", i)
    history.now += GANG_S + 1
    history.pod("other", cards=0)
    assert history.broken == ({"gang"} if bound == 1 else set())


def test_a_gang_that_ran_and_lost_a_member_breaks_nothing(history: History) -> None:
    history.gang("g", 2)
    for i in range(2):
        history.pod(f"g-{i}", gang="g")
        history.bind(f"g-{i}", "n0", i)
    history.store.remove(PODS, history.store.collection(PODS).entries["team/g-0"])
    history.now += GANG_S + 1
    history.pod("other", cards=0)
    assert history.broken == set()


def test_a_queue_over_its_limit(history: History) -> None:
    for card, name in enumerate(("a", "b")):
        history.pod(name, queue="spot")
        history.bind(name, "n0", card)
        assert history.broken == ({"queue"} if card else set())


def test_a_pod_waits_while_cards_are_free(history: History) -> None:
    history.pod("a")
    assert "waits" not in history.at_end()
    assert "waits" in history.at_end(later_s=LATE_S + 1)


def test_a_pod_may_wait_for_its_queues_limit_and_for_a_gang(history: History) -> None:
    history.pod("a", queue="spot")
    history.bind("a", "n0", 0)
    history.pod("b", queue="spot")
    assert "waits" not in history.at_end(later_s=LATE_S + 1)


def test_a_gang_waits_while_all_of_it_has_room(history: History) -> None:
    history.gang("g", 3)
    for i in range(3):
        history.pod(f"g-{i}", gang="g", cards=2 if i < 0 else 1)
    assert "waits" in history.at_end(later_s=LATE_S + 1)


def test_a_gang_may_wait_for_more_places_than_there_are(history: History) -> None:
    history.gang("g", 5)
    for i in range(5):
        history.pod(f"g-{i}", gang="g")
    assert "waits" not in history.at_end(later_s=LATE_S + 1)


def test_progress_is_not_promised_while_faults_last(history: History) -> None:
    history.pod("a")
    history.faults = [Fault(SETTLED_S, "kill", "binder", 1.0)]
    assert "waits" not in history.at_end(later_s=LATE_S + 1)


def test_an_owner_waits_while_another_queue_has_what_it_deserves(history: History) -> None:
    for number in range(4):
        history.pod(f"dev-{number}", queue="dev")
        history.bind(f"dev-{number}", f"n{number // 2}", number % 2)
    history.pod("owner", queue="prod")
    assert history.broken == set()
    assert "owners" in history.at_end(later_s=max(LATE_S, FREE_S) + 1)


def test_a_queue_beyond_what_it_deserves_may_wait(history: History) -> None:
    for number in range(4):
        queue = "dev" if number < 2 else "prod"
        history.pod(f"{queue}-{number}", queue=queue)
        history.bind(f"{queue}-{number}", f"n{number // 2}", number % 2)
    history.pod("more", queue="prod")
    assert "owners" not in history.at_end(later_s=LATE_S + 1)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_nomination_without_a_victim(history: History, leaves: bool) -> None:
    history.pod("victim", cards=2)
    history.bind("victim", "n0", 0, 1)
    history.pod("a")
    history.change("a", lambda raw: raw["status"].update(nominatedNodeName="n0"))
    if leaves:
        history.change("victim", lambda raw: raw["metadata"].update(deletionTimestamp="2027-01-01T00:00:00Z"))
    assert ("nomination" in history.at_end(later_s=LATE_S + 1)) is not leaves


@pytest.mark.parametrize(("age_s", "consumed", "broken"), [(60.0, False, True), (60.0, True, False), (0.1, False, False)])
def test_a_stream_that_is_not_consumed(history: History, age_s: float, consumed: bool, broken: bool) -> None:
    stream = StreamState({"name": "S", "subjects": ["s.>"]}, "")
    consumer = stream.consumers["c"] = Consumer(stream, "binder-binds", {"durable_name": "c", "ack_policy": "explicit"}, 0.0)
    stored_ns = int((EPOCH_S + history.now - age_s) * 1e9)
    stream.messages[1] = Stored(1, "s.a", {}, b"", stored_ns)
    stream.last = consumer.pending = 1
    history.broker.streams["S"] = stream
    if consumed:
        assert consumer.take() is not None
    assert ("streams" in history.at_end()) is broken


@pytest.mark.parametrize("later_s", [0.0, LATE_S + 1])
def test_a_claim_of_a_pod_that_ended(history: History, later_s: float) -> None:
    """The message about its end may be on the way."""
    history.pod("a")
    history.claim("a", plan="p", at=1.0, state="posted")
    history.bind("a", "n0", 0)
    history.change("a", lambda raw: raw["status"].update(phase="Succeeded"))
    assert ("claims" in history.at_end(later_s=later_s)) is (later_s > 0)


def test_a_bound_pod_without_a_claim_in_the_ledger(history: History) -> None:
    history.pod("a")
    assert "claims" not in history.at_end()
    history.bind("a", "n0", 0)
    assert "claims" in history.at_end(later_s=LATE_S + 1)


@pytest.mark.parametrize(("claimed", "broken"), [(1, True), (2, False)])
def test_the_first_plan_of_a_gang_claims_its_minimum(history: History, claimed: int, broken: bool) -> None:
    for number in range(claimed):
        history.claim(f"g-{number}", plan="first", at=1.0, state="void", members=2)
    history.claim("g-last", plan="second", at=2.0, state="void", members=2)
    assert ("gang" in history.at_end()) is broken


@pytest.mark.parametrize(("age_s", "broken"), [(LATE_S / 2, False), (LATE_S * 2, True)])
def test_a_claim_whose_pod_waits(history: History, age_s: float, broken: bool) -> None:
    history.pod("a", cards=0)
    history.claim("a", plan="p", at=EPOCH_S + SETTLED_S + 2 * LATE_S - age_s)
    history.at_end(later_s=2 * LATE_S)
    assert any("is older than" in one.message for one in history.judge.violations) is broken


def test_a_pod_that_an_operator_bound_needs_no_decision(history: History) -> None:
    history.pod("a", cards=0)
    history.change("a", lambda raw: raw["metadata"]["annotations"].update({BY_HAND: "true"}))
    history.change("a", lambda raw: raw["spec"].update(nodeName="n0"))
    assert history.broken == set()


def test_a_ledger_that_cannot_be_read(history: History) -> None:
    assert "ledger" not in history.at_end()
    history.ledger_path.unlink()
    assert "ledger" in history.at_end()
