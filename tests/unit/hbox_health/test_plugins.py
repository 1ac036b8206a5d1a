"""Device plugins that hand out cards that are out of use."""

from hbox_common.model import IncidentState, NodeName
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.happenings import PodOnCards, Validated

from .incident_world import GPU, OTHER, World, lost, pod, reset

BY = "nvidia.com/gpu"


def given(name: str, card: str = GPU, uid: str = "") -> PodOnCards:
    return pod(f"ns/{name}", card, job=f"ns/{name}", uid=uid or name, given=BY)


def leaving(world: World, node: str = "n0") -> set[str]:
    memory = world.engine.dump().nodes[node]
    return {card for incident in memory.open.values() for card in incident.leaving}


def sick(world: World) -> None:
    world.seen(offered=(GPU, OTHER))
    world.record(reset())
    assert (world.verdict().cards, world.verdict().node) == ((GPU,), True)


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
    world.pods(given("a"))
    sick(world)
    world.pods(given("a"))
    world.pods(given("a"), given("b", OTHER), pod("ns/c", GPU, uid="c"))
    assert world.verdict().node


def test_a_successor_of_the_same_name_counts() -> None:
    world = World()
    world.nodes(10)
    world.pods(given("a", uid="1"))
    sick(world)
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
