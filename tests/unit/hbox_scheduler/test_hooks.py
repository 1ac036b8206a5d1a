"""Plugins declare the hooks that they have; what is not a hook is refused."""

from collections.abc import Iterator, Mapping

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
    QueueOrder,
    ShapeMask,
    ShapeScore,
    check,
    hooks_of,
)
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
