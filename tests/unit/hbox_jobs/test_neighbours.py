"""Who is told of: nobody while nobody asks, then those whose labels are asked about, with these labels only."""

from dataclasses import replace

from hbox_common.model import Match, MatchOperator, PodTerm, PodUid, Selector, Wishes
from hbox_jobs.core.neighbours import Neighbours
from hbox_jobs.core.spec import Shape
from hbox_jobs.core.views import PodView


def pod(name: str, wishes: Wishes | None = None, **labels: str) -> PodView:
    view = PodView(
        uid=PodUid(name), namespace="ml", name=name, resource_version="1", created_at=0.0, shape=Shape("k", {}), labels=labels
    )
    return view if wishes is None else replace(view, wishes=wishes)


def apart(key: str, operator: MatchOperator = MatchOperator.IN) -> Wishes:
    return Wishes(apart=(PodTerm("zone", Selector((Match(key, operator, ("x",)),))),))


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
