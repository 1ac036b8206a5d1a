"""Policies of tests."""

from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.registry import PLUGINS

#: Pods are packed, and move for gangs that wait.
MOVING = """\
actions: "allocate, backfill, consolidate"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: predicates}
  - {name: binpack, arguments: {binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: 10}}
"""

#: What Volcano installs.
VOLCANO = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins:
  - {name: overcommit}
  - {name: drf, enablePreemptable: false}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
  - {name: binpack}
"""


def one_by_one() -> Conf:
    """HBox's own policy, and a plugin for whom pods of one shape are not alike: each is placed by itself, and tried again by and by."""
    return parse_conf(DEFAULT_CONF + "  - name: usage\n", plugins=list(PLUGINS))


def volcano() -> Conf:
    return parse_conf(VOLCANO, plugins=list(PLUGINS))
