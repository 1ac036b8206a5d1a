"""Rests of nodes, for which requests, after their kubelets refused pods."""

from dataclasses import replace

import pytest

from hbox_common.model import CardRequest, ClaimId, NodeName, NodeRest, PodRequest, PodUid, Resources
from hbox_jobs.core.refusals import EXPIRE_S, PROVEN_NODES, Refusals, refusal_of
from hbox_jobs.core.spec import Shape
from hbox_jobs.core.views import PodStatus, PodView

NO_DEVICES = (
    "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu"
)
GPU = "nvidia.com/gpu"


class World:
    """Pods that kubelets refuse and admit, one each second."""

    def __init__(self) -> None:
        self.refusals = Refusals()
        self.wall = 1_700_000_000.0
        self._number = 0

    def pod(self, node: str, namespace: str = "ml", cards: int = 1, cpu: int = 1000, **shape: object) -> PodView:
        self._number += 1
        requests: Resources = {"pods": 1, "cpu": cpu}
        if cards:
            requests[GPU] = cards
        asked = Shape(f"{requests}", requests, CardRequest(count=cards) if cards else None, **shape)  # type: ignore[arg-type]
        name = f"p-{self._number}"
        return PodView(PodUid(name), namespace, name, "1", self.wall, asked, node=NodeName(node), claim=ClaimId(f"c-{name}"))

    def refuse(
        self, pod: PodView, reason: str = "UnexpectedAdmissionError", message: str = NO_DEVICES, *, after_s: float = 1.0
    ) -> None:
        self.wall += after_s
        failed = replace(pod, status=PodStatus.FAILED, refusal=refusal_of("Failed", reason, message), kubelet_at=self.wall)
        assert failed.refusal
        self.refusals.pod(pod, failed, self.wall)

    def admit(self, pod: PodView, *, after_s: float = 1.0) -> None:
        self.wall += after_s
        self.refusals.pod(pod, replace(pod, status=PodStatus.RUNNING, kubelet_at=self.wall), self.wall)

    def takes(self, pod: PodView) -> bool:
        """Whether the scheduler may place the pod on its node."""
        asked = PodRequest(
            pod.shape.requests,
            cards=pod.shape.cards is not None,
            aligned=pod.shape.cards is not None or pod.shape.guaranteed,
            selected=bool(pod.shape.node_selector),
        )
        return not any(one.concerns(asked) for one in self.refusals.of(pod.node).lasting(self.wall))

    def waits_s(self, pod: PodView) -> float:
        return max((one.until - self.wall for one in self.refusals.of(pod.node).lasting(self.wall)), default=0.0)


@pytest.fixture
def world() -> World:
    return World()


def test_node_that_refuses_a_pod_with_cards_takes_pods_without_cards(world: World) -> None:
    world.refuse(world.pod("n1"))
    assert not world.takes(world.pod("n1"))
    assert not world.takes(world.pod("n1", "other", cards=4))
    assert world.takes(world.pod("n1", cards=0))
    assert world.takes(world.pod("n2"))


def test_rest_doubles_with_each_refusal_after_the_last_rest(world: World) -> None:
    pod, waits = world.pod("n1"), []
    for _ in range(7):
        world.refuse(world.pod("n1"), after_s=world.waits_s(pod) + 0.1)
        waits.append(round(world.waits_s(pod)))
    assert waits == [2, 4, 8, 16, 32, 60, 60]


def test_pods_that_were_bound_before_the_rest_do_not_prolong_it(world: World) -> None:
    pods = [world.pod("n1") for _ in range(40)]
    for pod in pods:
        world.refuse(pod, after_s=0.01)
    assert world.waits_s(pods[0]) <= 2.0


def test_one_admitted_pod_of_the_kind_ends_the_rest(world: World) -> None:
    for _ in range(5):
        world.refuse(world.pod("n1"), after_s=70.0)
    world.admit(world.pod("n1", cards=0))
    assert not world.takes(world.pod("n1"))
    world.admit(world.pod("n1", "other", cards=2))
    assert world.takes(world.pod("n1"))
    assert world.refusals.of(NodeName("n1")).refused == ()
    world.refuse(world.pod("n1"))
    assert world.waits_s(world.pod("n1")) == 2.0


@pytest.mark.parametrize("reason", ["OutOfcpu", "OutOfCPU"])
def test_node_short_of_a_resource_takes_smaller_requests_of_it(world: World, reason: str) -> None:
    world.refuse(world.pod("n1", cards=0, cpu=8000), reason, "Node didn't have enough resource: cpu")
    assert not world.takes(world.pod("n1", cards=0, cpu=16000))
    assert world.takes(world.pod("n1", cpu=1000))
    world.admit(world.pod("n1", cpu=1000))
    assert not world.takes(world.pod("n1", cards=0, cpu=8000)), "an admitted smaller pod does not end the rest of larger ones"


def test_node_short_of_cards_takes_pods_with_fewer(world: World) -> None:
    world.refuse(world.pod("n1", cards=8), f"OutOf{GPU}", "")
    assert not world.takes(world.pod("n1", cards=8))
    assert world.takes(world.pod("n1", cards=4))


def test_topology_refusal_concerns_requests_of_that_size(world: World) -> None:
    world.refuse(world.pod("n1", cards=5), "TopologyAffinityError", "Resources cannot be allocated with Topology locality")
    assert not world.takes(world.pod("n1", cards=5))
    assert world.takes(world.pod("n1", cards=1))
    assert world.takes(world.pod("n1", cards=0))


def test_node_affinity_refusal_concerns_pods_with_selectors(world: World) -> None:
    world.refuse(world.pod("n1", node_selector={"a": "b"}), "NodeAffinity", "Predicate NodeAffinity failed")
    assert not world.takes(world.pod("n1", cards=2, node_selector={"c": "d"}))
    assert world.takes(world.pod("n1", cards=2))


@pytest.mark.parametrize("reason", ["OutOfpods", "NodeShutdown"])
def test_node_that_takes_no_pod_at_all_rests_for_all(world: World, reason: str) -> None:
    world.refuse(world.pod("n1", cards=0), reason)
    assert not world.takes(world.pod("n1", "other", cards=2))


@pytest.mark.parametrize("reason", ["SysctlForbidden", "AppArmor", "PodOSNotSupported", "SMTAlignmentError"])
def test_reason_that_lies_in_the_pod_rests_no_node(world: World, reason: str) -> None:
    world.refuse(world.pod("n1"), reason)
    assert world.takes(world.pod("n1"))


@pytest.mark.parametrize(
    ("reason", "message"), [("Evicted", "The node was low on resource: memory."), ("DeadlineExceeded", ""), ("", "")]
)
def test_pod_that_failed_later_is_no_refusal(reason: str, message: str) -> None:
    assert refusal_of("Failed", reason, message) == ""
    assert refusal_of("Running", "UnexpectedAdmissionError", "") == ""


def test_pods_that_every_kubelet_refuses_exclude_others_from_no_node(world: World) -> None:
    crafted = {"namespace": "evil", "cards": 3, "cpu": 7}
    for node in ("n1", "n2", "n3"):
        world.refuse(world.pod(node, **crafted))  # type: ignore[arg-type]
        assert not world.takes(world.pod(node, **crafted))  # type: ignore[arg-type]
    assert all(world.takes(world.pod(node)) for node in ("n1", "n2", "n3"))


def test_one_namespace_with_varying_requests_excludes_others_from_one_node(world: World) -> None:
    nodes = [f"n{number}" for number in range(20)]
    for cpu, node in enumerate(nodes, 1):
        world.refuse(world.pod(node, "evil", cpu=cpu), after_s=0.01)
    assert sum(not world.takes(world.pod(node)) for node in nodes) <= 1


def test_refusals_of_two_namespaces_rest_any_number_of_nodes(world: World) -> None:
    nodes = [f"n{number}" for number in range(20)]
    for cpu, node in enumerate(nodes, 1):
        world.refuse(world.pod(node, "ml", cpu=cpu), after_s=0.01)
        world.refuse(world.pod(node, "web", cpu=cpu), after_s=0.01)
    assert not any(world.takes(world.pod(node, "third")) for node in nodes)


def test_request_admitted_elsewhere_rests_several_nodes_and_not_all(world: World) -> None:
    world.admit(world.pod("good"))
    nodes = [f"n{number}" for number in range(2 * PROVEN_NODES)]
    for node in nodes:
        world.refuse(world.pod(node), after_s=0.01)
    assert sum(not world.takes(world.pod(node, "web", cards=2)) for node in nodes) == PROVEN_NODES
    assert not any(world.takes(world.pod(node)) for node in nodes)


def test_next_process_continues_the_rests_of_the_last(world: World) -> None:
    pods = [world.pod("n1") for _ in range(3)]
    for pod in pods:
        world.refuse(pod, after_s=world.waits_s(pod) + 0.1)
    (said,) = world.refusals.take()
    world.refusals = Refusals()
    world.refusals.resume([said])
    for pod in pods:  # in the order of its list
        failed = replace(pod, status=PodStatus.FAILED, refusal="UnexpectedAdmissionError", kubelet_at=world.wall - 1.0)
        world.refusals.pod(None, failed, world.wall, listed=True)
    assert world.refusals.take() == []
    world.refuse(world.pod("n1"), after_s=8.1)
    assert round(world.waits_s(world.pod("n1"))) == 16


def test_refusal_between_two_processes_counts(world: World) -> None:
    world.wall += 1.0
    failed = replace(
        world.pod("n1"), status=PodStatus.FAILED, refusal="UnexpectedAdmissionError: x", kubelet_at=world.wall - 1.0
    )
    world.refusals.pod(None, failed, world.wall, listed=True)
    assert not world.takes(world.pod("n1"))


def test_pod_that_was_admitted_before_the_refusal_does_not_end_the_rest(world: World) -> None:
    world.refuse(world.pod("n1"))
    ran = replace(world.pod("n1"), status=PodStatus.RUNNING, kubelet_at=world.wall - 10.0)
    world.refusals.pod(None, ran, world.wall, listed=True)
    assert not world.takes(world.pod("n1"))


def test_version_of_a_refused_pod_counts_once(world: World) -> None:
    pod = world.pod("n1")
    world.refuse(pod)
    failed = replace(pod, status=PodStatus.FAILED, refusal="UnexpectedAdmissionError: x", kubelet_at=world.wall)
    world.refusals.pod(failed, replace(failed, resource_version="9"), world.wall + 5.0)
    world.wall += 5.0
    assert world.takes(world.pod("n1"))


def test_refusals_are_forgotten_and_the_subject_is_closed(world: World) -> None:
    world.refuse(world.pod("n1"))
    world.refusals.take()
    world.refusals.expire(world.wall + EXPIRE_S + 3.0)
    assert world.refusals.take() == [NodeRest(NodeName("n1"), 0)]
    assert world.refusals.refusing(world.wall) == 0


def test_pod_that_names_its_node_itself_rests_no_node(world: World) -> None:
    """A tenant may create such pods for each node, with a node selector that the node does not match."""
    world.admit(world.pod("good", "mallory"))
    for node in ("n1", "n2"):
        own = replace(world.pod(node, "mallory", node_selector={"no": "such"}), claim=ClaimId(""))
        world.refuse(own, "NodeAffinity", "Predicate NodeAffinity failed")
        assert world.takes(world.pod(node, "web", node_selector={"zone": "a"}))
    assert world.refusals.take() == []
