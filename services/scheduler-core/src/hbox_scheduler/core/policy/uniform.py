"""Whether equal pods are equal to a policy, so that they can be placed in batches over columns: what is in the way, plugin by plugin."""

from collections.abc import Iterator

from ..framework.conf import Conf
from ..framework.hooks import (
    BestNode,
    ByShape,
    CandidateScore,
    PerPod,
    Plugin,
    PodMask,
    PodScore,
    ShapeMask,
    ShapeRoom,
    ShapeScore,
)
from .registry import plugins_of


def in_the_way(conf: Conf) -> list[str]:
    """Why plain pods (those without constraints on others) cannot be placed in batches with the same outcome; empty where they can.

    Raises InvalidRequest for arguments that are wrong.
    """
    found: list[str] = []
    for tier, confs in zip(plugins_of(conf), conf.tiers, strict=True):
        for plugin, plugin_conf in zip(tier, confs, strict=True):
            found += (f"{plugin.name} {what}" for hook, what in _distinguishing(plugin) if hook not in plugin_conf.off)
    return found


def _distinguishing(plugin: Plugin) -> Iterator[tuple[type[Plugin], str]]:
    if isinstance(plugin, ByShape) and plugin.of_session:
        hook = next(hook for hook in (ShapeMask, ShapeRoom, ShapeScore) if isinstance(plugin, hook))
        yield hook, "judges nodes by what is measured"
    if isinstance(plugin, PerPod) and plugin.sees_plain_pods:
        if isinstance(plugin, PodMask):
            yield PodMask, "masks nodes by more of a pod than what it asks for"
        if isinstance(plugin, PodScore):
            yield PodScore, "scores nodes by more of a pod than what it asks for"
        if isinstance(plugin, CandidateScore):
            yield CandidateScore, "scores nodes relative to each other"
    if isinstance(plugin, BestNode):
        yield BestNode, "names a node whatever the scores say"
