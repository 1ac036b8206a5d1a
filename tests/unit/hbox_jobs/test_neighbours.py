"""Who is told of: nobody while nobody asks, then those whose labels are asked about, with these labels only."""

from dataclasses import replace

from hbox_common.model import Match, MatchOperator, NodeName, PodConstraints, PodTerm, PodUid, Selector
from hbox_common.model.annotations import MIN_RUN_TIME, WALLTIME
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.neighbours import Neighbours
from hbox_jobs.core.spec import Shape
from hbox_jobs.core.views import PodView

from . import job_world


def pod(name: str, constraints: PodConstraints | None = None, **labels: str) -> PodView:
    view = PodView(
        uid=PodUid(name), namespace="ml", name=name, resource_version="1", created_at=0.0, shape=Shape("k", {}), labels=labels
    )
    return view if constraints is None else replace(view, constraints=constraints)


def apart(key: str, operator: MatchOperator = MatchOperator.IN) -> PodConstraints:
    return PodConstraints(anti_affinity=(PodTerm("zone", Selector((Match(key, operator, ("x",)),))),))


def told(neighbours: Neighbours) -> dict[str, dict[str, str]]:
    return {str(one.uid): one.labels for one in neighbours.take()}


def test_nobody_is_told_of_while_nobody_wants_anything() -> None:
    neighbours = Neighbours()
    neighbours.put(pod("a", app="x", tier="web"), None)
    assert not neighbours.due
    assert not list(neighbours.all())


def test_the_first_wish_makes_those_it_is_about_known_by_the_labels_it_names() -> None:
    neighbours = Neighbours()
    neighbours.put(pod("a", app="x", tier="web"), None)
    neighbours.put(pod("b", tier="db"), None)
    neighbours.put(pod("c", apart("app"), tier="web"), None)
    assert told(neighbours) == {"a": {"app": "x"}, "c": {}}
    assert told(neighbours) == {}, "once"
    neighbours.put(pod("d", app="y"), None)
    assert told(neighbours) == {"d": {"app": "y"}}


def test_a_wish_that_pods_without_the_label_can_meet_is_about_everybody() -> None:
    neighbours = Neighbours()
    neighbours.put(pod("a", tier="web"), None)
    neighbours.put(pod("b", apart("app", MatchOperator.NOT_IN)), None)
    assert told(neighbours) == {"a": {"tier": "web"}, "b": {}}


def test_with_the_last_wish_it_is_over() -> None:
    neighbours = Neighbours()
    wisher = pod("w", apart("app"))
    neighbours.put(wisher, None)
    told(neighbours)
    neighbours.gone(wisher)
    neighbours.put(pod("a", app="x"), None)
    assert not neighbours.due


def test_changed_labels_are_told_again_and_unchanged_pods_are_not() -> None:
    neighbours = Neighbours()
    neighbours.put(pod("w", apart("app")), None)
    a = pod("a", app="x")
    neighbours.put(a, None)
    told(neighbours)
    neighbours.put(replace(a, resource_version="2"), a)
    assert not neighbours.due
    neighbours.put(replace(a, labels={"app": "z"}), a)
    assert told(neighbours) == {"a": {"app": "z"}}


def test_a_pod_that_lost_the_label_that_somebody_asks_about_does_not_count_by_it_any_more() -> None:
    neighbours = Neighbours()
    wisher, a = pod("w", apart("app")), pod("a", app="x")
    neighbours.put(wisher, None)
    neighbours.put(a, None)
    told(neighbours)
    released = replace(a, labels={"tier": "web"})
    neighbours.put(released, a)
    assert told(neighbours) == {"a": {}}
    neighbours.put(replace(released, labels={}), released)
    assert told(neighbours) == {}, "once"


def test_a_label_that_is_lost_while_nobody_asks_is_not_there_for_whoever_asks_next() -> None:
    neighbours = Neighbours()
    wisher, a = pod("w", apart("app")), pod("a", app="x")
    neighbours.put(wisher, None)
    neighbours.put(a, None)
    neighbours.put(bystander := pod("b", tier="web"), None)
    told(neighbours)
    neighbours.gone(wisher)
    neighbours.put(replace(a, labels={}), a)
    neighbours.put(replace(bystander, labels={}), bystander)
    assert told(neighbours) == {"a": {}}
    neighbours.put(pod("other", apart("app")), None)
    assert told(neighbours) == {"other": {}}


def test_a_podgroup_that_is_made_again_takes_back_what_the_one_before_it_said_of_its_pods() -> None:
    jobs = Jobs()
    jobs.pod(job_world.pod("a", group="g", role="worker", node="n1"), 0.0)
    jobs.group(job_world.group("g", uid="one", annotations={WALLTIME: "1h"}, min_task_member={"worker": 1}), 0.0)
    assert [(one.annotations, one.part is not None) for one in jobs.take(9.0, 9.0).neighbours] == [({WALLTIME: "1h"}, True)]
    jobs.group_gone("ml/g", "one", 1.0)
    jobs.group(job_world.group("g", uid="two"), 1.0)
    assert [(one.annotations, one.part) for one in jobs.take(9.0, 9.0).neighbours] == [({}, None)]


def test_a_pod_that_leaves_its_podgroup_leaves_the_notes_of_that_behind() -> None:
    jobs = Jobs()
    there = job_world.pod("a", group="g", node="n1")
    jobs.pod(there, 0.0)
    jobs.group(job_world.group("g", annotations={WALLTIME: "1h"}), 0.0)
    assert notes(jobs) == {"a": ({WALLTIME: "1h"}, None)}
    jobs.pod(replace(there, group="other", resource_version="2"), 1.0)
    assert notes(jobs) == {"a": ({}, None)}


def test_pods_with_notes_are_told_of_with_those_of_their_group_and_when_they_start() -> None:
    jobs = Jobs()
    plain, noted = job_world.pod("plain", group="g"), job_world.pod("noted", group="g", annotations={WALLTIME: "2h"})
    for one in (plain, noted):
        jobs.pod(one, 0.0)
    assert notes(jobs) == {"noted": ({WALLTIME: "2h"}, None)}
    jobs.group(job_world.group("g", annotations={WALLTIME: "1h", MIN_RUN_TIME: "5m"}), 0.0)
    assert notes(jobs) == {
        "plain": ({WALLTIME: "1h", MIN_RUN_TIME: "5m"}, None),
        "noted": ({WALLTIME: "2h", MIN_RUN_TIME: "5m"}, None),
    }
    assert notes(jobs) == {}, "once"
    jobs.pod(replace(noted, node=NodeName("n1"), resource_version="2", started_at=50.0), 1.0)
    assert notes(jobs) == {"noted": ({WALLTIME: "2h", MIN_RUN_TIME: "5m"}, 50.0)}
    jobs.group(job_world.group("g"), 2.0)
    assert notes(jobs) == {"noted": ({WALLTIME: "2h"}, 50.0), "plain": ({}, None)}


def notes(jobs: Jobs) -> dict[str, tuple[dict[str, str], float | None]]:
    taken = jobs.take(9.0, 9.0).neighbours
    return {str(one.uid).removeprefix("uid-"): (one.annotations, one.started_at) for one in taken}


def test_that_one_is_being_deleted_is_told_where_somebody_asks_about_it() -> None:
    neighbours = Neighbours()
    there = pod("a", app="x")
    neighbours.put(there, None)
    neighbours.put(replace(there, deleting=True), there)
    assert not neighbours.due
    neighbours.put(pod("b", apart("app")), None)
    assert {one.uid: one.leaving for one in neighbours.take()} == {"a": True, "b": False}
    neighbours.put(replace(pod("b", apart("app")), deleting=True), pod("b", apart("app")))
    assert {one.uid: one.leaving for one in neighbours.take()} == {"b": True}
