"""ResourceQuotas by PriorityClass: which there are, whom they are for, and what the ledger lets a namespace have of a class."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.kube import ResourceQuota
from hbox_common.model import ClassQuota, JobId, Match, MatchOperator, PodPhase, PodUid
from hbox_ledger.adapters.quotas import class_quota
from hbox_ledger.core import lifecycle
from hbox_ledger.core.ledgerstate import LedgerState

from .conftest import World

IN, NOT_IN, EXISTS, NONE = MatchOperator.IN, MatchOperator.NOT_IN, MatchOperator.EXISTS, MatchOperator.DOES_NOT_EXIST


def match(operator: MatchOperator, *values: str) -> Match:
    return Match("PriorityClass", operator, values)


def written(hard: dict[str, str], *terms: tuple[str, str, list[str]], scopes: tuple[str, ...] = ()) -> ClassQuota | None:
    expressions = [{"scopeName": scope, "operator": operator, "values": values} for scope, operator, values in terms]
    spec: dict[str, Any] = {"hard": hard, "scopes": list(scopes), "scopeSelector": {"matchExpressions": expressions}}
    return class_quota(msgspec.convert({"metadata": {"name": "q", "namespace": "ml", "uid": "u"}, "spec": spec}, ResourceQuota))


URGENT = ("PriorityClass", "In", ["urgent"])


def test_of_a_quota_by_class_pods_and_requests_count() -> None:
    hard = {"pods": "4", "count/pods": "3", "requests.cpu": "2", "limits.cpu": "9", "count/jobs.batch": "1"}
    assert written(hard, URGENT) == ClassQuota("ml", "q", (match(IN, "urgent"),), {"cpu": 2000, "pods": 3})
    assert written({"pods": "0"}, scopes=("PriorityClass",)) == ClassQuota("ml", "q", (), {"pods": 0})


@pytest.mark.parametrize("scope", ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating"])
def test_quotas_for_some_pods_of_a_job_are_the_api_servers(scope: str) -> None:
    assert written({"pods": "0"}, URGENT, scopes=(scope,)) is None
    assert written({"pods": "0"}, scopes=(scope,)) is None
    assert written({"pods": "0"}) is None
    assert written({"count/jobs.batch": "0"}, URGENT) is None


@pytest.mark.parametrize(
    ("classes", "concerned"),
    [
        ((match(IN, "urgent", "high"),), {"urgent", "high"}),
        ((match(NOT_IN, "urgent"),), {"high", "low"}),
        ((match(EXISTS),), {"urgent", "high", "low"}),
        ((match(NONE),), set()),
        ((), {"urgent", "high", "low"}),
        ((match(EXISTS), match(IN, "low")), {"low"}),
    ],
)
def test_a_quota_is_for_jobs_of_the_classes_that_it_selects(classes: tuple[Match, ...], concerned: set[str]) -> None:
    quota = ClassQuota("ml", "q", classes, {"pods": 0})
    assert {name for name in ("", "urgent", "high", "low") if quota.concerns(name)} == concerned


def limited(world: World, pods: int) -> None:
    world.state.limit_classes([ClassQuota("ml", "urgent", (match(IN, "urgent"),), {"pods": pods})])


def plan(world: World, name: str, card: int, *, urgent: bool = True) -> Plan:
    if urgent:
        world.classes[JobId(name)] = "urgent"
    return world.plan(name, (f"{name}-0", "a", [world.card(card)]))


def said(world: World, refused: Plan) -> str:
    [answer] = world.propose(refused)
    assert (answer.committed, answer.reason) == (False, "ResourceQuotaNotFit")
    return answer.message


def test_of_a_class_a_namespace_has_no_more_pods_than_its_quota_says(world: World) -> None:
    limited(world, 1)
    world.commits(plan(world, "one", 0))
    assert said(world, plan(world, "two", 1)) == (
        "ResourceQuota urgent of namespace ml allows 1 pods of PriorityClass urgent, 1 are in use and 1 more are asked for"
    )
    world.commits(plan(world, "plain", 1, urgent=False))


def test_what_ends_is_in_use_no_more_and_what_was_there_before_the_quota_is(world: World) -> None:
    world.classes[JobId("one")] = "urgent"
    world.commits(world.plan("one", ("one-0", "a", [world.card(0)]), ("one-1", "a", [world.card(1)])))
    for pod in ("one-0", "one-1"):
        world.outcome(pod, BindOutcome.BOUND, at="a")
    limited(world, 2)
    world.classes[JobId("two")] = "urgent"
    other = world.plan("two", ("two-0", "b", [world.card(0)]))
    assert "2 are in use" in said(world, other)
    world.see(world.fact("one-0", "a", PodPhase.GONE))
    world.commits(other.model_copy(update={"id": "again"}))


def test_nobody_is_evicted_for_a_class_that_the_namespace_may_not_have(world: World) -> None:
    limited(world, 0)
    world.commits(plan(world, "low", 0, urgent=False))
    world.outcome("low-0", BindOutcome.BOUND, at="a")
    victim = Victim(claim=world.claim("low-0").id, pod_uid=PodUid("low-0"))
    taking = plan(world, "want", 0).model_copy(update={"victims": (victim,), "priority": 9})
    assert "allows 0 pods" in said(world, taking)
    assert not world.last.evictions


def test_a_ledger_that_starts_learns_the_classes_from_the_pods_that_run(world: World) -> None:
    """Claims have none; and books that are read anew keep what was known."""
    limited(world, 1)
    step = world.turn()
    lifecycle.observed(
        world.state, step, replace(world.fact("one-0", "a", slices=[world.card(0)], job="one"), priority_class="urgent")
    )
    assert [quota.used for quota in world.state.class_quotas.usage()] == [{"pods": 1}]
    fresh = LedgerState(world.state.epoch)
    fresh.load(world.state.live.values(), ())
    fresh.class_quotas.keep(world.state.class_quotas, (record.claim for record in fresh.live.values()))
    assert [quota.used for quota in fresh.class_quotas.usage()] == [{"pods": 1}]


def test_a_pod_that_is_accounted_for_anew_counts_in_its_class(world: World) -> None:
    """The only one of its job, resized in place."""
    limited(world, 1)
    world.commits(plan(world, "one", 0))
    world.outcome("one-0", BindOutcome.BOUND, at="a")
    claim = world.claim("one-0")
    grown = replace(
        world.fact("one-0", "a", claim=claim.id, job="one"), requests={**claim.requests, "cpu": 2000}, priority_class="urgent"
    )
    world.see(grown)
    assert world.claim("one-0").requests["cpu"] == 2000
    assert [quota.used for quota in world.state.class_quotas.usage()] == [{"pods": 1}]
