"""How much the recent usage of queues counts in a policy (`hbox_common.model.fairshare`)."""

from ..framework.conf import Conf

#: The argument of `capacity` and `proportion` by which history counts: k.
USAGE_WEIGHT = "usageWeight"


def usage_weight(conf: Conf) -> float:
    """The highest k of the policy's plugins; 0 = history does not count."""
    given = [plugin.arguments.get(USAGE_WEIGHT) for plugin in conf.plugins]
    return max((float(k) for k in given if k is not None), default=0.0)
