"""The audit finds each kind of fault, and none where there is none."""

import json
from dataclasses import replace
from typing import Any

import pytest

from hbox_cli.audit import Audit, AuditGang, AuditNode, AuditPod, audit, published_of, read_gang, read_node, read_pod
from hbox_common.model import (
    CardId,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    ContainerHolds,
    DeviceIds,
    Generation,
    JobId,
    NodeDevices,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    QueueName,
)
from hbox_common.model.claim import KUBELET_GAVE
from hbox_common.model.devices import Card

CARDS = [{"id": f"u{i}", "index": i, "count": 2, "devmem": 10_000, "type": "NVIDIA-T4"} for i in range(2)]


def node(name: str = "n", cpu: str = "16") -> AuditNode:
    return read_node(
        {
            "metadata": {"name": name, "annotations": {"hami.io/node-nvidia-register": json.dumps(CARDS)}},
            "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "10", "nvidia.com/gpu": "4"}},
        }
    )


def pod(
    name: str,
    cards: str = "",
    *,
    on: str = "n",
    gang: str = "",
    ours: bool = True,
    notes: dict[str, str] | None = None,
    **asked: str,
) -> AuditPod:
    annotations = {"hbox.io/claim": f"c-{name}", "hbox.io/cards": cards, **(notes or {})}
    if gang:
        annotations["scheduling.k8s.io/group-name"] = gang
    wanted = {key.replace("gpu", "nvidia.com/gpu", 1).replace("_", "-"): amount for key, amount in asked.items()}
    spec: dict[str, Any] = {"schedulerName": "hbox" if ours else "other", "containers": [{"resources": {"limits": wanted}}]}
    if on:
        spec["nodeName"] = on
    return read_pod(
        {
            "metadata": {"uid": f"u-{name}", "name": name, "namespace": "x", "annotations": annotations if ours else {}},
            "spec": spec,
        }
    )


def claim(of: AuditPod, **other: Any) -> Claim:
    fields: dict[str, Any] = {
        "id": ClaimId(of.claim),
        "pod_uid": PodUid(of.uid),
        "namespace": "x",
        "pod": of.name.split("/")[1],
        "job": JobId("j"),
        "plan": PlanId("p") if of.claim else PlanId(""),
        "queue": QueueName("default"),
        "priority": 0,
        "node": NodeName(of.node),
        "requests": of.requests,
        "slices": of.slices or (),
        "state": ClaimState.POSTED,
    }
    return Claim(**{**fields, **other})


def faults(
    pods: list[AuditPod],
    claims: list[Claim] | None = None,
    *,
    gangs: list[AuditGang] | None = None,
    nodes: list[AuditNode] | None = None,
) -> list[str]:
    held = [claim(p) for p in pods if p.node] if claims is None else claims
    result: Audit = audit(nodes or [node()], pods, gangs or [], held)
    assert result.checks > 0
    return result.faults


WHOLE = pod("whole", "0:100:10000", gpu="1", cpu="4")
HALF = pod("half", "1:50:5000", gpu="1", gpucores="50", gpumem_percentage="50", cpu="4")
HALF_2 = pod("half2", "1:50:5000", gpu="1", gpucores="50", gpumem_percentage="50", cpu="4")


def test_a_sound_cluster_has_no_fault() -> None:
    assert faults([WHOLE, HALF, HALF_2, pod("waits", on="", gpu="1")]) == []


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([HALF, pod("more", "1:60:5000", gpu="1", gpucores="60", gpumem="5000")], "110 % of its compute"),
        ([HALF, pod("more", "1:10:6000", gpu="1", gpucores="10", gpumem="6000")], "11000 MiB given away of 10000"),
        ([WHOLE, pod("beside", "0:0:0", gpu="1", gpucores="0", gpumem="0")], "is held whole, and by 2 pods"),
        (
            [HALF, pod("b", "1:1:1", gpu="1", gpucores="1", gpumem="1"), pod("c", "1:1:1", gpu="1", gpucores="1", gpumem="1")],
            "3 pods, 2 may share it",
        ),
        ([pod("far", "7:100:10000", gpu="1")], "has no card 7"),
        ([pod("big", cpu="17")], "17000 of cpu given away, 16000 are there"),
        ([pod("lost", on="nowhere", cpu="1")], "is bound to nowhere, which is no node"),
        ([pod("none", "", gpu="1")], "asked for 1 cards and holds 0"),
        ([pod("twice", "0:100:10000,0:100:10000", gpu="2")], "asked for 2 cards and holds 2"),
        ([pod("less", "0:30:5000", gpu="1", gpucores="50", gpumem_percentage="50")], "less than it asked for"),
        (
            [pod("model", "0:100:10000", gpu="1", notes={"nvidia.com/use-gputype": "A100"})],
            "runs on a T4, and asked for A100",
        ),
        ([WHOLE, pod("stranger", ours=False, gpu="4")], "4 cards of others' pods and 1 of ours, of 4"),
    ],
)
def test_what_the_cluster_shows_is_found(pods: list[AuditPod], said: str) -> None:
    assert any(said in fault for fault in faults(pods)), faults(pods)


def test_models_are_matched_as_hami_does() -> None:
    assert faults([pod("model", "0:100:10000", gpu="1", notes={"nvidia.com/use-gputype": "a100,t4"})]) == []


def test_a_gang_started_in_part_is_found_and_a_whole_or_waiting_one_is_not() -> None:
    gang = AuditGang("x/g", 2)
    bound = [pod(f"g{i}", f"{i}:100:10000", gang="g", gpu="1") for i in range(2)]
    waits = [pod(f"w{i}", on="", gang="g", gpu="1") for i in range(2)]
    assert any("started in part: 1 pods of at least 2" in f for f in faults([bound[0], waits[0]], gangs=[gang]))
    assert faults(bound, gangs=[gang]) == []
    assert faults([*bound, waits[0]], gangs=[gang]) == []
    assert faults(waits, gangs=[gang]) == []


@pytest.mark.parametrize(
    ("one", "two", "clash"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, True),
        ({"hostPort": 80}, {"hostPort": 80, "hostIP": "10.0.0.1"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.2"}, {"hostPort": 80, "hostIP": "10.0.0.1"}, False),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, False),
        ({"hostPort": 80}, {"containerPort": 80}, False),
    ],
)
def test_a_host_port_that_two_pods_of_ours_hold_is_found(one: dict[str, Any], two: dict[str, Any], *, clash: bool) -> None:
    def holder(name: str, port: dict[str, Any], claim: str) -> AuditPod:
        meta = {"uid": name, "name": name, "namespace": "x", "annotations": {"hbox.io/claim": claim}}
        return read_pod({"metadata": meta, "spec": {"nodeName": "n", "containers": [{"ports": [port]}]}})

    said = "node n: TCP port 80 is held by x/a and by x/b"
    assert (said in faults([holder("a", one, "c1"), holder("b", two, "c2")])) == clash
    assert said not in faults([holder("a", one, "c1"), holder("b", two, "")])


def test_pods_that_ended_hold_nothing() -> None:
    ended = replace(WHOLE, uid="u-e", holds=False)
    assert faults([ended, WHOLE], [claim(WHOLE)]) == []
    meta = {"uid": "u", "name": "p", "namespace": "x"}
    phases = ("Pending", "Running", "Succeeded", "Failed")
    assert [read_pod({"metadata": meta, "spec": {}, "status": {"phase": phase}}).holds for phase in phases] == [
        True,
        True,
        False,
        False,
    ]


def test_what_a_node_does_not_have_at_all_cannot_be_given_away() -> None:
    asks = replace(WHOLE, requests={**WHOLE.requests, "example.com/wire": 1})
    assert faults([asks], [claim(asks)]) == ["node n: 1 of example.com/wire given away, 0 are there (base units)"]


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ([], "is bound and has 0 claims"),
        ([claim(WHOLE), claim(WHOLE, id=ClaimId("other"))], "is bound and has 2 claims"),
        ([claim(WHOLE, node=NodeName("m"))], "is on n, its claim on m"),
        ([claim(WHOLE, state=ClaimState.PENDING)], "is pending still"),
        ([claim(WHOLE), claim(WHOLE, id=ClaimId("ghost"), pod_uid=PodUid("ghost"))], "its pod x/whole is not there"),
    ],
)
def test_what_ledger_and_cluster_do_not_agree_on_is_found(claims: list[Claim], said: str) -> None:
    assert any(said in fault for fault in faults([WHOLE], claims))


def test_pending_claim_of_a_pod_that_waits_for_a_volume_is_no_fault() -> None:
    waiting = replace(pod("waits", on="", gpu="1"), volume_claims=("x/data", "x/more"))
    own = claim(waiting, node=NodeName("n"), state=ClaimState.PENDING)
    found = audit([node()], [waiting], [], [own], unbound={"x/more"})
    assert (found.faults, found.notes) == (
        [],
        ["pod x/waits has its place on node n and waits for persistentvolumeclaim x/more"],
    )
    bound = audit([node()], [waiting], [], [own], unbound={"x/of-another-pod"})
    assert bound.faults == ["claim c-waits of pod x/waits is pending still"]


def test_claims_on_volumes_are_read_off_a_pod() -> None:
    volumes = [
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "e", "emptyDir": {}},
    ]
    spec = {"schedulerName": "hbox", "containers": [], "volumes": volumes}
    read = read_pod({"metadata": {"uid": "u", "name": "p", "namespace": "x"}, "spec": spec})
    assert read.volume_claims == ("x/data", "x/p-scratch")


def test_pods_of_others_need_a_claim_too_but_their_cards_are_the_ledgers_guess() -> None:
    stranger = pod("s", ours=False, gpu="1")
    assert faults([stranger], [claim(stranger, id=ClaimId("any"), slices=(CardSlice(1, 100, 10_000),))]) == []
    assert any("has 0 claims" in fault for fault in faults([stranger], []))


def test_requests_are_counted_as_kubernetes_counts_them() -> None:
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"limits": {"cpu": "500m"}}}],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}},
            {"resources": {"requests": {"cpu": "3", "memory": "1Gi"}}},
        ],
        "overhead": {"cpu": "100m"},
    }
    read = read_pod({"metadata": {"uid": "u", "name": "p", "namespace": "x"}, "spec": spec})
    assert read.requests == {"cpu": 3350, "memory": 2**30, "pods": 1}


def test_cards_are_read_in_all_forms_that_nodes_have() -> None:
    legacy = read_node(
        {"metadata": {"name": "n", "annotations": {"hami.io/node-nvidia-register": "u0,10,15360,100,NVIDIA-T4,0,true:"}}}
    )
    assert [(card.memory_mib, card.shares, card.model) for card in legacy.cards.values()] == [(15360, 10, "T4")]
    plain = read_node({"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    assert len(plain.cards) == 8
    assert read_gang({"metadata": {"namespace": "x", "name": "g"}, "spec": {}}).min_member == 1


def notes(pods: list[AuditPod], claims: list[Claim]) -> list[str]:
    result = audit([node()], pods, [], claims)
    assert result.faults == []
    return result.notes


@pytest.mark.parametrize(
    ("written", "held"),
    [
        (pod("whole", "0:100", gpu="1"), claim(WHOLE)),  # cannot be read
        (WHOLE, claim(WHOLE, slices=(CardSlice(1, 100, 10_000),))),
        (WHOLE, claim(WHOLE, id=ClaimId("other"))),
        (pod("whole", "", gpu="1", notes={"hbox.io/claim": ""}), claim(WHOLE)),
        (pod("cpu", "0:100:10000,1:100:10000", cpu="1"), claim(pod("cpu", cpu="1"), plan=PlanId(""))),
    ],
)
def test_what_tenants_wrote_on_their_pods_is_noted_and_is_no_fault(written: AuditPod, held: Claim) -> None:
    [said] = notes([written], [held])
    assert written.name in said
    assert "HBox ignores them" in said


def test_a_pod_that_was_found_bound_and_says_what_it_holds_or_nothing_is_not_noted() -> None:
    silent = pod("silent", cpu="1", notes={"hbox.io/claim": ""})
    assert notes([silent, WHOLE], [claim(silent, plan=PlanId("")), claim(WHOLE, plan=PlanId(""), id=ClaimId("found"))]) == []


def test_forged_cards_are_in_no_sum() -> None:
    """Neither of a pod without cards, nor of one whose owner wrote somebody else's cards on it."""
    forger = pod("forger", "0:100:10000,1:100:10000", cpu="1")
    liar = pod("liar", "0:100:10000", gpu="1")
    held = [claim(WHOLE), claim(forger, plan=PlanId(""), slices=()), claim(liar, slices=(CardSlice(1, 100, 10_000),))]
    assert len(notes([WHOLE, forger, liar], held)) == 2


@pytest.mark.parametrize(
    ("phase", "waiting", "said"),
    [
        ("Running", 1, "its minMember was raised: 1 wait for nodes, 1 are not there"),
        ("Unknown", 2, "its minMember was raised: 2 wait for nodes"),
        ("Unknown", 0, "0 wait for nodes, 2 are not there"),
    ],
)  # fmt: skip
def test_a_gang_with_less_than_its_minimum_after_it_had_started_is_noted_and_is_no_fault(
    phase: str, waiting: int, said: str
) -> None:
    group = {"metadata": {"namespace": "x", "name": "g"}, "spec": {"minMember": 3}, "status": {"phase": phase}}
    left = pod("g0", "0:100:10000", gang="g", gpu="1")
    pods = [left, *(pod(f"w{i}", on="", gang="g", gpu="1") for i in range(waiting))]
    result = audit([node()], pods, [read_gang(group)], [claim(left)])
    assert result.faults == []
    [note] = result.notes
    assert note.startswith("gang x/g started whole")
    assert "2 of its 3 members have no node now, since a drain or a deletion took them or " in note
    assert said in note


@pytest.mark.parametrize("phase", ["", "Pending", "Inqueue", "Completed"])
def test_a_gang_that_never_started_whole_is_started_in_part(phase: str) -> None:
    group = {"metadata": {"namespace": "x", "name": "g"}, "spec": {"minMember": 3}, "status": {"phase": phase}}
    left = pod("g0", "0:100:10000", gang="g", gpu="1")
    assert faults([left], gangs=[read_gang(group)]) == ["gang x/g started in part: 1 pods of at least 3"]


def test_a_card_that_kubelets_gave_twice_is_found() -> None:
    """On a node of a plain plugin, whose Node object has no UUIDs, claims follow the kubelet and have no plan any more."""
    there = {"allocatable": {"nvidia.com/gpu": "2", "pods": "9"}}
    node = read_node({"metadata": {"name": "n"}, "status": there})
    pods = [pod("a", "gpu:x:100:0", gpu="1"), pod("b", "gpu:y:100:0", gpu="1")]
    moved = [replace(claim(p), plan=PlanId(""), reason=KUBELET_GAVE) for p in pods]
    assert faults(pods, moved, nodes=[node]) == []
    twice = [replace(c, slices=moved[0].slices) for c in moved]
    assert faults(pods, twice, nodes=[node]) == [
        "node n card x: 200 % of its compute given away",
        "node n card x is held whole, and by 2 pods",
    ]


def test_audit_finds_a_renumbered_card_by_uuid() -> None:
    """The plugin allocated another card than the claim has, with the same index."""
    cards = ":".join(f"u{i},10,15360,100,NVIDIA-T4,0,true" for i in range(2)) + ":"
    there = {"allocatable": {"nvidia.com/gpu": "20", "pods": "9"}}
    node = read_node({"metadata": {"name": "n", "annotations": {"hami.io/node-nvidia-register": cards}}, "status": there})
    asks = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}

    def faults(handed_over: str) -> list[str]:
        notes = {
            "hbox.io/claim": "c",
            "hbox.io/cards": "gpu:u1:100:15360",
            "hami.io/vgpu-devices-allocated": f"{handed_over},NVIDIA,15360,100:;",
        }
        meta = {"uid": "p", "name": "p", "namespace": "x", "annotations": notes}
        own = read_pod({"metadata": meta, "spec": {"nodeName": "n", "schedulerName": "hbox", "containers": [asks]}})
        one = Claim(
            ClaimId("c"), PodUid("p"), "x", "p", JobId("p"), PlanId("plan"), QueueName("default"), 0, NodeName("n"), {"nvidia.com/gpu": 1},
            (CardSlice(0, 100, 15_360, card=CardId("gpu:u1")),), ClaimState.POSTED,
        )  # fmt: skip
        return audit([node], [own], [], [one]).faults

    assert faults("u1") == []
    assert faults("u0") == ["pod x/p runs on u0 by its device plugin's annotation, but its claim is on u1"]


def test_lost_card_with_one_holder_is_noted_and_with_two_is_a_fault() -> None:
    gone = Card(index=7, uuid="u7", model="T4", memory_mib=10_000)
    published = {"n": published_of(NodeState(NodeName("n"), "n", Generation(1), ready=True, lost=(gone,)), None)}
    pods = [pod("a", "gpu:u7:100:10000", gpu="1"), pod("b", "gpu:u7:100:10000", gpu="1")]

    def audited(*of: AuditPod) -> Audit:
        return audit([node()], of, [], [claim(p) for p in of], published)

    assert audited(pods[0]).faults == []
    assert audited(pods[0]).notes == ["node n lost card u7, which x/a holds: the card is given to no other pod"]
    assert "node n card u7 is held whole, and by 2 pods" in audited(*pods).faults
    assert faults(pods[:1]) == ["node n has no card u7, which x/a holds"], "no card of that UUID was ever on the node"


@pytest.mark.parametrize("registered", [True, False])
def test_lost_card_is_noted_and_takes_no_place_of_other_schedulers_pods(registered: bool) -> None:
    """A Node object that only counts its cards does not show which of them is lost."""
    there = {"allocatable": {"nvidia.com/gpu": "1", "pods": "9"}}
    annotations = {"hami.io/node-nvidia-register": json.dumps([{**CARDS[0], "count": 1}])} if registered else {}
    has = read_node({"metadata": {"name": "n", "annotations": annotations}, "status": there})
    gone = Card(index=7, uuid="u7", model="T4", memory_mib=0)
    published = {"n": published_of(NodeState(NodeName("n"), "n", Generation(1), ready=True, lost=(gone,)), None)}
    pods = [pod("a", "gpu:u7:100:0", gpu="1"), pod("stranger", ours=False, gpu="1")]
    found = audit([has], pods, [], [claim(one) for one in pods], published)
    assert (found.faults, found.notes) == ([], ["node n lost card u7, which x/a holds: the card is given to no other pod"])


def test_annotation_that_names_a_uuid_which_the_node_lacks_is_noted() -> None:
    handed = {"hami.io/vgpu-devices-allocated": "u9,NVIDIA,10000,100:;"}
    forged = pod("p", "gpu:u0:100:10000", gpu="1", notes=handed)
    assert faults([forged]) == []
    assert notes([forged], [claim(forged)]) == [
        "pod x/p: its device plugin's annotation names u9, which node n does not have; its claim is on u0"
    ]


@pytest.mark.parametrize("problem", ["", "node-agent has stopped"])
def test_claim_on_another_card_than_the_kubelet_gave_is_a_fault(problem: str) -> None:
    cards = tuple(Card(index=i, uuid=f"GPU-{i}", model="A100", memory_mib=0, kind="nvidia.com/gpu") for i in range(2))
    there = {"allocatable": {"nvidia.com/gpu": "2", "pods": "9"}}
    plain = read_node({"metadata": {"name": "n"}, "status": there})
    own = pod("a", "gpu:GPU-0:100:0", gpu="1")

    def found(given: str) -> list[str]:
        holds = (ContainerHolds("x", "a", "main", (DeviceIds("nvidia.com/gpu", (given,)),), uid="u-a"),)
        devices = NodeDevices(NodeName("n"), 0.0, holds=holds, problem=problem)
        state = NodeState(NodeName("n"), "n", Generation(1), ready=True, cards=cards)
        return audit([plain], [own], [], [claim(own)], {"n": published_of(state, devices)}).faults

    assert found("GPU-0") == []
    assert found("GPU-1::3") == ([] if problem else ["the kubelet of node n gave pod x/a GPU-1, but its claim is on GPU-0"])
    assert found("slot-5") == [], "no card of the inventory"
