"""Plugins by their names in volcano-scheduler.conf."""

from collections.abc import Mapping

from hbox_common.errors import Bug, InvalidRequest

from ..framework.conf import Conf, PluginConf
from ..framework.hooks import Hook, Plugin, check
from ..plugins.binpack import Binpack
from ..plugins.capacity import Capacity
from ..plugins.cardmodels import CardModels
from ..plugins.cdp import Cdp
from ..plugins.checkpoint import Checkpoint
from ..plugins.conformance import Conformance
from ..plugins.deviceshare import DeviceShare
from ..plugins.drf import Drf
from ..plugins.extender import Extender
from ..plugins.fgd import FgdPlugin
from ..plugins.gang import GangPlugin
from ..plugins.idlecards import IdleCards
from ..plugins.leastwaste import LeastWastePlugin
from ..plugins.levels import LevelsPlugin
from ..plugins.minruntime import MinRunTime
from ..plugins.networktopology import NetworkTopology
from ..plugins.nodegroup import NodeGroup
from ..plugins.nodeorder import NodeOrder
from ..plugins.nodepreferences import NodePreferences
from ..plugins.numaaware import NumaAware
from ..plugins.overcommit import Overcommit
from ..plugins.pdb import Pdb
from ..plugins.predicates import Predicates
from ..plugins.priority import PriorityPlugin
from ..plugins.proportion import Proportion
from ..plugins.rescheduling import Rescheduling
from ..plugins.reservation import ReservationPlugin
from ..plugins.resourcequota import ResourceQuotaPlugin
from ..plugins.resourcestrategyfit import ResourceStrategyFit
from ..plugins.sla import Sla
from ..plugins.tasktopology import TaskTopology
from ..plugins.tdm import Tdm
from ..plugins.usage import Usage

PLUGINS: Mapping[str, Hook] = {
    "capacity": Capacity,
    "proportion": Proportion,
    "drf": Drf,
    "overcommit": Overcommit,
    "resourcequota": ResourceQuotaPlugin,
    "sla": Sla,
    "pdb": Pdb,
    "cdp": Cdp,
    "tdm": Tdm,
    "gang": GangPlugin,
    "priority": PriorityPlugin,
    "conformance": Conformance,
    "predicates": Predicates,
    "nodeorder": NodeOrder,
    "binpack": Binpack,
    "fgd": FgdPlugin,
    "least-waste": LeastWastePlugin,
    "node-preferences": NodePreferences,
    "deviceshare": DeviceShare,
    "card-models": CardModels,
    "idle-cards": IdleCards,
    "levels": LevelsPlugin,
    "checkpoint": Checkpoint,
    "minruntime": MinRunTime,
    "reservation": ReservationPlugin,
    "rescheduling": Rescheduling,
    "resource-strategy-fit": ResourceStrategyFit,
    "nodegroup": NodeGroup,
    "numa-aware": NumaAware,
    "task-topology": TaskTopology,
    "usage": Usage,
    "extender": Extender,
    "network-topology-aware": NetworkTopology,
}


def check_plugins(plugins: Mapping[str, Hook] = PLUGINS) -> None:
    """Raises Bug where a plugin is not what it declares (`framework.hooks.check`), or stands under another's name."""
    for name, plugin in plugins.items():
        check(plugin)
        if plugin.name != name:
            raise Bug(f"plugin {plugin.name} is registered as {name}")


def plugins_of(conf: Conf) -> list[list[Plugin]]:
    """New plugins for a session, tier by tier. Raises InvalidRequest for arguments that are wrong."""
    return [[_plugin_of(plugin) for plugin in tier] for tier in conf.tiers]


def _plugin_of(conf: PluginConf) -> Plugin:
    try:
        return PLUGINS[conf.name](conf)
    except InvalidRequest as e:
        raise InvalidRequest(f"line {conf.line}: {e.message}" if conf.line else e.message, hint=e.hint) from e
