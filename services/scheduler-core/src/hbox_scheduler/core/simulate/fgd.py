"""The protocol of FGD's authors (Weng et al., USENIX ATC'23; sources: fgd-protocol) on the scheduler's own columns, views and policies.

Pods arrive one by one and each is placed at once or never: nothing ends, waits or is evicted. The result has, after each pod, the cards requested so far
(arrived) and the cards allocated, both in percent of all cards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hbox_common.model import NodeState, PodGroupTask
from hbox_common.model.resources import CPU

from ..cluster import Columns
from ..cluster.arrays import Floats
from ..cluster.task import Task
from ..cluster.tasks import Tasks
from ..devices import ALL, free_percent
from ..framework.views import Views
from ..plugins import Shape, expected_fragment
from ..plugins.fgd import shape_of
from ..policy import Policy
from .uniform import place_uniform

#: Percent of the cards that have been asked for when a run ends.
FULL = 130


@dataclass(frozen=True, slots=True)
class Curve:
    """By arrived percent, 0 to 130: `allocated[131]` and `fragments[131]` (F over the run's own mix), in percent of all cards."""

    allocated: Floats
    fragments: Floats
    placed: int
    failed: int


def curve_of(nodes: Sequence[NodeState], specs: Sequence[PodGroupTask], order: Sequence[int], policy: Policy) -> Curve:
    """One run. `order`: indices into `specs`, pod by pod; how many pods a spec lists plays no part. `policy` must be a fresh one."""
    columns = Columns()
    for node in nodes:
        columns.put_node(node)
    views, tasks = Views(columns, policy), Tasks(columns)
    kinds = [tasks.of(spec) for spec in specs]
    asked = [_percent(task) for task in kinds]
    mix: dict[Shape, float] = {}
    for which in order:
        shape = shape_of(kinds[which])
        mix[shape] = mix.get(shape, 0.0) + 1.0
    cards = int(np.count_nonzero(columns.card_index >= 0))
    allocated, fragments = np.zeros(FULL + 1), np.zeros(FULL + 1)
    fragments[0] = _fragment(columns, mix) / cards * 100
    arrived = given = placed = mark = 0
    for which in order:
        task = kinds[which]
        policy.learn(task, 1)
        if place_uniform(columns, views, policy, task, 1):
            given += asked[which]
            placed += 1
        arrived += asked[which]
        while mark < FULL and arrived >= (mark + 1) * cards:
            mark += 1
            allocated[mark] = given / cards
            fragments[mark] = _fragment(columns, mix) / cards * 100
    # The last pods do not quite reach the last mark.
    allocated[mark + 1 :] = given / cards
    fragments[mark + 1 :] = _fragment(columns, mix) / cards * 100
    return Curve(allocated, fragments, placed, len(order) - placed)


def _percent(task: Task) -> int:
    return 0 if task.cards is None else task.cards.count * min(task.cards.cores, ALL)


def _fragment(columns: Columns, mix: Mapping[Shape, float]) -> float:
    """F of all nodes, in cards."""
    cpu = columns.resource(CPU)
    rows = slice(0, columns.size)
    return float(
        expected_fragment(
            free_cpu_milli=columns.allocatable[cpu, rows] - columns.used[cpu, rows],
            free_percent=free_percent(columns, rows),
            models=[columns.model_names[code] for code in columns.card_model[rows, 0].tolist()],
            mix=mix,
        ).sum()
    )
