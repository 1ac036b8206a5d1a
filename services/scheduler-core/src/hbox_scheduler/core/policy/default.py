"""HBox's own policies, in the format of volcano-scheduler.conf: scheduler-core uses them if the user sets none."""

from enum import StrEnum

from hbox_common.model.consolidation import Mode

from ..framework.conf import Conf, parse_conf
from .registry import PLUGINS


class PolicyName(StrEnum):
    BINPACK = "binpack"
    FGD = "fgd"
    LEAST_WASTE = "least-waste"


#: The policy of scheduler-core without a setting, and of `hbox up`, `hbox replay` and `hbox simulate`.
DEFAULT = PolicyName.LEAST_WASTE

_COMMON = """\
actions: "allocate, backfill, reclaim, preempt, gangreclaim, gangpreempt{moves}"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: pdb
  - name: levels
  - name: checkpoint
- plugins:
  - name: predicates
  - name: capacity
  - name: idle-cards
  - name: numa-aware
    arguments:
      weight: 10
  - name: rdma-aware
    arguments:
      weight: 20
  - name: network-topology-aware
    arguments:
      hypernode.binpack.normal-pod.enable: false
      hypernode.keep-whole.enable: true
  - name: reservation
    arguments:
      after: 2m
"""

#: Idle cards decide; a scarce model outweighs them, and so do three PreferNoSchedule taints.
_BINPACK = """\
  - name: binpack
    arguments:
      binpack.weight: 10
      binpack.idle-cards.weight: 100
  - name: card-models
    arguments:
      card-models.weight: 30
      worth.weight: 0
  - name: node-preferences
    arguments:
      nodeaffinity.weight: 10
      tainttoleration.weight: 100
"""

#: What a pod prefers comes first; cards decide among equals, a few of them at most. Among nodes whose waste differs by less than a thousandth of a card
#: `binpack` decides as in the policy of that name: waste without binpack puts pods without cards on nodes with cards, and leaves a tenth fewer nodes idle.
_CARDS_OF_WASTE = """\
  - name: {name}
    arguments:
      {name}.weight: 100
{ties}  - name: node-preferences
    arguments:
      nodeaffinity.weight: 100
      tainttoleration.weight: 100
"""


_TIES = """\
  - name: binpack
    arguments:
      binpack.weight: 0.001
      binpack.idle-cards.weight: 100
"""

_MOVES = """\
configurations:
- name: consolidate
  arguments:
    mode: "{mode}"
"""


def default_text(name: PolicyName = DEFAULT, defragmentation: Mode = Mode.OFF) -> str:
    """The policy as a file has it. `defragmentation`: what it does with moves that pay."""
    moves = defragmentation is not Mode.OFF
    ties = _TIES if name is PolicyName.LEAST_WASTE else ""
    own = _BINPACK if name is PolicyName.BINPACK else _CARDS_OF_WASTE.format(name=name.value, ties=ties)
    return (
        _COMMON.format(moves=", consolidate" if moves else "")
        + own
        + (_MOVES.format(mode=defragmentation.value) if moves else "")
    )


DEFAULT_CONF = default_text()


def default_conf(name: PolicyName = DEFAULT, defragmentation: Mode = Mode.OFF) -> Conf:
    """The policy, parsed."""
    return parse_conf(default_text(name, defragmentation), plugins=list(PLUGINS))
