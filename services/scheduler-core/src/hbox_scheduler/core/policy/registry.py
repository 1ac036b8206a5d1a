"""Plugins by their names in volcano-scheduler.conf."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ..plugins.conformance import Conformance
from ..plugins.gang import GangPlugin
from ..plugins.nodegroup import NodeGroup
from ..plugins.nodeorder import NodeOrder
from ..plugins.predicates import Predicates
from ..plugins.priority import PriorityPlugin
from ..plugins.resourcestrategyfit import ResourceStrategyFit
from ..plugins.tasktopology import TaskTopology
from ..plugins.weightedbinpack import WeightedBinpack
from ..session.hooks import Plugin
from .conf import Conf, PluginConf

Factory: TypeAlias = Callable[[PluginConf], Plugin]

PLUGINS: Mapping[str, Factory] = {
    "gang": GangPlugin,
    "priority": PriorityPlugin,
    "conformance": Conformance,
    "predicates": Predicates,
    "nodeorder": NodeOrder,
    "binpack": WeightedBinpack,
    "resource-strategy-fit": ResourceStrategyFit,
    "nodegroup": NodeGroup,
    "task-topology": TaskTopology,
}


def plugins_of(conf: Conf) -> list[list[Plugin]]:
    """New plugins for a session, tier by tier. Raises InvalidRequest for arguments that are wrong."""
    return [[PLUGINS[plugin.name](plugin) for plugin in tier] for tier in conf.tiers]
