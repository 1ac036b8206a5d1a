"""The policies of a day: HBox's own, with its levels and without; what Volcano installs; KAI-Scheduler's rules in the words of volcano-scheduler.conf."""

from dataclasses import replace

from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import PLUGINS

from ...policies import volcano

#: KAI's order of actions (reference peers §2), its deserved quota with reclaim between queues, preemption by priority within them, and packing; no
#: reservation, no levels, no minimum run time (its default).
KAI = """
actions: "allocate, consolidate, reclaim, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: predicates}
  - {name: capacity}
  - {name: binpack, arguments: {binpack.weight: 10, binpack.idle-cards.weight: 100}}
"""


def policies() -> dict[str, Conf]:
    own = default_conf()
    tiers = tuple(tuple(plugin for plugin in tier if plugin.name != "levels") for tier in own.tiers)
    kai = parse_conf(KAI, plugins=list(PLUGINS))
    return {"HBox": own, "HBox, no levels": replace(own, tiers=tiers), "Volcano": volcano(), "KAI's rules": kai}
