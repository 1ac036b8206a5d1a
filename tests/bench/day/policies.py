"""The policies of a day: HBox's own, as it is, with moves that pay, and without its levels; what Volcano installs; KAI-Scheduler's rules in the words of
volcano-scheduler.conf, as they are and with HBox's levels.

Compare rows that keep to the levels (`Row.keeps_levels`) with each other; KAI's own rules evict level medium for level high (requirements A5).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hbox_common.model.annotations import OVER_QUOTA_WEIGHT
from hbox_common.model.consolidation import Mode
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import PLUGINS

from ...policies import volcano

#: KAI's order of actions (sources: kai-actions), preemption by priority within queues, consolidation of up to 16 pods for a gang whatever they lose, and
#: packing; no reservation, no levels, no minimum run time (its default). Its fair shares between queues follow from what is written on these (`OVER_QUOTA`).
KAI = """
actions: "allocate, consolidate, reclaim, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: predicates}
  - {name: capacity}
  - {name: binpack, arguments: {binpack.weight: 10, binpack.idle-cards.weight: 100}}
configurations:
- name: consolidate
  arguments: {horizon: 24h, restart: 0s, maxMovesPerHour: -1}
"""

#: Queues divide what others leave of their deserved amounts by these weights, and take back up to that (KAI's `overQuotaWeight`, 1 by default).
OVER_QUOTA = {OVER_QUOTA_WEIGHT: "1"}


@dataclass(frozen=True, slots=True)
class Row:
    """`notes`: annotations of all queues."""

    conf: Conf
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def keeps_levels(self) -> bool:
        """Whether high takes from low alone, and medium takes no part: also where nobody preempts at all."""
        return any(one.name == "levels" for one in self.conf.plugins) or not {"preempt", "gangpreempt"} & {*self.conf.actions}


def policies() -> dict[str, Row]:
    own = default_conf()
    tiers = tuple(tuple(plugin for plugin in tier if plugin.name != "levels") for tier in own.tiers)
    kai, levels = (
        parse_conf(text, plugins=list(PLUGINS)) for text in (KAI, KAI.replace("{name: gang}", "{name: gang}, {name: levels}"))
    )
    return {
        "HBox": Row(own),
        "HBox, moves on": Row(default_conf(defragmentation=Mode.ON)),
        "HBox, no levels": Row(replace(own, tiers=tiers)),
        "Volcano": Row(volcano()),
        "KAI's rules": Row(kai, OVER_QUOTA),
        "KAI's, levels": Row(levels, OVER_QUOTA),
    }
