"""Whatever a pod asks for: the admission endpoint changes what job-controller reads of it in nothing but what is left out, once or ten times, alone or beside
HAMi's webhook, before it or after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_admission.core import Outcome, Rules, mutate, parse_review, review
from hbox_common.errors import InvalidRequest
from hbox_common.kube import objects as kube
from hbox_common.model import VENDORS, CardRequest
from hbox_common.model.devices.ascend import CHIPS, MODE, SOFT
from hbox_common.model.devices.kunlun import SIZES_MIB
from hbox_common.model.devices.metax import APP_CLASS, CLASSES, POLICIES, QOS
from hbox_common.model.devices.mthreads import MEMORY_SIZES
from hbox_jobs.adapters.objects import PodReader
from hbox_jobs.core.spec import Shape

from .. import hamis_webhook
from ..json_patch import patched
from ..searching import examples

RULES = Rules()
AMOUNTS = st.one_of(
    st.integers(0, 4), st.sampled_from([*MEMORY_SIZES, *SIZES_MIB, 100, 101, 3000, 16_384, 24_576, 32_769, 70_000, "1k", "0.5", "-1", "many", "1e30"])
)  # fmt: skip
#: Of some vendor, and some beside it.
NAMES = st.one_of(
    *(
        st.lists(
            st.sampled_from([name for name in (vendor.cards, *vendor.parts, vendor.priority) if name]), max_size=4, unique=True
        )
        for vendor in VENDORS
    )
)
WISHES = st.fixed_dictionaries(
    {},
    optional={
        QOS: st.sampled_from([*POLICIES, "", "other"]),
        APP_CLASS: st.sampled_from(CLASSES),
        MODE: st.just(SOFT),
        "hami.io/gpu-scheduler-policy": st.sampled_from(["binpack", "spread"]),
        "nvidia.com/use-gputype": st.just("A100"),
    },
)  # fmt: skip


@st.composite
def containers(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(NAMES) + draw(st.lists(st.sampled_from(["cpu", "nvidia.com/gpu", "example.com/other"]), max_size=1))
    amounts = {name: str(draw(AMOUNTS)) if name != "cpu" else "2" for name in names}
    if draw(st.booleans()):
        return {"resources": {"limits": amounts}}
    return {"resources": {"limits": amounts, "requests": dict(amounts)}}


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    made = draw(st.lists(containers(), min_size=1, max_size=3))
    init = draw(st.lists(containers(), max_size=1))
    for i, one in enumerate([*init, *made]):
        one["name"] = f"c{i}"
    metadata = {"name": "p", "namespace": "ml", "uid": "u", "annotations": dict(draw(WISHES))}
    spec: dict[str, Any] = {"schedulerName": "hbox", "containers": made}
    return {"metadata": metadata, "spec": spec | ({"initContainers": init} if init else {})}


def read(pod: Mapping[str, Any], *, completes: bool = False) -> Shape:
    """What job-controller makes of it."""
    return PodReader(completes=completes).view(msgspec.json.decode(json.dumps(pod), type=kube.Pod)).shape


def told(shape: Shape) -> tuple[CardRequest | None, Mapping[str, int], str]:
    return shape.cards, shape.requests, shape.problem


@examples(600)
@given(pods())
def test_job_controller_reads_the_same_but_for_what_is_left_out(pod: dict[str, Any]) -> None:
    before = deepcopy(pod)
    found = mutate(pod, RULES)
    assert pod == before
    assert patched(pod, found.patch) == found.pod
    assert mutate(found.pod, RULES).patch == ()
    after = read(found.pod)
    assert told(after) == told(read(pod, completes=True))
    if not (plain := read(pod)).problem:
        assert after.cards == plain.cards
        assert after.requests == plain.requests


# --- beside HAMi's webhook


def asking(name: str, **parts: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, int]]:
    """Of one maker; `name` counts its cards."""
    return st.fixed_dictionaries({}, optional={name: st.integers(1, 3), **parts})


NVIDIAS = {"gpumem": st.integers(1, 90_000), "gpumem-percentage": st.integers(1, 101), "gpucores": st.integers(0, 100)}
#: HAMi takes memory of these makers' alone for nothing.
COUNTED = [
    *((f"huawei.com/{chip.word}", f"huawei.com/{chip.word}-memory", 70_000) for chip in CHIPS),
    ("kunlunxin.com/vxpu", "kunlunxin.com/vxpu-memory", 98_304),
]
HAMIS = st.one_of(
    asking("nvidia.com/gpu", **{f"nvidia.com/{name}": amounts for name, amounts in NVIDIAS.items()}),
    st.just({"nvidia.com/gpu": 1, "nvidia.com/priority": 1}),
    *(
        st.fixed_dictionaries({name: st.integers(1, 3)}, optional={memory: st.integers(1, most)})
        for name, memory, most in COUNTED
    ),
    st.fixed_dictionaries({"metax-tech.com/sgpu": st.just(1), "metax-tech.com/vcore": st.integers(1, 99)}),
)


@st.composite
def hami_pods(draw: st.DrawFn) -> dict[str, Any]:
    made = [
        {"name": f"c{i}", "resources": {"limits": {k: str(v) for k, v in amounts.items()}}}
        for i, amounts in enumerate(draw(st.lists(HAMIS, min_size=1, max_size=2)))
    ]
    # Of a soft share HAMi writes the memory of a whole card where the pod names none; here that stays all of whatever card it is.
    notes = dict(
        draw(st.fixed_dictionaries({}, optional={QOS: st.sampled_from(POLICIES), APP_CLASS: st.sampled_from(CLASSES)}))
    )
    return {
        "metadata": {"name": "p", "uid": "u", "annotations": notes},
        "spec": {"schedulerName": "default-scheduler", "containers": made},
    }


@examples(400)
@given(hami_pods())
def test_pods_say_the_same_whichever_webhook_comes_first(pod: dict[str, Any]) -> None:
    """Whose the pod is says who comes first: each lets the other's pods by. Read as HBox's, they ask for the same of devices."""
    ours = mutate(pod, RULES)
    try:
        theirs = hamis_webhook.mutated(pod)
    except InvalidRequest:
        assert read(ours.pod).problem, "HAMi refuses what HBox refuses"
        return
    if theirs["spec"]["schedulerName"] != hamis_webhook.SCHEDULER:
        assert ours.outcome is Outcome.UNCHANGED, "neither finds devices"
        return
    assert mutate(theirs, RULES).outcome is Outcome.FOREIGN
    assert hamis_webhook.mutated(ours.pod) == {**ours.pod, "spec": ours.pod["spec"]}, "it lets HBox's pods by"
    taking = Rules(("hbox", "hami-scheduler"))
    both = mutate(theirs, taking)
    assert both.pod["spec"]["schedulerName"] == "hami-scheduler"
    assert not both.patch, "HAMi left nothing out"
    one, other = read(ours.pod), read({**both.pod, "spec": {**both.pod["spec"], "schedulerName": "hbox"}})
    assert (one.cards, one.problem) == (other.cards, other.problem)


# --- what is no pod, and no review

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["spec", "metadata", "annotations", "containers", "initContainers", "resources", "limits", "requests", "env",
                                       "name", "nvidia.com/gpu", "schedulerName", "securityContext", "privileged", "sizes.hbox.io/a"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@examples(300)
@given(st.dictionaries(st.sampled_from(["spec", "metadata"]), JSON))
def test_whatever_is_no_pod_is_told_so(pod: dict[str, Any]) -> None:
    try:
        found = mutate(pod, RULES)
    except InvalidRequest as e:
        said = str(e)
    else:
        said = "this is no pod"
        assert patched(pod, found.patch) == found.pod
    assert said.startswith("this is no pod")


@examples(300)
@given(st.one_of(st.binary(max_size=60), JSON.map(lambda value: json.dumps(value).encode())))
def test_whatever_is_no_review_is_told_so(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"this is no AdmissionReview|this is '.*' of"):
        review(parse_review(body), RULES)
