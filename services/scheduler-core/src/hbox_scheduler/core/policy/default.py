"""HBox's own policy for sessions, in the words of volcano-scheduler.conf."""

from ..framework.conf import Conf, parse_conf
from .registry import PLUGINS

DEFAULT_CONF = """\
actions: "enqueue, allocate, backfill, reclaim, preempt, gangreclaim, gangpreempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: pdb
- plugins:
  - name: predicates
  - name: capacity
  - name: network-topology-aware
  - name: card-models
    arguments:
      card-models.weight: 30
      worth.weight: 0
  - name: binpack
    arguments:
      binpack.weight: 10
      binpack.resources: nvidia.com/gpu
      binpack.resources.nvidia.com/gpu: 10
"""


def default_conf() -> Conf:
    """HBox's own policy, parsed."""
    return parse_conf(DEFAULT_CONF, plugins=list(PLUGINS))
