"""Device plugins that hand out cards that are out of use."""

from hbox_common.model import IncidentState, NodeName
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.happenings import PodOnCards, Validated
from hbox_health.core.judge.incidents import Incidents
from hbox_health.core.judge.plugins import REPORT_DELAY_S

from .incident_world import GPU, OTHER, World, lost, pod, reset

BY = "nvidia.com/gpu"


def given(name: str, card: str = GPU, uid: str = "") -> PodOnCards:
    return pod(f"ns/{name}", card, job=f"ns/{name}", uid=uid or name, given=BY)


def leaving(world: World, node: str = "n0") -> set[str]:
    memory = world.engine.dump().nodes[node]
    return {card for incident in memory.open.values() for card in incident.leaving}


def sick(world: World, *pods: PodOnCards) -> None:
    """The verdict excludes GPU, with `pods` on the node; then REPORT_DELAY_S ends."""
    world.seen(offered=(GPU, OTHER))
    world.pods(*pods)
    world.record(reset())
    assert (world.verdict().cards, world.verdict().node) == ((GPU,), True)
    world.now += REPORT_DELAY_S + 1


def test_a_plugin_that_hands_out_a_sick_card_closes_its_node_and_the_pod_leaves() -> None:
    world = World()
    world.nodes(10)
    sick(world)
    world.pods(given("a"))
    assert (world.verdict().cards, world.verdict().node) == ((GPU,), False)
    [incident] = [one for one in world.open() if one.kind == "plugin"]
    assert "device plugin of nvidia.com/gpu" in incident.why
    assert GPU in incident.why
    assert leaving(world) == {GPU}
    assert world.cordoned == {"n0"}


def test_a_pod_that_had_the_card_before_and_pods_whose_cards_hbox_chose_close_nothing() -> None:
    world = World()
    world.nodes(10)
    sick(world, given("a"))
    world.pods(given("a"))
    world.pods(given("a"), given("b", OTHER), pod("ns/c", GPU, uid="c"))
    assert world.verdict().node


def test_a_claim_that_moves_to_the_card_late_closes_nothing() -> None:
    """The kubelet gave the card before the fault; the ledger moves the claim from the planned card after it."""
    world = World()
    world.nodes(10)
    sick(world, pod("ns/a", OTHER, job="ns/a", uid="a"))
    world.pods(given("a"))
    assert (world.verdict().node, [one.kind for one in world.open()]) == (True, ["card"])
    world.pods(given("b"))
    assert not world.verdict().node


def test_a_claim_of_a_pod_that_came_after_the_fault_counts_when_it_moves() -> None:
    world = World()
    world.nodes(10)
    sick(world)
    world.pods(pod("ns/a", OTHER, job="ns/a", uid="a"))
    assert world.verdict().node
    world.pods(given("a"))
    assert not world.verdict().node


def test_a_pod_that_is_reported_just_after_the_fault_closes_nothing() -> None:
    world = World()
    world.nodes(10)
    sick(world)
    world.now -= 2
    world.pods(given("a"))
    assert world.verdict().node
    world.now += 2
    world.pods(given("b"))
    assert not world.verdict().node


def test_pods_of_the_first_report_close_nothing() -> None:
    world = World()
    world.nodes(10)
    world.seen(offered=(GPU, OTHER))
    world.record(reset())
    world.now += REPORT_DELAY_S + 1
    world.pods(given("a"))
    assert world.verdict().node


def test_pods_from_before_a_start_close_nothing() -> None:
    """A node without incidents is stored without its pods; after the start its card fails before the claims are read."""
    world = World()
    world.nodes(10)
    world.seen(offered=(GPU, OTHER))
    world.pods()
    world.engine = Incidents(world.policies, world.engine.assess, world.engine.dump(), world.now)
    world.record(reset())
    world.now += REPORT_DELAY_S + 1
    world.pods(given("a"))
    assert (world.verdict().cards, world.verdict().node) == ((GPU,), True)


def test_a_pod_on_the_card_counts_once() -> None:
    world = World()
    world.nodes(10)
    sick(world)
    world.pods(given("a"))
    assert not world.verdict().node
    world.seen(offered=(OTHER,))
    assert world.verdict().node
    world.seen(offered=(GPU, OTHER))
    world.pods(given("a"))
    assert world.verdict().node


def test_a_successor_of_the_same_name_counts() -> None:
    world = World()
    world.nodes(10)
    sick(world, given("a", uid="1"))
    world.pods(given("a", uid="2"))
    assert not world.verdict().node


def test_the_node_opens_when_the_card_is_well() -> None:
    world = World()
    world.nodes(10)
    sick(world)
    world.pods(given("a"))
    world.pods()
    world.state("recovery", reset())  # a state of the card, too
    world.state("recovery")
    for incident in list(world.engine.dump().nodes["n0"].open.values()):
        for reason in incident.reasons.values():
            reason.cured = reason.cured or incident.kind == "card"
        if incident.kind == "card":
            incident.state = IncidentState.VALIDATING
    world.step(Validated(NodeName("n0"), GPU, passed=True))
    assert (world.verdict().cards, world.verdict().node, world.open()) == ((), True, [])
    assert world.cordoned == set()


def test_the_node_opens_when_the_plugin_does_not_offer_the_card_and_the_card_stays_out_of_use() -> None:
    world = World()
    world.nodes(10)
    sick(world)
    world.pods(given("a"))
    world.pods()
    world.seen(offered=(OTHER,))
    assert (world.verdict().cards, world.verdict().node) == ((GPU,), True)
    assert [one.kind for one in world.open()] == ["card"]


def test_while_the_breaker_keeps_the_node_open_no_pod_leaves_to_be_followed_by_another() -> None:
    world = World(Policies())
    world.nodes(10)
    for node in ("n1", "n2"):
        world.record(lost(), node=node)
    sick(world)
    world.pods(given("a"))
    assert world.verdict().node
    assert leaving(world) == set()
    held = {one.kind: one.held_by for one in world.open()}
    assert "breaker" in held["plugin"]
    world.boots("b2", "n1")
    world.after(700)
    assert (world.verdict().node, leaving(world)) == (False, {GPU})
