"""Plugins declare the hooks that they have; what is not a hook is refused."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import pytest

from hbox_common.errors import Bug
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.arrays import Bools
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo
from hbox_scheduler.core.framework import hooks
from hbox_scheduler.core.framework.conf import PluginConf, parse_conf
from hbox_scheduler.core.framework.hooks import (
    FLAGS,
    HOOKS,
    Allocatable,
    GangOrder,
    Hook,
    Plugin,
    PodMask,
    PodScore,
    Preemptable,
    QueueOrder,
    Reclaimable,
    ShapeMask,
    ShapeScore,
    check,
    hooks_of,
)
from hbox_scheduler.core.framework.session import Session
from hbox_scheduler.core.policy.registry import PLUGINS, check_plugins


class _Named:
    name = "mine"

    def __init__(self, conf: PluginConf) -> None:
        self.conf = conf


class Misspelt(_Named, GangOrder):
    def gang_key(self, gang: Gang) -> int:
        return gang.priority

    def queue_keys(self, queue: QueueInfo) -> int:
        return queue.priority


class Undeclared(_Named, GangOrder):
    def gang_key(self, gang: Gang) -> int:
        return gang.priority

    def queue_key(self, queue: QueueInfo) -> int:
        return queue.priority


class Lacking(_Named, Allocatable):
    pass


class OtherParameters(_Named, QueueOrder):
    def queue_key(self, name: str) -> int:  # type: ignore[override]
        return len(name)


class MisspeltEvent(_Named, PodMask):
    sees_plain_pods = True

    def settled(self, member: Member) -> bool:
        return member.movable

    def failures(self, member: Member, books: Columns) -> Iterator[tuple[str, Bools]]:
        yield member.name, books.alive

    @staticmethod
    def place(member: Member, row: int) -> None:
        member.row = row


class Inheriting(Misspelt):
    """Nothing of its own."""


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        (Misspelt, "plugin mine has a public method queue_keys, which is no hook (did you mean queue_key?)"),
        (Inheriting, "plugin mine has a public method queue_keys, which is no hook (did you mean queue_key?)"),
        (Undeclared, "plugin mine has queue_key and does not declare QueueOrder"),
        (Lacking, "plugin mine declares room, withheld_reason and does not have it"),
        (OtherParameters, "plugin mine: queue_key has the parameters"),
        (MisspeltEvent, "plugin mine has a public method place, which is no hook (did you mean placed?)"),
    ],
)
def test_a_plugin_that_is_not_what_it_declares_is_refused(plugin: Hook, said: str) -> None:
    with pytest.raises(Bug) as caught:
        check(plugin)
    assert caught.value.message.startswith(said)


@pytest.mark.parametrize("name", PLUGINS)
def test_every_plugin_is_what_it_declares(name: str) -> None:
    plugin = PLUGINS[name]
    assert plugin.name == name
    assert hooks_of(plugin) or name == "numa-aware", "it has no hook at all"


def test_the_registry_is_looked_through_as_a_whole() -> None:
    check_plugins()
    broken: Mapping[str, Hook] = {"mine": Misspelt}
    with pytest.raises(Bug):
        check_plugins(broken)
    with pytest.raises(Bug, match="is registered as yours"):
        check_plugins({"yours": PLUGINS["gang"]})


def test_every_hook_stands_once_and_has_methods_of_its_own() -> None:
    assert len(set(HOOKS)) == len(HOOKS)
    defined = {value for value in vars(hooks).values() if isinstance(value, type) and issubclass(value, Plugin)}
    assert set(HOOKS) == defined - {Plugin, hooks.PerPod, hooks.ByShape}
    methods = [name for hook in HOOKS for name in vars(hook) if not name.startswith("_")]
    assert len(set(methods)) == len(methods)


def test_masks_and_scores_say_by_type_whether_equal_pods_are_equal_to_them() -> None:
    by_shape = {name for name, plugin in PLUGINS.items() if issubclass(plugin, ShapeMask | ShapeScore)}
    by_pod = {name for name, plugin in PLUGINS.items() if issubclass(plugin, PodMask | PodScore)}
    assert by_shape - by_pod == {
        "binpack", "deviceshare", "fgd", "idle-cards", "least-waste", "node-preferences", "numa-aware", "rdma-aware", "reservation",
        "resource-strategy-fit", "usage",
    }  # fmt: skip
    assert by_pod & by_shape == {"card-models", "predicates", "nodeorder"}


def test_a_flag_switches_off_every_hook_of_its_moment() -> None:
    conf = parse_conf("tiers: [{plugins: [{name: nodeorder, enableNodeOrder: false}]}]", plugins=list(PLUGINS))
    assert conf.tiers[0][0].off == set(FLAGS["enableNodeOrder"])


class _Guard(_Named, Preemptable):
    """Its victim hook calls `_protected`, by which each subclass reads the clock."""

    guards = True

    def open(self, session: Session) -> None:
        self._session = session

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        return [member for member in candidates if member is not preemptor and not self._protected(member)]

    def _protected(self, member: Member) -> bool:
        return member.movable


class Direct(_Guard):
    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        return [member for member in candidates if member is not preemptor and member.created_at < self._session.now]


class ByHelper(_Guard):
    def _protected(self, member: Member) -> bool:
        return self._age(member) < 60.0

    def _age(self, member: Member) -> float:
        return self._session.now - member.created_at


class ByAttribute(_Guard):
    def open(self, session: Session) -> None:
        self._since = session.now - 60.0

    def _protected(self, member: Member) -> bool:
        return member.created_at > self._since


class ByContainer(_Guard):
    def open(self, session: Session) -> None:
        self._young: dict[str, bool] = {}
        self._fill(session)

    def _fill(self, session: Session) -> None:
        for gang in session.gangs:
            self._young[gang.name] = session.now - gang.created_at < 60.0

    def _protected(self, member: Member) -> bool:
        return self._young.get(member.gang.name, False)


class ByProperty(_Guard):
    @property
    def _now(self) -> float:
        return self._session.now

    @cached_property
    def _since(self) -> float:
        return self._now - 60.0

    def _protected(self, member: Member) -> bool:
        return member.created_at > self._since


class ByFunction(_Guard):
    def _protected(self, member: Member) -> bool:
        return _age_of(self._session, member) < 60.0


class ByObject(_Guard):
    def open(self, session: Session) -> None:
        self._clock = _Clock(session)

    def _protected(self, member: Member) -> bool:
        return self._clock.age(member) < 60.0


class ByLambda(_Guard):
    def _protected(self, member: Member) -> bool:
        return any(map(lambda one: one.created_at > self._session.now - 60.0, member.gang.members))  # noqa: C417


class Reclaims(_Named, Reclaimable):
    def open(self, session: Session) -> None:
        self._session = session

    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        return [member for member in candidates if member is not preemptor and self._is_young(member, self._session)]

    @staticmethod
    def _is_young(member: Member, session: Session) -> bool:
        return session.now - member.created_at < 60.0


def _age_of(session: Session, member: Member) -> float:
    return _now_of(session) - member.created_at


def _now_of(session: Session) -> float:
    return session.now


class _Clock:
    def __init__(self, session: Session) -> None:
        self._session = session

    def age(self, member: Member) -> float:
        return self._session.now - member.created_at


@pytest.mark.parametrize(
    ("plugin", "hook", "way"),
    [
        (Direct, "preemptable (Preemptable)", ""),
        (ByHelper, "preemptable (Preemptable)", " through _protected"),
        (ByAttribute, "preemptable (Preemptable)", " through _protected"),
        (ByContainer, "preemptable (Preemptable)", " through _protected"),
        (ByProperty, "preemptable (Preemptable)", " through _protected"),
        (ByFunction, "preemptable (Preemptable)", " through _protected"),
        (ByObject, "preemptable (Preemptable)", " through _protected"),
        (ByLambda, "preemptable (Preemptable)", " through _protected"),
        (Reclaims, "reclaimable (Reclaimable)", " through _is_young"),
    ],
)
def test_victim_hook_that_reads_the_clock_is_refused_without_its_declaration(plugin: Hook, hook: str, way: str) -> None:
    with pytest.raises(Bug) as caught:
        check(plugin)
    assert caught.value.message == (
        f"plugin mine: {hook} reads session.now{way}, so its answers change with time alone; declare time_dependent = True"
    )
    check(type("Declared", (plugin,), {"time_dependent": True}))


class OrdersByAge(_Guard, GangOrder):
    """Its order reads the clock; its victim hook does not."""

    def gang_key(self, gang: Gang) -> float:
        return self._session.now - gang.created_at


def test_clock_may_be_read_in_other_hooks_without_a_declaration() -> None:
    check(OrdersByAge)
    check(_Guard)


def test_plugins_declare_what_the_engine_must_know() -> None:
    declared = {
        what: {name for name, plugin in PLUGINS.items() if getattr(plugin, what)}
        for what in (
            "time_dependent", "demand_dependent", "guards", "guards_owners", "guards_offline", "guards_gangs", "ranks_priorities",
            "reads_usage", "heeds_domains",
        )
    }  # fmt: skip
    assert declared == {
        "time_dependent": {"minruntime", "tdm", "cdp", "sla", "extender", "usage", "rescheduling"},
        "demand_dependent": {"proportion"},
        "guards": {"gang", "conformance", "pdb", "cdp", "tdm", "levels", "minruntime"},
        "guards_owners": {"pdb", "conformance"},
        "guards_offline": {"pdb", "conformance", "gang"},
        "guards_gangs": {"gang"},
        "ranks_priorities": {"priority"},
        "reads_usage": {"usage"},
        "heeds_domains": {"network-topology-aware"},
    }
    made = {name: PLUGINS[name](PluginConf(name, hierarchy=True)) for name in ("drf", "nodeorder", "rescheduling")}
    assert made["drf"].demand_dependent
    assert not PLUGINS["drf"](PluginConf("drf")).demand_dependent, "without a tree its shares are of what gangs have"
    assert made["nodeorder"].reads_images
    assert not PLUGINS["nodeorder"](PluginConf("nodeorder", {"imagelocality.weight": 0})).reads_images
    assert vars(made["rescheduling"])["shuffle_every_s"] == 300.0
