from typing import Any

import pytest

from hbox_common.events import NodeStateChanged, encode
from hbox_common.kube import Metadata, Node
from hbox_common.model import Generation, NodeName, NodeState, Taint, TaintEffect
from hbox_topology.adapters.objects import node_facts
from hbox_topology.core.facts import NodeFacts
from hbox_topology.core.inventory import Inventory, Observed
from hbox_topology.core.node import INVENTORY_WARNING, read_node

NOW = 1_800_000_000.0


def facts(name: str = "n1", **changes: Any) -> Any:
    given = {
        "uid": f"uid-{name}",
        "labels": {"zone": "a", "nvidia.com/gpu.product": "A100-SXM4-80GB"},
        "conditions": {"Ready": "True", "DiskPressure": "False"},
        "allocatable": {"cpu": "63500m", "memory": "515Gi", "nvidia.com/gpu": "8", "pods": "110", "ephemeral-storage": "1Ti"},
    }
    return NodeFacts(name=name, **{**given, **changes})


def said(observed: Observed) -> NodeState:
    assert observed.changed is not None
    return observed.changed


def test_a_node_is_read_in_base_units_with_labels_taints_conditions_and_cards() -> None:
    node = read_node(
        facts(
            taints=(("gpu", "yes", "NoSchedule"),), unschedulable=True, annotations={"hbox.io/cordoned-by": "health-monitor"}
        ),
        Generation(7),
    ).state
    assert node.allocatable == {
        "cpu": 63500,
        "memory": 527360 * 2**20,
        "nvidia.com/gpu": 8,
        "pods": 110,
        "ephemeral-storage": 2**40,
    }
    assert node.taints == (Taint("gpu", "yes", TaintEffect.NO_SCHEDULE),)
    assert (node.ready, node.unschedulable, node.cordoned_by, node.generation) == (True, True, "health-monitor", 7)
    assert node.conditions == {"Ready": "True", "DiskPressure": "False"}
    assert node.labels["zone"] == "a"
    assert [c.memory_mib for c in node.cards] == [81920] * 8


@pytest.mark.parametrize("conditions", [{}, {"Ready": "False"}, {"Ready": "Unknown"}])
def test_a_node_is_ready_only_when_its_kubelet_says_so(conditions: Any) -> None:
    assert not read_node(facts(conditions=conditions), Generation(0)).state.ready


def test_slots_that_hami_reports_as_allocatable_stay_the_kubelets_limit_and_are_not_cards() -> None:
    register = "GPU-a,10,15360,100,NVIDIA-T4,0,true:GPU-b,10,15360,100,NVIDIA-T4,0,true:"
    node = read_node(
        facts(
            annotations={"hami.io/node-nvidia-register": register},
            allocatable={"nvidia.com/gpu": "20", "nvidia.com/gpumem": "30720", "nvidia.com/gpucores": "200"},
        ),
        Generation(0),
    ).state
    assert node.allocatable == {"nvidia.com/gpu": 20}
    assert [c.uuid for c in node.cards] == ["GPU-a", "GPU-b"]


def test_a_broken_register_leaves_the_node_without_cards_and_with_a_warning_condition() -> None:
    reading = read_node(facts(annotations={"hami.io/node-nvidia-register": "nonsense"}), Generation(0))
    assert reading.state.cards == ()
    assert "nvidia.com/gpu" not in reading.state.allocatable
    assert reading.state.conditions[INVENTORY_WARNING] == "True"
    assert "hami.io/node-nvidia-register" in reading.warnings[0]


def test_a_lock_of_a_node_in_allocation_is_no_fact_of_it() -> None:
    def of(**annotations: str) -> NodeFacts:
        return node_facts(Node(Metadata("n1", "u", annotations={"hami.io/node-nvidia-register": "x", **annotations})))

    locks = {"hami.io/mutex.lock": "2026-01-01T00:00:00Z,default,a", "cambricon.com/dsmlu.lock": "2026-01-01T00:00:00Z"}
    assert of(**locks) == of()
    assert of(**{"hami.io/node-nvidia-register": "y"}) != of()


def test_an_unreadable_amount_promises_nothing_and_is_named() -> None:
    reading = read_node(facts(allocatable={"cpu": "many", "memory": "1Gi"}), Generation(0))
    assert reading.state.allocatable == {"memory": 2**30}
    assert "cpu" in reading.warnings[0]


def test_an_absurd_number_of_cards_is_a_broken_plugin() -> None:
    reading = read_node(facts(allocatable={"nvidia.com/gpu": "1000000000"}), Generation(0))
    assert reading.state.cards == ()
    assert reading.warnings


def test_an_unknown_taint_effect_keeps_new_work_away() -> None:
    reading = read_node(facts(taints=(("k", "v", "NoNewThing"),)), Generation(0))
    assert reading.state.taints == (Taint("k", "v", TaintEffect.NO_SCHEDULE),)
    assert reading.warnings


def test_a_node_is_published_once_and_again_only_when_something_changed() -> None:
    inventory = Inventory()
    first = said(inventory.observe(facts(), now=NOW))
    assert first.generation == NOW * 1000
    assert inventory.observe(facts(), now=NOW + 10).changed is None
    second = said(inventory.observe(facts(unschedulable=True), now=NOW + 10))
    assert second.generation == (NOW + 10) * 1000


def test_generations_rise_even_when_the_clock_stands_still_or_goes_back() -> None:
    inventory = Inventory()
    first = said(inventory.observe(facts(), now=NOW))
    second = said(inventory.observe(facts(unschedulable=True), now=NOW))
    third = said(inventory.observe(facts(), now=NOW - 60))
    assert second.generation == first.generation + 1
    assert third.generation == second.generation + 1


def test_after_a_restart_only_differences_are_published() -> None:
    before = Inventory()
    states = [said(before.observe(facts(n), now=NOW)) for n in ("n1", "n2", "n3")]
    after = Inventory()
    for state in states:
        after.restore(state)
    assert after.observe(facts("n1"), now=NOW + 1).changed is None
    changed = said(after.observe(facts("n2", labels={}), now=NOW - 5))
    assert changed.generation == states[1].generation + 1
    (gone,) = after.vanished({"n1", "n2"}, now=NOW + 1)
    assert gone == NodeState(
        name=NodeName("n3"), uid="uid-n3", generation=Generation(int((NOW + 1) * 1000)), ready=False, gone=True
    )
    assert len(after) == 2


def test_an_older_state_that_is_read_back_late_does_not_win() -> None:
    inventory = Inventory()
    old = said(inventory.observe(facts(), now=NOW))
    new = said(inventory.observe(facts(unschedulable=True), now=NOW))
    inventory.restore(old)
    assert list(inventory.states()) == [new]


def test_a_deleted_node_gets_one_tombstone_and_may_come_back() -> None:
    inventory = Inventory()
    inventory.observe(facts(), now=NOW)
    gone = inventory.removed("n1", uid="uid-n1", now=NOW)
    assert gone is not None
    assert gone.gone
    assert inventory.removed("n1", uid="uid-n1", now=NOW) is None
    back = said(inventory.observe(facts(uid="another"), now=NOW))
    assert not back.gone
    assert back.generation == NOW * 1000 + 2


def test_the_late_deletion_of_an_earlier_node_of_that_name_changes_nothing() -> None:
    inventory = Inventory()
    inventory.observe(facts(uid="new"), now=NOW)
    assert inventory.removed("n1", uid="old", now=NOW) is None


def test_a_warning_is_reported_once_until_it_changes() -> None:
    inventory = Inventory()
    broken = facts(annotations={"hami.io/node-nvidia-register": "x"})
    assert inventory.observe(broken, now=NOW).warnings
    assert inventory.observe(broken, now=NOW).warnings == ()
    assert inventory.warnings() == 1
    assert inventory.observe(facts(), now=NOW).warnings == ()
    assert inventory.warnings() == 0


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"labels": {f"l{n}": "v" for n in range(5000)}}, "labels: 5000"),
        ({"taints": tuple((f"t{n}", "", "NoSchedule") for n in range(5000))}, "taints: 5000"),
        ({"conditions": {"Ready": "True", **{f"c{n}": "True" for n in range(5000)}}}, "conditions: 5001"),
        ({"allocatable": {"cpu": "4", **{f"example.com/r{n}": "1" for n in range(5000)}}}, "allocatable: 5001"),
    ],
)
def test_a_node_that_no_message_could_carry_is_told_of_and_takes_nothing_new(changes: Any, warning: str) -> None:
    reading = read_node(facts(**changes), Generation(0))
    assert not reading.state.ready
    assert any(warning in one for one in reading.warnings)
    assert len(encode(NodeStateChanged(node=reading.state))) < 256 * 1024


@pytest.mark.parametrize(
    "register",
    [
        "GPU-a,10,99999999999999999999,100,NVIDIA-T4,0,true:",
        "GPU-a,10,18446744073709551615,100,NVIDIA-T4,0,true:",
        f"{'x' * 70_000},10,15360,100,NVIDIA-T4,0,true:",
        "GPU\0,10,15360,100,NVIDIA-T4,0,true:",
        "".join(f"GPU-{n},10,15360,100,NVIDIA-T4,0,true:" for n in range(2000)),
        "x" * 300_000,
    ],
)
def test_a_register_that_no_machine_can_have_promises_no_cards(register: str) -> None:
    reading = read_node(facts(annotations={"hami.io/node-nvidia-register": register}), Generation(0))
    assert (reading.state.cards, len(reading.warnings)) == ((), 1)
    encode(NodeStateChanged(node=reading.state))


def test_of_nodes_that_are_gone_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbox_topology.core.inventory.MOST_GONE", 2)
    inventory = Inventory()
    for name in ("n1", "n2", "n3"):
        inventory.observe(facts(name), now=NOW)
        inventory.removed(name, now=NOW)
    back = {name: said(inventory.observe(facts(name, uid="another"), now=NOW - 3600.0)).generation for name in ("n1", "n3")}
    assert back == {"n1": (NOW - 3600.0) * 1000, "n3": NOW * 1000 + 2}, "n1 was forgotten, and only it"
    for name in ("n1", "n4"):
        inventory.observe(facts(name, uid="another"), now=NOW)
        assert inventory.removed(name, now=NOW) is not None
    assert [state.name for state in inventory.states()] == ["n3"], "it is there, whoever goes"
