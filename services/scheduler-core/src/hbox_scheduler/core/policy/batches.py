"""Whether equal pods are equal to a policy, so that they can be placed in batches over columns: what is in the way, plugin by plugin."""

from collections.abc import Iterator

from ..framework.conf import Conf
from ..framework.hooks import BestNode, CandidateScore, GangOrder, Overused, Plugin, PodMask, PodScore, QueueOrder, ShapeMask
from ..plugins.gang import GangPlugin
from ..plugins.priority import PriorityPlugin
from .registry import plugins_of

#: Orders of jobs that a batch keeps: by priority, then by age, those that have not what they need to start before what others have beyond it.
_KEPT_ORDERS = (PriorityPlugin.name, GangPlugin.name)


def in_the_way(conf: Conf) -> list[str]:
    """Why plain pods (single ones, without constraints on others) cannot be placed in batches with the same outcome; empty where they can.

    Raises InvalidRequest for arguments that are wrong.
    """
    found: list[str] = []
    for tier, confs in zip(plugins_of(conf), conf.tiers, strict=True):
        for plugin, plugin_conf in zip(tier, confs, strict=True):
            found += (f"{plugin.name} {what}" for hook, what in _said(plugin) if hook not in plugin_conf.off)
    if not any(plugin.name == PriorityPlugin.name for plugin in conf.plugins):
        found.append(f"{PriorityPlugin.name} is missing: batches go by priority, then by age")
    return found


def _said(plugin: Plugin) -> Iterator[tuple[type[Plugin], str]]:
    if isinstance(plugin, QueueOrder):
        yield QueueOrder, "serves queues in turns: batches go by priority, then by age, over all queues"
    if isinstance(plugin, GangOrder) and plugin.name not in _KEPT_ORDERS:
        yield GangOrder, "orders jobs by more than priority and age"
    if isinstance(plugin, Overused):
        yield Overused, "holds queues to a share"
    if isinstance(plugin, ShapeMask) and plugin.reads_bookings:
        yield ShapeMask, "masks nodes by what is booked on them"
    if isinstance(plugin, PodMask) and plugin.sees_plain_pods:
        yield PodMask, "masks nodes by more of a pod than what it asks for"
    if isinstance(plugin, PodScore) and plugin.sees_plain_pods:
        yield PodScore, "scores nodes by more of a pod than what it asks for"
    if isinstance(plugin, CandidateScore) and plugin.sees_plain_pods:
        yield CandidateScore, "scores nodes relative to each other"
    if isinstance(plugin, BestNode):
        yield BestNode, "names a node whatever the scores say"
