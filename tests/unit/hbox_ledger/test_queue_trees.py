"""Walls and rights in a tree of queues: two departments on two nodes with two cards each.

vision       train, serve
speech       asr
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.kube import Delta, QueueAffinity, QueueSpec
from hbox_common.kube import Queue as QueueObject
from hbox_common.kube.objects import Metadata, NodeGroups
from hbox_common.kube.queues import queue_of
from hbox_common.kube.reflector import DeltaKind
from hbox_common.model import NodeName, PodPhase, PodUid, Queue, QueueName, QueuePhase
from hbox_common.model.devices.nvidia import GPU
from hbox_common.store import Store
from hbox_ledger.adapters import load, tables
from hbox_ledger.adapters.quota_publisher import QuotaPublisher
from hbox_ledger.adapters.statuses import StatusWriter
from hbox_ledger.core.arbitrate import published_queue
from hbox_ledger.ledger import Ledger
from hbox_ledger.relay import Relay
from hbox_ledger.rules import AT_ONCE, Rules

from .conftest import World

PLACES = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def queue(world: World, name: str, parent: str = "", *, phase: QueuePhase = QueuePhase.OPEN, **cards: int) -> None:
    amounts: Any = {amount: {GPU: units} for amount, units in cards.items()}
    world.state.queues[QueueName(name)] = Queue(QueueName(name), phase, parent=parent, **amounts)


@pytest.fixture
def departments(world: World) -> World:
    queue(world, "vision", deserved=2, capability=3)
    queue(world, "train", "vision", deserved=1)
    queue(world, "serve", "vision", deserved=1)
    queue(world, "speech", deserved=2)
    queue(world, "asr", "speech")
    return world


def wants(world: World, pod: str, name: str, place: int = 0, *victims: str) -> Plan:
    where, card = PLACES[place]
    made = world.plan(f"plan-{pod}", (pod, where, [world.card(card)]), queue=name)
    named = tuple(Victim(claim=world.claim(v).id, pod_uid=PodUid(v)) for v in victims)
    return made.model_copy(update={"victims": named})


def runs(world: World, *queues: str) -> None:
    """Pod p0 of the first queue on the first card, and so on."""
    for place, name in enumerate(queues):
        world.commits(wants(world, f"p{place}", name, place))
        world.outcome(f"p{place}", BindOutcome.BOUND, at=PLACES[place][0])


def test_the_department_is_a_limit_for_all_of_its_projects(departments: World) -> None:
    runs(departments, "train", "train", "serve")
    assert departments.refusal(wants(departments, "new", "serve", 3)) == (
        "queue vision, above queue serve, may use 3 of nvidia.com/gpu, 3 are in use and 1 more are asked for"
    )
    departments.commits(wants(departments, "other", "asr", 3))


def test_a_victim_below_the_wall_makes_room_under_it(departments: World) -> None:
    runs(departments, "train", "train", "train", "asr")
    departments.commits(wants(departments, "new", "serve", 0, "p0"))
    assert [e.pod for e in departments.last.evictions] == ["p0"]


def test_a_department_takes_work_only_through_its_projects(departments: World) -> None:
    assert departments.refuses(wants(departments, "new", "vision")) == "QueueNotLeaf"


def test_below_a_closed_department_nothing_starts_and_all_goes_on(departments: World) -> None:
    runs(departments, "train")
    queue(departments, "vision", phase=QueuePhase.CLOSING)
    assert departments.refusal(wants(departments, "new", "train", 1)) == (
        "queue vision, above queue train, is closed and takes no new work"
    )
    assert len(departments.state.live) == 1


def test_between_projects_of_a_department_their_own_shares_count(departments: World) -> None:
    """vision has 3, more than its 2: between its projects that is no matter."""
    queue(departments, "vision", deserved=2)
    runs(departments, "train", "train", "train", "asr")
    departments.commits(wants(departments, "new", "serve", 0, "p0"))
    assert "more than it deserves" in departments.refusal(wants(departments, "more", "serve", 3, "p3"))


def test_between_departments_the_departments_shares_count(departments: World) -> None:
    """asr deserves nothing of its own: its department does."""
    runs(departments, "train", "serve", "serve")
    departments.commits(wants(departments, "mine", "asr", 3))
    departments.commits(wants(departments, "new", "asr", 0, "p0"))
    assert "reclaimed for ml/plan-new of queue asr" in departments.last.evictions[0].reason


def test_a_department_within_its_share_gives_nothing_though_a_project_has_more(departments: World) -> None:
    queue(departments, "train", "vision", deserved=0)
    runs(departments, "train", "train")
    assert departments.refusal(wants(departments, "new", "asr", 0, "p0")) == (
        "queue vision, above queue train, has no more than it deserves"
    )


def test_guarantees_hold_for_every_queue_of_the_branch_that_gives(departments: World) -> None:
    runs(departments, "train", "serve", "serve")
    queue(departments, "train", "vision", guarantee=1)
    assert departments.refusal(wants(departments, "new", "asr", 0, "p0")) == "queue train is guaranteed its nvidia.com/gpu"
    departments.commits(wants(departments, "new", "asr", 1, "p1"))


def test_a_guarantee_counts_as_deserved_for_who_takes(departments: World) -> None:
    runs(departments, "asr", "asr", "asr", "asr")
    queue(departments, "vision", guarantee=1)
    departments.commits(wants(departments, "new", "train", 0, "p0"))


def test_a_queue_is_closing_while_anything_is_left_below_it(departments: World) -> None:
    runs(departments, "train")
    queue(departments, "vision", phase=QueuePhase.CLOSED)

    def phase() -> QueuePhase:
        return published_queue(departments.state, departments.state.queues[QueueName("vision")]).phase

    assert phase() is QueuePhase.CLOSING
    departments.see(departments.fact("p0", "a", PodPhase.GONE))
    assert phase() is QueuePhase.CLOSED


def test_nodes_of_a_pool_are_for_the_queues_that_name_it(departments: World) -> None:
    state = departments.state
    state.nodes[NodeName("a")] = replace(state.nodes[NodeName("a")], labels={"hbox.io/pool": "lab"})
    state.queues[QueueName("speech")] = Queue(QueueName("speech"), pools=("lab",))
    assert departments.refuses(wants(departments, "p", "train", 0)) == "NodePoolMismatch"
    assert departments.refusal(wants(departments, "q", "train", 0)) == "a is of pool lab; queue train may use public, pooled"
    assert departments.refusal(wants(departments, "r", "asr", 2)) == "b is of pool pooled; queue asr may use public, lab"
    departments.commits(wants(departments, "s", "asr", 0), wants(departments, "t", "train", 2))


@pytest.mark.parametrize(("text", "pools"), [(None, ()), ("lab", ("lab",)), (" lab, pooled,lab", ("lab", "pooled"))])
def test_pools_are_read_off_the_queues_annotation(text: str | None, pools: tuple[str, ...]) -> None:
    notes = {} if text is None else {"hbox.io/pools": text}
    assert queue_of(QueueObject(metadata=Metadata(name="q", uid="u", annotations=notes))).pools == pools


def test_a_pool_without_a_name_is_none() -> None:
    with pytest.raises(InvalidRequest, match=r"hbox\.io/pools is 'lab,', in which a name is empty"):
        queue_of(QueueObject(metadata=Metadata(name="q", uid="u", annotations={"hbox.io/pools": "lab,"})))


def test_what_plugins_read_of_a_queue_is_passed_on() -> None:
    spec = msgspec.convert(
        {"affinity": {"nodeGroupAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": ["g1", "g2"]}}}, QueueSpec
    )
    notes = {"volcano.sh/hierarchy": "root/q", "volcano.sh/hierarchy-weights": "1/2", "someone.else/note": "x"}
    queue = queue_of(QueueObject(metadata=Metadata(name="q", uid="u", annotations=notes), spec=spec))
    assert queue.annotations == {"volcano.sh/hierarchy": "root/q", "volcano.sh/hierarchy-weights": "1/2"}
    assert queue.node_groups == {"preferredAffinity": ("g1", "g2")}


@pytest.mark.parametrize(
    ("groups", "notes", "said"),
    [
        (("g",) * 257, {}, "node groups of spec.affinity: 257 are written, at most 256 are taken"),
        (("g" * 64,), {}, "a node group of spec.affinity has 64 bytes, at most 63 are taken"),
        ((), {"volcano.sh/hierarchy": "root/" + "x" * 2044}, "annotation volcano.sh/hierarchy has 2049 bytes"),
        ((), {"volcano.sh/nodegroup-resource-limits": "x" * 32769}, "has 32769 bytes, at most 32768 are taken"),
    ],
)
def test_what_plugins_read_of_a_queue_is_bounded(groups: tuple[str, ...], notes: dict[str, str], said: str) -> None:
    spec = QueueSpec(affinity=QueueAffinity(node_group_affinity=NodeGroups(required=groups)))
    with pytest.raises(InvalidRequest, match=said):
        queue_of(QueueObject(metadata=Metadata(name="q", uid="u", annotations=notes), spec=spec))


async def test_what_plugins_read_of_a_queue_is_stored(tmp_path: Path) -> None:
    queue = Queue(
        QueueName("q"),
        annotations={"volcano.sh/hierarchy": "root/q"},
        node_groups={"requiredAffinity": ("g1", "g2")},
    )
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
        ledger = await Ledger.begin(store, Relay(store, Nowhere()), clock=lambda: 1_790_000_000.0)
        await ledger.set_queues(queue)
        assert (await store.read(load.load)).state.queues[queue.name] == queue


class Nowhere:
    async def publish_raw(self, type_: Any, body: bytes, *keys: str, message_id: str) -> None: ...


def test_a_queue_and_all_below_it_is_for_the_namespaces_that_it_names(departments: World) -> None:
    """Plans of the world are of namespace ml."""
    queues = departments.state.queues
    queues[QueueName("vision")] = replace(queues[QueueName("vision")], namespaces=("a", "b"))
    assert departments.refusal(wants(departments, "p", "train")) == (
        "queue vision, above queue train, is for namespace a, b, not for ml"
    )
    queues[QueueName("vision")] = replace(queues[QueueName("vision")], namespaces=("a", "ml"))
    departments.commits(wants(departments, "q", "train"))


def test_a_queue_and_all_below_it_is_for_the_classes_that_it_names(departments: World) -> None:
    queues = departments.state.queues
    queues[QueueName("vision")] = replace(queues[QueueName("vision")], priority_classes=("low", "normal"))
    forged, of_none, right = (wants(departments, name, "train") for name in ("p", "n", "q"))
    departments.classes |= {forged.job: "urgent", right.job: "normal"}
    takes = "queue vision, above queue train, takes jobs of PriorityClass low, normal"
    assert departments.refusal(forged) == f"{takes}, not of urgent"
    assert departments.refusal(of_none) == f"{takes}, and the job is of none"
    departments.commits(right)


def test_queue_with_none_in_its_class_list_admits_jobs_without_a_class(departments: World) -> None:
    queues = departments.state.queues
    queues[QueueName("vision")] = replace(queues[QueueName("vision")], priority_classes=("~none", "low"))
    forged, of_none = (wants(departments, name, "train") for name in ("p", "n"))
    departments.classes |= {forged.job: "system-node-critical"}
    takes = "queue vision, above queue train, takes jobs without a PriorityClass, and of PriorityClass low"
    assert departments.refusal(forged) == f"{takes}, not of system-node-critical"
    departments.commits(of_none)


@pytest.mark.parametrize(
    ("above", "own", "let_in"),
    [
        ((), (), False),
        (("ml",), (), True),
        ((), ("ml",), True),
        ((), ("*",), True),
        (("*",), ("b",), False),
        (("a",), ("*",), False),
    ],
)
def test_where_queues_are_bound_one_that_nobody_bound_is_for_nobody(
    departments: World, above: tuple[str, ...], own: tuple[str, ...], *, let_in: bool
) -> None:
    queues = departments.state.queues
    for name, namespaces in (("vision", above), ("train", own)):
        queues[QueueName(name)] = replace(queues[QueueName(name)], bound=True, namespaces=namespaces)
    [answer] = departments.propose(wants(departments, "p", "train"))
    assert answer.committed is let_in


async def test_queues_that_come_together_are_written_in_one_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn accrues what all queues use: one each would cost by the square of their number."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
        ledger = await Ledger.begin(store, Relay(store, Nowhere()), clock=lambda: 1_790_000_000.0)
        nobody: Any = None
        rules = Rules(nobody, ledger, StatusWriter(nobody, instance="i", per_s=0), QuotaPublisher(nobody))
        turns, write = [0], store.write

        async def counted(*args: Any, **options: Any) -> Any:
            turns[0] += 1
            return await write(*args, **options)

        monkeypatch.setattr(store, "write", counted)
        objects = [QueueObject(metadata=Metadata(name=f"q{i}", uid=f"u{i}", resource_version="1")) for i in range(AT_ONCE + 1)]
        await rules._on_queues([Delta(DeltaKind.ADDED, None, one) for one in objects])
        assert turns == [2]
        assert len(ledger.state.queues) == AT_ONCE + 1
        await rules._on_queues([Delta(DeltaKind.ADDED, None, one) for one in objects])
        assert turns == [2], "nothing is written of what is as it was"
        first, again = objects[0], QueueObject(metadata=Metadata(name="q1", uid="other", resource_version="2"))
        changes = [
            Delta(DeltaKind.DELETED, first, None),
            Delta(DeltaKind.DELETED, objects[1], None),
            Delta(DeltaKind.ADDED, None, again),
        ]
        await rules._on_queues(changes)
        assert QueueName("q0") not in ledger.state.queues
        assert QueueName("q1") in ledger.state.queues
        assert (await store.read(load.load)).state.queues.keys() == ledger.state.queues.keys()
