"""A policy as the ledger judges its proposals: in the services always, in `hbox simulate cycle` on request, or under HBox's own policy."""

from dataclasses import replace

from ..framework.conf import Conf, PluginConf
from ..framework.hooks import FLAGS, Hook, Pipelined, Readiness, SubGangPipelined, SubGangReadiness
from ..plugins.capacity import RECLAIM_AT_PARTING, Capacity
from ..plugins.gang import GangPlugin
from ..plugins.pdb import Pdb
from ..plugins.proportion import Proportion

#: The hooks by which a gang starts whole or not at all.
_WHOLE: frozenset[Hook] = frozenset({Readiness, Pipelined, SubGangReadiness, SubGangPipelined})


def as_the_ledger_judges(conf: Conf) -> Conf:
    """The conf with the rules that the ledger and the API server enforce under every policy: limits at every ancestor, rights at the queues where branches
    part, whole gangs, and disruption budgets. Plans that violate them would be rejected."""
    tiers = tuple(tuple(_as_judged(plugin) for plugin in tier) for tier in conf.tiers)
    if not any(plugin.name == GangPlugin.name for plugin in conf.plugins):
        others = frozenset(hook for hooks in FLAGS.values() for hook in hooks) - _WHOLE
        tiers = ((PluginConf(GangPlugin.name, off=others),), *tiers)
    if not any(plugin.name == Pdb.name for plugin in conf.plugins):
        tiers = (*tiers, (PluginConf(Pdb.name),))
    return replace(conf, tiers=tiers)


def _as_judged(plugin: PluginConf) -> PluginConf:
    if plugin.name == GangPlugin.name:
        return replace(plugin, off=plugin.off - _WHOLE)
    if plugin.name == Pdb.name:
        return replace(plugin, off=frozenset())
    if plugin.name == Proportion.name:
        return replace(plugin, hierarchy=True)
    if plugin.name == Capacity.name:
        return replace(plugin, hierarchy=True, arguments={**plugin.arguments, RECLAIM_AT_PARTING: True})
    return plugin
