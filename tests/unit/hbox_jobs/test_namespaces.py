"""Labels of namespaces are told when somebody asks about them, whole, and again when they change."""

from dataclasses import replace

from hbox_common.model import Match, MatchOperator, PodConstraints, PodTerm, PodUid, Selector
from hbox_jobs.core.neighbours import Neighbours
from hbox_jobs.core.spec import Shape
from hbox_jobs.core.views import PodView


def pod(name: str, *keys: str) -> PodView:
    """That wants to be apart from pods in namespaces with these labels."""
    matches = tuple(Match(key, MatchOperator.EXISTS, ()) for key in keys)
    term = PodTerm("zone", Selector(()), namespace_selector=Selector(matches) if keys else None)
    view = PodView(uid=PodUid(name), namespace="a", name=name, resource_version="1", created_at=0.0, shape=Shape("k", {}))
    return replace(view, constraints=PodConstraints(anti_affinity=(term,)))


def world() -> Neighbours:
    neighbours = Neighbours()
    neighbours.namespaces.put("a", {"team": "x", "cost": "1"})
    neighbours.namespaces.put("b", {"team": "y"})
    neighbours.namespaces.put("c", {"other": "z"})
    return neighbours


def test_while_nobody_asks_nothing_is_told() -> None:
    neighbours = world()
    neighbours.put(pod("p"), None)
    assert not neighbours.namespaces.due
    assert neighbours.namespaces.take() is None


def test_what_is_asked_about_is_told_once_and_no_more_of_it() -> None:
    neighbours = world()
    neighbours.put(pod("p", "team"), None)
    assert neighbours.namespaces.take() == {"a": {"team": "x"}, "b": {"team": "y"}}
    assert neighbours.namespaces.take() is None
    neighbours.put(pod("q", "team"), None)
    assert neighbours.namespaces.take() is None, "known already"
    neighbours.put(pod("r", "cost"), None)
    assert neighbours.namespaces.take() == {"a": {"team": "x", "cost": "1"}, "b": {"team": "y"}}


def test_it_is_told_again_when_it_changes_and_not_when_something_else_does() -> None:
    neighbours = world()
    neighbours.put(pod("p", "team"), None)
    neighbours.namespaces.take()
    neighbours.namespaces.put("a", {"team": "x", "cost": "2"})
    assert neighbours.namespaces.take() is None
    neighbours.namespaces.put("c", {"team": "z"})
    neighbours.namespaces.gone("b")
    assert neighbours.namespaces.take() == {"a": {"team": "x"}, "c": {"team": "z"}}


def test_a_new_process_tells_that_nothing_is_left() -> None:
    """The one before may have told of labels that are gone."""
    neighbours = Neighbours()
    neighbours.namespaces.put("a", {})
    neighbours.put(pod("p", "team"), None)
    assert neighbours.namespaces.take() == {}


def test_with_the_last_who_asks_it_is_over() -> None:
    neighbours = world()
    asking = pod("p", "team")
    neighbours.put(asking, None)
    neighbours.put(replace(asking, constraints=pod("p", "cost").constraints), asking)
    assert neighbours.namespaces.take() == {"a": {"cost": "1"}}
    neighbours.gone(replace(asking, constraints=pod("p", "cost").constraints))
    assert neighbours.namespaces.all() == {}
