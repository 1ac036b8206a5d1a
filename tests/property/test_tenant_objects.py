"""From what a real API server accepts to every consumer: nothing raises, whatever is encoded decodes equal, and what the ledger books is read back.

Objects are made within what Kubernetes validates (names and labels by their rules, quantities, int32) and without bounds where it has none: annotations,
messages, names of volume claims, and all that is typed by a custom resource's schema alone.
"""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from hbox_common import kube
from hbox_common.bus.parts import parts
from hbox_common.events import CONTENT_TYPE, Event, JobsPending, PodsObserved, decode, token_of
from hbox_common.model import DEFAULT_QUEUE, VENDORS, Epoch, Index, PodFact, Queue, SchedulerId
from hbox_common.model.annotations import POLICY_ANNOTATIONS
from hbox_common.store import Store
from hbox_jobs.adapters.objects import PodReader, group_view
from hbox_jobs.core.jobs import Jobs
from hbox_ledger.adapters import load, tables
from hbox_ledger.ledger import Ledger, Numbered
from hbox_ledger.relay import Relay
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.simulate import node

from ..searching import examples

GROUP, QUEUE, ROLE = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/queue-name", "volcano.sh/task-spec"

#: As Go decodes JSON: any character but halves of surrogate pairs; often short, at times as long as annotations may be together.
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.builds(
        lambda part, times: part * times,
        st.sampled_from(["x", "\0", "\U0001f600", "a,", "\x1b[2J", "9"]),
        st.integers(0, 60_000),
    ),
)
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?(\.[a-z0-9]{1,40}){0,5}", fullmatch=True).filter(
    lambda name: len(name) <= 253
)
keys = st.from_regex(r"example\.com/[A-Za-z0-9][-A-Za-z0-9_.]{0,30}[A-Za-z0-9]", fullmatch=True)
values = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", fullmatch=True)
quantities = st.sampled_from(
    ["0", "1", "100m", "7Ei", "9223372036854775807", "1e3", "1e18", "0.1", "999999999999999999Ei", "5k"]
)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)

annotations = st.dictionaries(
    st.sampled_from([*POLICY_ANNOTATIONS, GROUP, QUEUE, ROLE, "hbox.io/cards", "hbox.io/claim", *VENDORS.models_annotations]),
    st.one_of(
        texts, st.sampled_from(["g", "g", "q", "0:100:1", "0:1:18446744073709551615", "1:1:99999999999999999999", "-1:5:5"])
    ),
    max_size=6,
)
amounts = st.one_of(
    st.dictionaries(
        st.one_of(
            st.sampled_from(["cpu", "memory", *(name for vendor in VENDORS for name in (vendor.cards, *vendor.parts))]), keys
        ),
        quantities,
        max_size=6,
    ),
    st.integers(60, 3000).map(lambda count: {f"example.com/r{n}": "1" for n in range(count)}),
)
expressions = st.builds(
    lambda key, operator, some: {"key": key, "operator": operator, "values": some if operator in ("In", "NotIn") else []},
    keys,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.one_of(
        st.lists(values, min_size=1, max_size=4), st.integers(1, 6000).map(lambda count: [f"host-{n}" for n in range(count)])
    ),
)
affinities = st.builds(
    lambda node_terms, terms: {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": node_terms}]}
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [one]}} for one in terms
            ]
        },
    },
    st.lists(expressions, min_size=1, max_size=3),
    st.lists(expressions, max_size=3),
)


@st.composite
def pods(draw: Any) -> dict[str, Any]:
    number = draw(st.integers(0, 10**9))
    claims = draw(st.lists(texts.filter(bool), max_size=2))
    spec: dict[str, Any] = {
        "schedulerName": draw(st.sampled_from(["hbox", "hbox", "other"])),
        "containers": [{"name": "c", "resources": {"limits": draw(amounts)}}],
        "priority": draw(int32),
        "nodeSelector": draw(st.dictionaries(keys, values, max_size=3)),
        "volumes": [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": name}} for n, name in enumerate(claims)],
        "tolerations": [{"key": key, "operator": "Exists"} for key in draw(st.lists(keys, max_size=3))],
    }
    if draw(st.booleans()):
        spec["affinity"] = draw(affinities)
    if draw(st.booleans()):
        spec["nodeName"] = draw(st.sampled_from(["n0", "n1", "unknown"]))
    return {
        "metadata": {
            "name": draw(names),
            "namespace": "ml",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-22T10:00:00Z",
            "labels": draw(st.dictionaries(keys, values, max_size=4)),
            "annotations": draw(annotations),
        },
        "spec": spec,
        "status": {"phase": draw(st.sampled_from(["Pending", "Running", "Unknown", "Succeeded"]))},
    }


@st.composite
def groups(draw: Any) -> dict[str, Any]:
    topology = st.fixed_dictionaries(
        {"mode": st.sampled_from(["hard", "soft"])}, optional={"highestTierName": texts, "highestTierAllowed": int64}
    )
    spec: dict[str, Any] = {
        "minMember": draw(int64),
        "queue": draw(st.one_of(st.just("default"), texts)),
        "priorityClassName": draw(st.one_of(st.just(""), texts)),
        "minTaskMember": draw(st.dictionaries(texts, int64, max_size=3)),
        "minResources": draw(st.dictionaries(st.one_of(st.just("cpu"), texts), quantities, max_size=3)),
        "networkTopology": draw(topology),
        "subGroupPolicy": draw(
            st.lists(
                st.fixed_dictionaries({"name": texts, "subGroupSize": int64, "matchLabelKeys": st.lists(texts, max_size=2)}),
                max_size=2,
            )
        ),
    }
    return {"metadata": {"name": "g", "namespace": "ml", "uid": "g-uid", "annotations": draw(annotations)}, "spec": spec}


def carried(event: Event) -> list[Any]:
    """As a reader has it. Nothing may be refused: what is beyond bounds was kept out at the edge."""
    refused: list[Any] = []
    said = list(parts(event, 8 * 2**20, lambda one, why: refused.append((one, why))))
    assert refused == []
    read = [decode(body, {"ce-type": part.ce_type(), "content-type": CONTENT_TYPE}) for part, body in said]
    assert read == [part for part, _ in said]
    return read


def seen_by_job_controller(objects: list[dict[str, Any]], group: dict[str, Any]) -> tuple[list[JobsPending], list[PodFact]]:
    jobs, reader = Jobs(), PodReader()
    jobs.gated(True, 0.0)
    jobs.group(group_view(msgspec.json.decode(json.dumps(group), type=kube.PodGroup)), 0.0)
    for one in objects:
        jobs.pod(reader.view(msgspec.json.decode(json.dumps(one), type=kube.Pod)), 0.0)
    batch = jobs.take(10.0, 1_790_000_000.0)
    for job in batch.pending:
        assert len(job.problem.encode()) <= 1024
        assert len(token_of(job.queue)) + len(token_of(job.id)) < 2000
    event = JobsPending(jobs=batch.pending, neighbours=batch.neighbours, groups=batch.groups)
    observed = PodsObserved(pods=batch.facts)
    return carried(event), [fact for part in carried(observed) for fact in part.pods]


class _Bus:
    async def publish_raw(self, type_: type[Event], body: bytes, *keys: str, message_id: str) -> None:
        raise AssertionError("nobody publishes here")


async def booked(facts: list[PodFact]) -> None:
    """The ledger opens with them, takes them in once more, and finds the same in its database."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'ledger.db'}"
        async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
            ledger = await Ledger.begin(store, Relay(store, _Bus()), clock=lambda: 1_790_000_000.0)
            for name in ("n0", "n1"):
                ledger.node(node(name, cards=8))
            await ledger.reconcile(facts, as_of=ledger.index)
            await ledger.observed([Numbered("m1", PodsObserved(pods=tuple(facts)))])
            found = await store.read(load.load)
            assert {id: h.claim for id, h in found.state.live.items()} == {id: h.claim for id, h in ledger.state.live.items()}
            holding = {fact.uid for fact in facts if fact.phase.holds}
            assert {h.claim.pod_uid for h in found.state.live.values()} == holding


@examples(30, dear=True, suppress_health_check=list(HealthCheck))
@given(st.lists(pods(), min_size=1, max_size=5, unique_by=lambda one: one["metadata"]["uid"]), groups())
def test_nothing_that_a_tenant_may_write_raises_anywhere(objects: list[dict[str, Any]], group: dict[str, Any]) -> None:
    pending, facts = seen_by_job_controller(objects, group)
    scheduler = Scheduler(id=SchedulerId("s1"), policy=policy_of(PolicyName.BINPACK), limits=Limits(placements=64))
    scheduler.on_queue(Queue(DEFAULT_QUEUE))
    scheduler.on_claims_snapshot(epoch=Epoch(1), index=Index(0), frozen=False, claims=(), now=0.0)
    for name in ("n0", "n1"):
        scheduler.on_node(node(name, cards=8))
    for event in pending:
        scheduler.on_neighbours(event.neighbours)
        scheduler.on_groups(event.groups)
        scheduler.on_jobs(event.jobs)
    for now in (1.0, 2.0):
        scheduler.cycle(now)
    assert len(scheduler.columns.resources) <= 300
    asyncio.run(booked(facts))
