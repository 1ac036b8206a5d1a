"""numa-aware: Volcano's plugin that places pods by the NUMA nodes of Numatopology objects (reference volcano §4).

No service reads these objects: as in a cluster of Volcano's whose nodes have none, the plugin allows every node and scores none. Policies that name it are
followed in all else, and told so.
"""

from typing import TYPE_CHECKING

from ..framework.hooks import Plugin
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session


class NumaAware(Plugin):
    """Argument: weight (1)."""

    name = "numa-aware"

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        arguments.number("weight", 1, least=0)
        arguments.done()

    def open(self, session: "Session") -> None:
        session.outcome.warn("plugin numa-aware has no effect: nobody tells of Numatopology objects")
