import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound, Unavailable
from hbox_common.kube import LEASES, NODES, PODGROUPS, PODS, QUEUES, Pod, Queue, epoch_s, micro_time
from hbox_common.kube.election import Create, Seen, Take, Wait, decide, is_ours, observe
from hbox_common.kube.lines import MAX_LINE_BYTES, LineSplitter
from hbox_common.kube.status import Busy, Expired, NamespaceTerminating, NotAllowed, NotServed, error_of
from hbox_common.pacing import WISH_S

# --- lines


@given(lines=st.lists(st.binary(min_size=1).filter(lambda b: b"\n" not in b)), cuts=st.lists(st.integers(1, 40)))
def test_lines_come_out_whole_wherever_the_chunks_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    rest = b"".join(line + b"\n" for line in lines)
    splitter, out = LineSplitter(), []
    for cut in cuts:
        if not rest:
            break
        out += splitter.feed(rest[:cut])
        rest = rest[cut:]
    if rest:
        out += splitter.feed(rest)
    assert out == lines


def test_an_unfinished_line_is_kept_back() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == [b"one"]
    assert splitter.feed(b"o") == []
    assert splitter.feed(b"\n\n") == [b"two"]


def test_a_line_without_an_end_is_refused() -> None:
    splitter = LineSplitter()
    splitter.feed(b"x" * MAX_LINE_BYTES)
    with pytest.raises(Unavailable, match="longer than"):
        splitter.feed(b"x")


# --- where things are


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("ml"), "/api/v1/namespaces/ml/pods"),
        (PODS.path("ml", "train-0", "binding"), "/api/v1/namespaces/ml/pods/train-0/binding"),
        (NODES.path(name="n1", subresource="status"), "/api/v1/nodes/n1/status"),
        (QUEUES.path("ignored", "gold"), "/apis/scheduling.volcano.sh/v1beta1/queues/gold"),
        (PODGROUPS.path("ml", "a/../b"), "/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups/a%2F..%2Fb"),
        (LEASES.path("hbox"), "/apis/coordination.k8s.io/v1/namespaces/hbox/leases"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


def test_importing_kube_does_not_import_the_official_client() -> None:
    code = "import sys, hbox_common.kube; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# --- objects


def test_a_pod_is_read_with_all_that_scheduling_needs() -> None:
    raw = b"""{"kind":"Pod","metadata":{"name":"p","namespace":"ml","uid":"u","resourceVersion":"7","managedFields":[{"x":1}],
      "ownerReferences":[{"kind":"Job","name":"j","uid":"ju","controller":true}],"creationTimestamp":"2026-11-21T13:00:00Z"},
      "spec":{"schedulerName":"hbox","priority":100,"schedulingGates":[{"name":"wait"}],"overhead":{"cpu":"250m"},
        "containers":[{"name":"c","image":"x","resources":{"limits":{"nvidia.com/gpu":"1"}},"ports":[{"containerPort":80,"hostIP":"::"}]}],
        "initContainers":[{"name":"s","restartPolicy":"Always"}],
        "tolerations":[{"operator":"Exists"}],
        "affinity":{"nodeAffinity":{
          "requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
            {"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]},
          "preferredDuringSchedulingIgnoredDuringExecution":[{"weight":5,"preference":{"matchExpressions":[
            {"key":"ssd","operator":"Exists"}]}}]}}},
      "status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}"""
    pod = msgspec.json.decode(raw, type=Pod)
    assert pod.metadata.owner_references[0].controller
    assert pod.spec.containers[0].resources.limits == {"nvidia.com/gpu": "1"}
    assert pod.spec.containers[0].ports[0].host_ip == "::"
    assert pod.spec.init_containers[0].restart_policy == "Always"
    assert pod.spec.scheduling_gates[0].name == "wait"
    assert pod.spec.tolerations[0].operator == "Exists"
    assert pod.spec.affinity is not None
    affinity = pod.spec.affinity.node_affinity
    assert affinity is not None
    assert affinity.required is not None
    assert affinity.required.node_selector_terms[0].match_expressions[0].values == ("a",)
    assert affinity.preferred[0].weight == 5
    assert pod.status.conditions[0].reason == "Unschedulable"


def test_quantities_of_custom_resources_may_be_numbers() -> None:
    raw = b'{"metadata":{"name":"q","uid":"u"},"spec":{"weight":2,"capability":{"cpu":4,"memory":"2Gi"},"guarantee":{"resource":{"cpu":1}}}}'
    queue = msgspec.json.decode(raw, type=Queue)
    assert queue.spec.capability == {"cpu": 4, "memory": "2Gi"}
    assert queue.spec.guarantee.resource == {"cpu": 1}
    assert queue.spec.reclaimable


def test_times_are_read_in_any_zone_and_written_in_utc() -> None:
    assert epoch_s("2026-11-21T13:00:00Z") == epoch_s("2026-11-21T14:00:00.000000+01:00") == 1795266000.0
    assert micro_time(1795266000.25) == "2026-11-21T13:00:00.250000Z"
    with pytest.raises(InvalidRequest, match="yesterday"):
        epoch_s("yesterday")


# --- errors


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, InvalidRequest),
        (401, Busy),
        (403, InvalidRequest),
        (404, NotFound),
        (409, Conflict),
        (410, Expired),
        (422, InvalidRequest),
        (429, Busy),
        (500, Busy),
        (504, Busy),
    ],
)
def test_each_status_has_its_error_with_the_servers_message(code: int, kind: type[HBoxError]) -> None:
    body = msgspec.json.encode({"kind": "Status", "message": "that will not do", "reason": "Because", "code": code})
    error = error_of(code, body, what="POST /api/v1/pods")
    assert type(error) is kind
    assert "that will not do" in str(error)
    assert "POST /api/v1/pods" in str(error)


ENDING = {"causes": [{"reason": "NamespaceTerminating", "message": "namespace t is being terminated"}]}


@pytest.mark.parametrize(
    ("message", "details", "kind", "hint"),
    [
        ('pods "p" is forbidden: User "binder" cannot create resource "pods"', {}, NotAllowed, "RBAC"),
        (
            'pods "p" is forbidden: unable to create new content in namespace t',
            ENDING,
            NamespaceTerminating,
            "namespace is gone",
        ),
        ('admission webhook "w" denied the request: no', {}, InvalidRequest, ""),
        ('pods "p" is forbidden: exceeded quota: cards', {}, InvalidRequest, ""),
    ],
)
def test_only_a_missing_right_suggests_a_grant(
    message: str, details: dict[str, object], kind: type[HBoxError], hint: str
) -> None:
    status = {"kind": "Status", "reason": "Forbidden", "code": 403, "message": message, "details": details}
    error = error_of(403, msgspec.json.encode(status), what="POST /api/v1/pods")
    assert type(error) is kind
    assert hint in error.hint
    assert ("RBAC" in error.hint) is (kind is NotAllowed)


@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 413, 422])
def test_what_no_status_comes_with_was_not_said_by_the_api_server(code: int) -> None:
    for body in (b"<html>blocked</html>", b"", b'{"code": 404, "reason": "NotFound"}'):
        error = busy(code, body, what="GET /api/v1/pods")
        assert "not from an API server" in error.hint
    assert busy(code, b"<html>", what="POST /api/v1/pods").outcome_unknown


def test_a_path_that_is_not_served_is_not_found() -> None:
    assert type(error_of(404, b"404 page not found\n", what="GET /apis/example.com/v1/things")) is NotServed


@pytest.mark.parametrize("path", ["/api/v1/nodes/n1", "/apis/coordination.k8s.io/v1/namespaces/hbox/leases/ledger"])
def test_what_every_api_server_serves_is_not_found_by_its_own_word_alone(path: str) -> None:
    assert "not from an API server" in busy(404, b"404 page not found\n", what=f"GET {path}").hint


def busy(code: int, body: bytes, *, what: str, retry_after: str | None = None) -> Busy:
    error = error_of(code, body, what=what, retry_after=retry_after)
    assert isinstance(error, Busy)
    return error


def test_only_writes_that_may_have_happened_are_of_unknown_outcome() -> None:
    assert busy(504, b"{}", what="POST /x").outcome_unknown
    assert not busy(504, b"{}", what="GET /x").outcome_unknown
    assert not busy(429, b"{}", what="POST /x").outcome_unknown


def test_the_servers_wish_to_wait_is_read_from_header_or_status() -> None:
    assert busy(429, b"{}", what="GET /x", retry_after="3").retry_after_s == 3.0
    assert busy(429, b'{"details":{"retryAfterSeconds":10}}', what="GET /x").retry_after_s == 10.0
    assert busy(503, b"<html>", what="GET /x", retry_after="Wed, 21 Oct 2026 07:28:00 GMT").retry_after_s is None


@pytest.mark.parametrize(
    ("body", "header"),
    [(b"{}", "1000000000"), (b"{}", "9" * 400), (b'{"details":{"retryAfterSeconds":1000000000}}', None)],
)
def test_a_wish_to_wait_for_years_is_one_for_a_minute(body: bytes, header: str | None) -> None:
    assert busy(429, body, what="PATCH /x", retry_after=header).retry_after_s == WISH_S


def test_a_proxys_page_becomes_the_message() -> None:
    assert "Bad Gateway" in str(error_of(502, b"<h1>Bad Gateway</h1>", what="GET /x"))


# --- election


def seen(rv: str = "1", holder: Any = "other", duration_s: Any = 15.0, transitions: Any = 4, at: Any = 100.0) -> Any:
    return Seen(rv, holder, duration_s, transitions, at)


def test_a_missing_lease_is_created_and_a_released_one_taken_at_once() -> None:
    assert decide(None, now=0.0, retry_s=2.0) == Create(1)
    assert decide(seen(holder=""), now=100.0, retry_s=2.0) == Take("1", 5)


def test_a_holder_is_waited_for_until_its_lease_has_stood_still_for_its_whole_duration() -> None:
    assert decide(seen(), now=101.0, retry_s=2.0) == Wait(2.0)
    assert decide(seen(), now=114.5, retry_s=2.0) == Wait(0.5)
    assert decide(seen(), now=115.0, retry_s=2.0) == Take("1", 5)


def test_a_renewal_starts_the_wait_again_and_an_unchanged_lease_does_not() -> None:
    renewed = observe(seen(), seen(rv="2", at=114.0))
    assert decide(renewed, now=115.0, retry_s=2.0) == Wait(2.0)
    unchanged = observe(seen(), seen(at=114.0))
    assert decide(unchanged, now=115.0, retry_s=2.0) == Take("1", 5)


def test_a_grant_is_told_from_another_of_the_same_identity_by_its_token() -> None:
    assert is_ours(seen(holder="me", transitions=4), identity="me", token=4)
    assert not is_ours(seen(holder="me", transitions=5), identity="me", token=4)
    assert not is_ours(seen(holder="other", transitions=4), identity="me", token=4)
    assert not is_ours(None, identity="me", token=4)
