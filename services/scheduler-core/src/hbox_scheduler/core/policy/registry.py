"""Plugins by their names in volcano-scheduler.conf.

A session has plugins of its own. Arguments are read once for a conf: what a plugin is before it is opened is kept, and copied for each session, with dicts,
lists, sets and what has `__copy__` of its own. A plugin that begins with anything else that may change (what it learns) is made anew.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from hbox_common.errors import Bug, InvalidRequest

from ..framework.conf import Conf, PluginConf
from ..framework.hooks import Hook, Plugin, hooks_of
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
from ..plugins.prioritylevels import LevelsPlugin
from ..plugins.proportion import Proportion
from ..plugins.rdmaaware import RdmaAware
from ..plugins.rescheduling import Rescheduling
from ..plugins.reservations import ReservationPlugin
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
    "rdma-aware": RdmaAware,
    "task-topology": TaskTopology,
    "usage": Usage,
    "extender": Extender,
    "network-topology-aware": NetworkTopology,
}


def check_plugins(plugins: Mapping[str, Hook] = PLUGINS) -> None:
    """Raises Bug if a plugin is not what it declares (`framework.hooks.hooks_of`), or is registered under another name."""
    for name, plugin in plugins.items():
        hooks_of(plugin)  # kept: no session has to check a plugin
        if plugin.name != name:
            raise Bug(f"plugin {plugin.name} is registered as {name}")


def plugins_of(conf: Conf) -> list[list[Plugin]]:
    """New plugins for a session, tier by tier. Raises InvalidRequest for arguments that are wrong."""
    known = _KNOWN.get(id(conf))
    if known is None:
        known = conf, [[_maker_of(plugin) for plugin in tier] for tier in conf.tiers]
        _KNOWN[id(conf)] = known
        if len(_KNOWN) > _MOST:
            _KNOWN.popitem(last=False)
    return [[make() for make in tier] for tier in known[1]]


#: How the plugins of a conf are made, by its identity: it lives as long as it is here.
_KNOWN: OrderedDict[int, tuple[Conf, list[list[Callable[[], Plugin]]]]] = OrderedDict()

#: A scheduler has some seven confs: of its policy's, one for each kind of session.
_MOST = 64

_CONTAINERS = (dict, list, set)
_CONSTANTS = (str, int, float, bytes, type(None), frozenset, type)


def _maker_of(conf: PluginConf) -> Callable[[], Plugin]:
    """Makes the plugin, as of now."""
    first = _plugin_of(conf)
    plugin, state = type(first), dict(vars(first))
    if not all(_is_constant(value) or _copies_itself(value) for value in state.values()):
        return lambda: _plugin_of(conf)
    own = [name for name, value in state.items() if isinstance(value, _CONTAINERS) or _copies_itself(value)]

    def make() -> Plugin:
        made = object.__new__(plugin)
        values = made.__dict__
        values.update(state)
        for name in own:
            values[name] = copy(values[name])
        return made

    return make


def _copies_itself(value: Any) -> bool:
    return "__copy__" in vars(type(value)) and not isinstance(value, np.ndarray)


def _is_constant(value: Any) -> bool:
    """Whether copies of a plugin may share it, but for the container itself that it may be."""
    if isinstance(value, dict):
        return all(_never_changes(one) for one in value.values())
    return all(map(_never_changes, value)) if isinstance(value, list | set) else _never_changes(value)


def _never_changes(value: Any) -> bool:
    if isinstance(value, _CONSTANTS):
        return True
    if isinstance(value, tuple):
        return all(map(_never_changes, value))
    if isinstance(value, np.ndarray):
        return not value.size
    if is_dataclass(value):  # a frozen one is a value, with all that it holds
        frozen = getattr(value, "__dataclass_params__").frozen  # noqa: B009  what `dataclass` leaves, and no type knows
        return bool(frozen) and all(_is_constant(getattr(value, one.name)) for one in fields(value))
    return not isinstance(value, _CONTAINERS) and getattr(value, "__dict__", None) == {}


def _plugin_of(conf: PluginConf) -> Plugin:
    try:
        return PLUGINS[conf.name](conf)
    except InvalidRequest as e:
        raise InvalidRequest(f"line {conf.line}: {e.message}" if conf.line else e.message, hint=e.hint) from e
