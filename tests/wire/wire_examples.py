"""One example of every message, with something in every field, and their bytes in `golden/`.

The bytes are the promise to brokers and readers that were there before: a test fails when they change. Adding a field with a default is allowed
and changes them; then write them anew, and look at the difference:

    .venv/bin/python tests/wire/wire_examples.py
"""

from pathlib import Path

from hbox_common.eventexamples import EXAMPLES as PUBLIC_EXAMPLES
from hbox_common.events import (
    REGISTRY,
    Bind,
    BindDecided,
    BindOutcome,
    Budget,
    BudgetsChanged,
    BudgetUsed,
    CardQuotasChanged,
    ClaimsAsked,
    ClaimsChanged,
    ClaimsPage,
    CloudEvent,
    DeadLetter,
    DeviceErrorSeen,
    EpochAsked,
    EpochSaid,
    Event,
    Evict,
    EvictDecided,
    EvictedPod,
    EvictionReceipt,
    EvictionRule,
    EvictKind,
    FabricChanged,
    FabricGapsFound,
    FabricSeen,
    GateJobObserved,
    GateJobsDecided,
    GivenUp,
    GroupCounts,
    HealthChanged,
    HealthEvictionAsked,
    HealthOrderAsked,
    HealthOrdered,
    HealthOrdersAsked,
    HealthOrdersPage,
    HealthOrderTaken,
    HealthPolicyAsked,
    HealthPolicyPage,
    HealthReport,
    HealthRulesChanged,
    HealthVerdict,
    HeldNomination,
    IncidentChanged,
    JobPhase,
    JobPhaseChanged,
    JobsAdmitted,
    JobsAsked,
    JobsPage,
    JobsPending,
    JobsWaiting,
    JobsWithdrawn,
    JobVerdict,
    Leaving,
    NamespaceQuotasChanged,
    NodeAction,
    NodeDecided,
    NodeDevicesChanged,
    NodeImagesChanged,
    NodeNumaChanged,
    NodeObserved,
    NodeOutcome,
    NodeRests,
    NodesMeasured,
    NodeStateChanged,
    NodeZonesChanged,
    Outcome,
    OutcomesObserved,
    Placement,
    Plan,
    PlanAnswer,
    PlanDomain,
    PlansAnswered,
    PlansProposed,
    PodAsked,
    PodGroupsCounted,
    PodRead,
    PodsAsked,
    PodScore,
    PodsObserved,
    PodsRead,
    PodStanding,
    PolicyFollowed,
    PolicyValue,
    QueueRefused,
    QueueStateChanged,
    RemediesDecided,
    RemedyObserved,
    RunTimesLearned,
    Usage,
    UsageAsked,
    UsageKey,
    UsagePage,
    Victim,
    VictimsStayed,
    WaitsAttributed,
    encode,
)
from hbox_common.health.gatejob import GateJob, JobOutcome
from hbox_common.health.report import Check, Fact
from hbox_common.model import (
    Card,
    CardId,
    CardQuota,
    CardRequest,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    ClassQuota,
    ContainerHolds,
    DecisionId,
    DeviceIds,
    Epoch,
    FabricGap,
    GangPart,
    Generation,
    GroupPhase,
    GroupState,
    HeldImage,
    HeldMemory,
    HyperNode,
    Index,
    Job,
    JobId,
    JobWait,
    KindRest,
    KubeletRules,
    LeavingPod,
    Match,
    MatchOperator,
    MemoryBlock,
    MigInstance,
    MissingPods,
    Neighbour,
    NodeDevices,
    NodeName,
    NodeNuma,
    NodeNvml,
    NodeRest,
    NodeState,
    NodeTerm,
    NodeUsage,
    NodeZones,
    NumaZone,
    NvmlCard,
    PciBridge,
    PciDevice,
    PciKind,
    PlanId,
    PodBudget,
    PodConstraints,
    PodFact,
    PodGroupTask,
    PodPhase,
    PodRef,
    PodTerm,
    PodUid,
    PodZones,
    PreferredTerm,
    Queue,
    QueueName,
    QueuePhase,
    RanFor,
    Redirect,
    RefusalReason,
    ResourceQuota,
    SchedulerId,
    Selector,
    Spread,
    SubGangPolicy,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
    TopologyMode,
    TopologyWish,
    Verdict,
    WeightedTerm,
    ZoneAmounts,
    ZoneMemory,
    demand_of,
    terms_of,
)
from hbox_common.model.consolidation import MoveTerms
from hbox_common.model.devices import Ask, CardTraits, NearAdapters, PathKind, PodDevices, Profile
from hbox_common.model.healthorder import Exemption, HealthOrder, OrderVerb
from hbox_common.model.incident import GateStep, Incident, IncidentState, StepResult
from hbox_common.model.numa import NumaPolicy, NumaScope
from hbox_common.model.remedy import Decision, Verb
from hbox_common.model.remedy import Outcome as RemedyOutcome
from hbox_common.model.sickhardware import SickPolicy

GOLDEN = Path(__file__).parent / "golden"

_PARENT = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
_JOB, _POD, _NODE, _QUEUE = JobId("job-uid"), PodUid("pod-uid"), NodeName("gpu-1"), QueueName("research")
_CLAIM, _PLAN, _EPOCH, _INDEX = ClaimId("7-12"), PlanId("plan-1"), Epoch(7), Index(12)
_CARDS = CardId("gpu:GPU-0a1b"), CardId("gpu:GPU-3c4d")
_SLICES = (CardSlice(0, 100, 81920, card=_CARDS[0]), CardSlice(3, 30, 20480, "1g.10gb@0", 2, _CARDS[1]))
_LAYOUT = "0:100:81920;|3:30:20480:1g.10gb@0;3:0:0;"
_DEVICES = PodDevices(
    (Ask("NVIDIA", 1, container=0), Ask("NVIDIA", 1, 30, 20480, 25, "1g.10gb", 1, ("nvidia.com/gpu",))), 3, 1, (0,),
    (("hami.io/gpu-scheduler-policy", "spread"),), "binpack",
)  # fmt: skip
_REQUESTS = {"cpu": 4000, "memory": 16384, "pods": 1, "nvidia.com/gpu": 2}

_order = HealthOrder(
    "order-1", OrderVerb.EXEMPT, "ann@host", "spares ordered", NodeName("n1"), "pool=a", "xid-79", "79", "ann", 9.5, "incident-1", 1.5, "xid-79 of n1 is exempt"
)  # fmt: skip
_quota = CardQuota("team", "cards", {"nvidia.com/gpumem": 4000}, "scopes are not supported")
_wish = TopologyWish(TopologyMode.HARD, 2, "spine")
_job = Job(
    id=_JOB, namespace="team", name="train", queue=_QUEUE, priority=100, min_member=2, members=3, bound=1, created_at=1.5, revision=42,
    tasks=(
        PodGroupTask(
            name="worker", requests=_REQUESTS, pods=(PodRef(_POD, "train-0", "991", 3, ("data",)),),
            cards=CardRequest(2, 30, 20480, 25, ("H100",), _DEVICES, 1, 3), node_selector={"zone": "a"},
            affinity=(NodeTerm((Match("rack", MatchOperator.IN, ("r1", "r2")),), (Match("metadata.name", MatchOperator.NOT_IN, ("x",)),)),),
            preferred=(PreferredTerm(5, NodeTerm((Match("fast", MatchOperator.EXISTS),))),),
            tolerations=(Toleration("gpu", TolerationOperator.EQUAL, "yes", "NoSchedule"),),
            volumes=((NodeTerm((Match("zone", MatchOperator.IN, ("a",)),)),),), labels={"stage": "0"},
            annotations={"hbox.io/walltime": "2h"}, never_preempts=True,
            images=("docker.io/library/nginx:latest",), guaranteed=True,
            containers=({"cpu": 4000}, {"nvidia.com/gpu": 2}), init_containers=({"cpu": 8000},),
        ),
    ),
    gang=True, preemptable=False, priority_class="urgent",
    problem="queue é unknown", traceparent=_PARENT, topology=_wish, annotations={"hbox.io/min-run-time": "5m"},
    sub_gangs=(SubGangPolicy("stage", ("stage",), {"app": "x"}, 4, 2, _wish),), min_task_member={"worker": 2},
    standing=(PodGroupTask(name="master", requests=_REQUESTS, pods=(PodRef(PodUid("pod-2"), "train-1", "990", 1),)),),
    succession="uid-7",
)  # fmt: skip
_group = GroupState(
    id=_JOB, namespace="team", name="train", queue=_QUEUE, priority=100, min_member=2, created_at=1.5, min_resources={"nvidia.com/gpu": 2}, revision=41,
    phase=GroupPhase.INQUEUE, admitted=True, annotations={"sla-waiting-time": "1h"}, gone=True,
)  # fmt: skip
_fact = PodFact(
    uid=_POD, namespace="team", name="train-0", phase=PodPhase.RUNNING, node=_NODE, job=_JOB, queue=_QUEUE, priority=100,
    requests=_REQUESTS, cards=2, slices=_SLICES, claim=_CLAIM, ours=True, resource_version="991", min_member=2,
    preemptable=False, priority_class="urgent", created_at=1.5, on_sick="shrink",
)  # fmt: skip
_claim = Claim(
    id=_CLAIM, pod_uid=_POD, namespace="team", pod="train-0", job=_JOB, plan=_PLAN, queue=_QUEUE, priority=100, node=_NODE,
    requests=_REQUESTS, slices=_SLICES, state=ClaimState.POSTED, reason="why", min_member=2, preemptable=False, created_at=1.5, claimed_at=2.5,
    models={"nvidia.com/gpu.H100": 2}, pool="lab", protected_until=62.5,
)  # fmt: skip
_queue = Queue(
    _QUEUE, QueuePhase.CLOSED, {"nvidia.com/gpu": 8}, weight=3, priority=1, deserved={"nvidia.com/gpu": 4}, guarantee={"nvidia.com/gpu": 2},
    reclaimable=False, parent="root", budget_card_hours=100, stopped="spent", created_at=1.5,
    annotations={"volcano.sh/hierarchy": "root/research"}, node_groups={"requiredAffinity": ("g1", "g2")}, non_preemptible_classes=("urgent",),
    bound=True, priority_classes=("urgent", "normal"), pools=("lab",), pool_amounts={"deserved": {"nvidia.com/gpu@lab": 4}}, lent_pools=("lab",),
    lent_to=("research",),
    unknown_fields=("spec.wieght: unknown field, ignored; did you mean spec.weight?",),
)  # fmt: skip
_node = NodeState(
    name=_NODE, uid="node-uid", generation=Generation(5), ready=True, unschedulable=True, labels={"zone": "a"},
    taints=(Taint("gpu", "yes", TaintEffect.NO_SCHEDULE),), conditions={"Ready": "True"}, allocatable={"cpu": 64000},
    cards=(
        Card(
            0, "GPU-1", "H100", 81920, 10, 1, False, "NVIDIA",
            CardTraits("mig", 132, 1, True, "fixed-share", (Profile("1g.10gb", 9728, 14, ((0, 1), (1, 1))),), (0, 240), 3),
            NearAdapters(PathKind.PXB, ("mlx5_0",)),
        ),
    ),
    device_facts={"metax-tech.com/gpu.topology.losses": "{}"}, cordoned_by="hbox", cordon_reason="broken", gone=True, registered=("NVIDIA",),
    report_due=1_800_000_000.0, report_missing=True,
)  # fmt: skip
_wait = JobWait(_JOB, "CardsInUse", 1700000000.5, {"QueueShareSpent": 480.0, "CardsInUse": 3120.0})
_verdict = JobVerdict(
    job=_JOB,
    message="0/3 nodes are available",
    nodes=3,
    reasons={"NodeResourcesInsufficient": 3},
    sole={"NodeResourcesInsufficient": 2},
    code="CardsInUse",
    outcome="wait",
    owner="system",
)

_term = PodTerm(
    "zone", Selector((Match("app", MatchOperator.NOT_IN, ("x",)),)), ("team",), Selector((Match("env", MatchOperator.EXISTS),))
)
_neighbour = Neighbour(
    _POD, "team", {"app": "x"},
    PodConstraints(
        affinity=(_term,), anti_affinity=(_term,), preferred_affinity=(WeightedTerm(3, _term),), preferred_anti_affinity=(WeightedTerm(4, _term),),
        spread=(Spread(2, "zone", True, Selector(), 3, False, True),),
    ),
    {"hbox.io/walltime": "2h"}, 9.5, ("web",),
    GangPart("master", {"slice": "a"}, {"master": 1}, (SubGangPolicy("slices", ("slice",), {"app": "x"}, 2, 1),)),
    leaving=True,
)  # fmt: skip

_plan = Plan(
    id=_PLAN, job=_JOB, namespace="team", name="train", queue=_QUEUE, priority=100, min_member=2, bound=1, requests=(_REQUESTS,),
    placements=(Placement(pod_uid=_POD, pod="train-0", resource_version="991", node=_NODE, generation=Generation(5), slices=_SLICES, rank=3, layout=_LAYOUT,
                          volume_claims=("data",)),),
    victims=(Victim(claim=_CLAIM, pod_uid=_POD, to=_NODE, slices=_SLICES, gang=True, cards=CardRequest(1)),), preemptable=False, created_at=1.5,
    deadline_s=30.0, traceparent=_PARENT, succeeds=(PodUid("p9"),),
    moves=MoveTerms(16.0, 3600.0, 1, 1, 2, 720.0, 100),
    domains=(PlanDomain(fabric="compute", domain="leaf-p1u01", version=1_700_000_000_000, placements=(0,)),),
)  # fmt: skip
_nomination = HeldNomination(
    scheduler=SchedulerId("s1"), plan=_plan, models=({"nvidia.com/gpu.A100": 1},), moved=(_claim,), until=9.5
)

_ids = DeviceIds("nvidia.com/gpu", ("GPU-0", "GPU-3"), (0, 1))
_holds = ContainerHolds("team", "train-0", "main", (_ids,), "1-4,8", (HeldMemory("memory", 2**39, (0,)),), "pod-uid")
_memory = ZoneMemory(0, {"memory": 2**38}, {"memory": 2**37}, 3, (0, 1))
_devices = NodeDevices(
    _NODE,
    1_700_000_000.5,
    (_ids,),
    "1-95",
    (_holds,),
    1,
    "the socket is gone",
    True,
    (_memory,),
    ("memory_manager_state: it is no file",),
)

_rules = KubeletRules(
    "static", {"full-pcpus-only": "true"}, "Static", "restricted", "pod", {"prefer-closest-numa-nodes": "true"}, "0,48"
)
_nvml = NodeNvml(
    "550.54.15",
    (
        NvmlCard(
            0, "GPU-0", "0000:18:00.0", "NVIDIA H200", 144_384, 0, "on", True, (MigInstance("MIG-0", "1g.5gb"),), {"switch": 17}, (4,),
            "abab.7", "completed", "on", True, True, True, True, ("memory: unknown error",),
        ),
    ),
    "no answer within 30 s",
)  # fmt: skip
_numa = NodeNuma(
    _NODE, 1_700_000_000.5, (NumaZone(0, "0-47", 2**20, (10, 21), 0), NumaZone(1, "48-95", 2**20, (21, 10), 1)), 2, 2,
    (PciDevice("0000:18:00.0", PciKind.CARD, 0, "", "0x10de"), PciDevice("", PciKind.HCA, 1, "mlx5_0", "", "pci0000:15/0000:1a:00.0", True)),
    _rules, "static", "Static", 40, True, ("sockets: none",), True, _nvml, (PciBridge("0000:1a:00.0", Redirect.ON),), True, "48",
)  # fmt: skip

_given = PodZones("team", "train-0", "pod-uid", ({"cpu": 16}, {}), (MemoryBlock("memory", 2**37, (0, 1)),))
_zones = NodeZones(
    _NODE, 1_700_000_000.5, NumaPolicy.RESTRICTED, NumaScope.POD,
    (ZoneAmounts(0, {"cpu": 48}, {"cpu": 46}, {"cpu": 30}), ZoneAmounts(1, {"cpu": 48}, {"cpu": 48}, {"cpu": 48}, 3, (0, 1))),
    ("cpu",), 2, True, True, ((10, 21), (21, 10)), (_given,), True, "node-agent", "none", True, 1, True, (0, 1),
)  # fmt: skip

EXAMPLES: tuple[Event, ...] = (
    NodeStateChanged(node=_node),
    NodeDevicesChanged(devices=_devices),
    NodeNumaChanged(numa=_numa),
    NodeZonesChanged(zones=_zones),
    HealthVerdict(
        verdict=Verdict(
            _NODE, Generation(5), False, (0, 3), "XID 79", 2.5, _CARDS,
            rails_off=("mlx5_0",), multi_gpu=False, multi_node=False, incidents=("inc-1",), boot_id="b1",
        ),
        node_gone=True,
    ),
    IncidentChanged(
        incident=Incident(
            "inc-1", _NODE, _CARDS[0], "xid", "79", IncidentState.CONFIRMED, "fatal-node", "hardware", "node", "reboot", 1.0, 2.0, "b1",
            "reset", "nvidia-catalogue", "1", ("Xid 79",), 3.0, ("breaker",), "fell off the bus", checks=("NVLinks: 18 of 18",),
            steps=(GateStep("diagnostics", StepResult.FAILED, 1, 2.5, "memory (GPU 0): 8 bytes differ"), GateStep("job", StepResult.WAITING)),
        ),
    ),
    HealthEvictionAsked(
        node=_NODE, incident="inc-1", boot_id="b1", cards=_CARDS, jobs=("lab/train",), reason="XID 79", policy=SickPolicy.CHECKPOINT, ended=True
    ),
    DeviceErrorSeen(
        node=_NODE, incident="inc-1", pod="lab/p0", job=_JOB, card=_CARDS[0], code="94", message="contained memory error", at=1_700_000_001.25
    ),
    RemediesDecided(
        node=_NODE, boot_id="b1",
        decisions=(Decision("inc-1", "gpu:GPU-6a1f0c9e", Verb.RESET, 1, 1_700_000_300.5), Decision("inc-2", "node", Verb.ACS_OFF, 2, 9.5)),
    ),
    RemedyObserved(
        node=_NODE, boot_id="b1", decision=Decision("inc-1", "gpu:GPU-6a1f0c9e", Verb.RESET, 1, 1_700_000_300.5), outcome=RemedyOutcome.REFUSED,
        holders=("4711 dcgm-exporter",), message="processes hold the card", failures=("memory (GPU 0)",), at=1_700_000_001.25,
    ),
    GateJobsDecided(node=_NODE, jobs=(GateJob("inc-1", 2, "gpu:GPU-6a1f0c9e", ("GPU-6a1f0c9e",), '{"kind":"Job"}', 900),)),
    GateJobObserved(node=_NODE, job="inc-1.job.2", outcome=JobOutcome.FAILED, message="DeadlineExceeded", at=1_700_000_001.25),
    HealthReport(
        node=_NODE, boot_id="7d0c1f6e-4b60-4f0a-9a51-0f6d3b0f7a10", agent="a1b2c3d4", log_seq=4812, report_only=("ports",), cards={"GPU-1": 0, "GPU-2": -1},
        seq=2,
        facts=(
            Fact(
                1, 1_700_000_000.25, Check.KERNEL_LOG, "gpu:GPU-6a1f0c9e-3a5d-4a51-8c3e-1f2b3c4d5e6f", "154",
                {"code": 154, "pci": "0000:18:00", "from": 0, "to": 1, "fatal": False, "places": ((0, 1, 2),), "registers": ("0x0", "0x1")},
                "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            ),
            Fact(2, 1_700_000_000.5, Check.NVML, "node", "cards", {"count": 8, "ecc": {"sram": 0, "dram": None}, "load": 0.5}),
        ),
    ),
    NodeRests(
        rest=NodeRest(
            _NODE, 3, 1_700_000_008.5, 1_700_000_000.25, "team/train-0", "Pod was rejected: Allocate failed",
            (KindRest("cpu", 2, 1_700_000_004.5, 1_700_000_000.5, "team/train-1", "OutOfcpu: cpu", {"cpu": 2000}, {"cpu": 4000, "pods": 1}),),
        )
    ),
    RunTimesLearned(learned=(RanFor(QueueName("research"), "ml", (60.0, 3600.5), (1.25,)), RanFor(QueueName(""), "", (60.0,)))),
    NodesMeasured(usages=(NodeUsage(_NODE, 12.5, 80.0, 1_700_000_000.25),)),
    NodeImagesChanged(images=(HeldImage(("docker.io/library/nginx:latest",), 100 << 20, (_NODE,)),)),
    FabricChanged(fabric="hypernodes", hypernodes=(HyperNode("leaf-0", 1, "leaf", (_NODE,), ("leaf-1",), {"rack": "r1"}),), version=7),
    FabricSeen(fabric="compute", version=7, seen_at=1_700_000_000.25, source="ufm", held="it lost 40 of 128 machines at once"),
    FabricGapsFound(
        fabric="compute",
        version=7,
        gaps=(FabricGap("link-down", "a-1 has no link on rail 3 (mlx5_4)", "a-1", "leaf-0", "leaf-0-r3", (3,)),),
        degraded={_NODE: (3, 5)},
    ),
    QueueStateChanged(
        queue=_queue, used={"nvidia.com/gpu": 4}, total={"nvidia.com/gpu": 6}, faults=("no parent",), epoch=_EPOCH, index=_INDEX, gone=True,
        recent_cards=12.5, half_life_h=168.0,
    ),
    NamespaceQuotasChanged(quotas=(ResourceQuota("team", "all", {"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 2}),)),
    CardQuotasChanged(
        quotas=(_quota,),
        classes=(
            ClassQuota("d", "urgent", (Match("PriorityClass", MatchOperator.IN, ("urgent",)),), {"pods": 4}, {"pods": 1}),
        ),
        index=Index(7),
    ),
    WaitsAttributed(waits=(_wait,)),
    PodGroupsCounted(queues={_QUEUE: GroupCounts(pending=1, inqueue=2, running=3, unknown=4, completed=5)}),
    PolicyFollowed(actions=("allocate", "reclaim"), plugins=("gang", "capacity"), by_conf=True, usage_weight=0.5),
    JobsPending(
        jobs=(_job,), neighbours=(_neighbour,), priority_classes={"urgent": 1000}, namespaces={"d": {"team": "a"}}, groups=(_group,), anew=True,
        revision=44, missing=(MissingPods("uid-7", 2),),
    ),
    JobsAdmitted(scheduler=SchedulerId("s1"), jobs=(_JOB,)),
    JobsWithdrawn(jobs=(_JOB,), revisions=(43,)),
    JobsWaiting(verdicts=(_verdict,), scores=(PodScore(pod_uid=_POD, node=_NODE, note="score 12, runner-up n2 with 7"),)),
    PodsObserved(pods=(_fact,)),
    PlansProposed(
        scheduler=SchedulerId("s1"), epoch=_EPOCH, seen=_INDEX,
        plans=(_plan,), given_up=(GivenUp(plan=_PLAN, moved=(_POD,)),),
    ),
    PlansAnswered(
        epoch=_EPOCH, index=_INDEX,
        answers=(PlanAnswer(plan=_PLAN, job=_JOB, committed=False, reason=RefusalReason.CARD_TAKEN, message="taken", refresh=_INDEX),),
    ),
    BudgetsChanged(budgets=(PodBudget("team", "web", 1, healthy=3, desired=2),)),
    VictimsStayed(epoch=_EPOCH, pods=(_POD,)),
    ClaimsChanged(
        epoch=_EPOCH, previous=Index(11), index=_INDEX, claims=(_claim,), nominations=(_nomination,), ended=(PlanId("p2"),),
        leaving=(Leaving(pod_uid=_POD, grace_s=30),),
    ),
    BindDecided(
        epoch=_EPOCH, index=_INDEX,
        binds=(
            Bind(
                id=DecisionId("d1"), claim=_CLAIM, generation=1, plan=_PLAN, job=_JOB, queue=_QUEUE, namespace="team", pod="train-0", pod_uid=_POD,
                resource_version="991", node=_NODE, slices=_SLICES, deadline=3.5, traceparent=_PARENT, rank=3, layout=_LAYOUT, volume_claims=("data",),
            ),
        ),
    ),
    EvictDecided(
        epoch=_EPOCH,
        evictions=(
            Evict(
                id=DecisionId("d2"), kind=EvictKind.REVOKE, claim=_CLAIM, generation=2, job=_JOB, namespace="team", pod="train-0", pod_uid=_POD,
                reason="gang deadline", beneficiary=_PLAN, traceparent=_PARENT, notice_s=60,
            ),
        ),
    ),
    NodeDecided(id=DecisionId("d3"), node=_NODE, action=NodeAction.TAINT, owner="health-monitor", reason="XID 79", taint="degraded"),
    OutcomesObserved(
        epoch=_EPOCH,
        outcomes=(
            Outcome(
                decision=DecisionId("d1"), claim=_CLAIM, generation=1, job=_JOB, pod_uid=_POD, outcome=BindOutcome.BOUND, node=_NODE,
                message="ok", at=4.5, traceparent=_PARENT,
            ),
            Outcome(
                decision=DecisionId("d2"), claim=_CLAIM, generation=2, job=_JOB, pod_uid=_POD, outcome=BindOutcome.UNKNOWN,
                message="web needs 3 healthy pods", blocked=True, reason="preempted", at=4.6, traceparent=_PARENT,
            ),
        ),
    ),
    NodeObserved(decision=DecisionId("d3"), node=_NODE, action=NodeAction.CORDON, outcome=NodeOutcome.DONE, message="ok"),
    JobPhaseChanged(
        job=_JOB, namespace="team", name="train", queue=_QUEUE, phase=JobPhase.RUNNING, members=3, bound=3, message="all run", at=5.5
    ),
    HealthChanged(node=_NODE, healthy=False, bad_cards=(0, 3), reason="XID 79", at=6.5, cards=_CARDS),
    QueueRefused(queue=_QUEUE, job=_JOB, reason="QueueCapabilityExceeded", message="8 of 8 cards", at=7.5),
    EvictionReceipt(
        job=_JOB, namespace="ml", queue=_QUEUE, rule=EvictionRule.RECLAIM,
        pods=(EvictedPod(pod="train-0", pod_uid=PodUid("pod-uid"), node=NodeName("n1"), to=NodeName("n2")),),
        plan=PlanId("plan-2"), for_job=JobId("job-2"), for_namespace="cv", for_name="resnet", for_queue=QueueName("vision"), pods_kept=7, cards_kept=7,
        message="reclaimed for cv/resnet", returns="when cards are idle", at=7.7, notice_s=90,
    ),
    BudgetUsed(queue=_QUEUE, percent=80, budget_card_hours=100, spent=288_000_000, month=3600, message="80 of 100 card-hours", at=7.6),
    DeadLetter(
        consumer="binder", on="hbox.v1.decision.bind.0", stream="HBOX_DECISIONS", sequence=9, deliveries=5, message_id="m1",
        type="io.hbox.v1.decision.bind", reason="unreadable", at=8.5, size=3, body=b"\xc1\x00\xff",
    ),
    ClaimsAsked(asker="scheduler-core", head=True),
    ClaimsPage(epoch=_EPOCH, index=_INDEX, frozen=True, claims=(_claim,), queues=(_queue,), used={"research": {"cpu": 4000}},
        quotas=(_quota,), nominations=(_nomination,), shares={"train": {"nvidia.com/gpu": 4}},
        held="pods were last seen 31 s ago", paused="200 pods were told to leave", released="2026-11-22T18:00:00Z",
    ),
    HealthOrderAsked(asker="cli", order=_order),
    HealthOrderTaken(order=_order),
    HealthOrdersAsked(asker="cli", since=5.5, node=_NODE),
    HealthOrdersPage(orders=(_order,)),
    HealthPolicyAsked(asker="cli"),
    HealthPolicyPage(
        version="1", values=(PolicyValue(name="mute_s", value="3600", source="policies.yaml"),), tables={"codes.yaml": "shipped"}, fault="invalid YAML",
        exemptions=(Exemption("ann", "spares ordered", 9.5, "n1", "pool=a", "xid-79", "79", "order-1"),),
    ),
    HealthOrdered(order=_order, at=7.5),
    HealthRulesChanged(version="1+ab12cd34", fault="codes.yaml: xid 79: no class", at=8.5),
    UsageAsked(asker="cli", by=(UsageKey.DEPARTMENT, UsageKey.MODEL), since=3600, until=7200),
    UsagePage(usage=(Usage(department=_QUEUE, queue=_QUEUE, user="team", model="A100", hour=3600, own=1500, borrowed=500, idle=250),),
        budgets=(Budget(queue=_QUEUE, card_hours=100, spent=2000, month=0),),
    ),
    EpochAsked(asker="binder-1"),
    EpochSaid(epoch=Epoch(7)),
    JobsAsked(
        asker="quota-ledger", jobs=False, pods=True, verdicts=True, ended=True, terms=True, demand=True, gatekeeper=SchedulerId("s1"), placed=True,
        held=True, shard="lab", waits=True, complete=True, computed=True,
    ),
    JobsPage(
        complete=True,
        shard="lab",
        groups=(_group,),
        missing=(MissingPods("uid-7", 2),),
        neighbours=(_neighbour,),
        jobs=(_job,),
        placed=(_job,),
        leaving=(LeavingPod("ml", "train-0", NodeName("n1"), 8, 1795266000.0, ("example.com/keep",)),),
        pods=(_fact,),
        verdicts=(_verdict,),
        priority_classes={"urgent": 1000},
        namespaces={"d": {"team": "a"}},
        resource_version="12",
        age_s=1.5,
        why="the watch is silent",
        terms=(terms_of(_job),),
        demand=(demand_of(_job),),
        waits=(_wait,),
        computed=False,
    ),
    PodsAsked(asker="quota-ledger", pods=(PodAsked(uid=_fact.uid, namespace="research", name="train-0"),)),
    PodsRead(pods=(PodRead(uid=_fact.uid, standing=PodStanding.HOLDS, node=_fact.node, message="as it should be"),)),
    *PUBLIC_EXAMPLES,
)  # fmt: skip


def golden_of(event: type[Event]) -> Path:
    """Where the bytes of this type's example are."""
    if issubclass(event, CloudEvent):
        return GOLDEN / f"{event.kind}.v{event.version}.json"
    return GOLDEN / f"{event.ce_type().removeprefix('io.hbox.v1.')}.msgpack"


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for old in GOLDEN.iterdir():
        old.unlink()
    for event in EXAMPLES:
        golden_of(type(event)).write_bytes(encode(event))
    print(f"{len(EXAMPLES)} of {len(REGISTRY)} types written to {GOLDEN}")


if __name__ == "__main__":
    main()
