"""Plugins by their names in volcano-scheduler.conf."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ..plugins.conformance import Conformance
from ..plugins.gang import GangPlugin
from ..plugins.priority import PriorityPlugin
from ..session.hooks import Plugin
from .conf import Conf, PluginConf

Factory: TypeAlias = Callable[[PluginConf], Plugin]

PLUGINS: Mapping[str, Factory] = {
    "gang": GangPlugin,
    "priority": PriorityPlugin,
    "conformance": Conformance,
}


def plugins_of(conf: Conf) -> list[list[Plugin]]:
    """New plugins for a session, tier by tier. Raises InvalidRequest for arguments that are wrong."""
    return [[PLUGINS[plugin.name](plugin) for plugin in tier] for tier in conf.tiers]
