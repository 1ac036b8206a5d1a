"""`hbox simulate trace`: one run, and its figures by the names that the field uses (sources: cluster-metrics)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate import node
from hbox_scheduler.core.simulate.trace import TraceSimulation
from hbox_scheduler.core.simulate.trace_jobs import JobOutcome, TraceJob
from hbox_scheduler.core.simulate.trace_turns import ORDERS

#: Classes of jobs: name -> the fewest and the most cards.
CLASSES: Mapping[str, tuple[int, float]] = {
    "all": (1, np.inf),
    "1": (1, 1),
    "2-8": (2, 8),
    ">8": (9, np.inf),
    ">64": (65, np.inf),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One run: the order of jobs, and the policy of placement."""

    jobs: tuple[TraceJob, ...]
    order: str
    placement: str
    nodes: int
    cards: int
    leaf: int
    restart_s: float


def run(setting: Setting, tick: Callable[[int], None] | None = None) -> JobOutcome:
    simulation = TraceSimulation(
        [node(f"node-{i:05}", cards=setting.cards) for i in range(setting.nodes)],
        policy=policy_of(PolicyName(setting.placement)),
        turns=ORDERS[setting.order],
        leaf_nodes=setting.leaf,
        restart_s=setting.restart_s,
    )
    return simulation.run(setting.jobs, tick=tick)


def figures(outcome: JobOutcome) -> dict[str, Any]:
    """All that is reported of one run. Times in seconds, shares from 0 to 1."""
    totals, span = outcome.totals, max(outcome.totals.span_s, 1e-9)
    waited = np.maximum(outcome.jct - outcome.duration, 0.0)  # sums of seconds, not exact
    content: dict[str, Any] = {
        "span_s": round(span),
        "sor": round(totals.allocated / (outcome.capacity * span), 4),
        "gar": _spread(np.array([s.allocated / outcome.capacity for s in outcome.samples]), 4),
        "gfr": round(totals.partly_used_nodes / (outcome.nodes * span), 4),
        "stranded_cards": round(totals.stranded / span, 2),
        "preemptions": int(outcome.preemptions.sum()),
        "preemptions_a_job": round(float(outcome.preemptions.mean()), 3),
        "preemptions_most": int(outcome.preemptions.max()),
        "lost_card_hours": round(totals.restarts_s / 3600, 1),
        "goodput": round(1.0 - totals.restarts_s / max(totals.allocated, 1e-9), 5),
        "longest_wait_s": round(float(outcome.longest.max())),
        "slowdown": _spread(outcome.jct / np.maximum(outcome.duration, 10.0), 2),
        "classes": {},
    }
    for name, (least, most) in CLASSES.items():
        chosen = (outcome.cards >= least) & (outcome.cards <= most)
        if chosen.any():
            content["classes"][name] = {
                "jobs": int(chosen.sum()),
                "duration_mean_s": round(float(outcome.duration[chosen].mean())),
                "jct_s": _spread(outcome.jct[chosen]),
                "queueing_s": _spread(outcome.queued[chosen]),
                "waiting_s": _spread(waited[chosen]),
                "preemptions": int(outcome.preemptions[chosen].sum()),
            }
    names = sorted(set(outcome.queues))
    if len(names) > 1:
        named = np.array(outcome.queues)
        content["queues"] = {}
        for name in names:
            chosen = named == name
            content["queues"][name] = {
                "jobs": int(chosen.sum()),
                "card_hours": round(float((outcome.cards[chosen] * outcome.duration[chosen]).sum()) / 3600, 1),
                "queueing_s": _spread(outcome.queued[chosen]),
                "slowdown": _spread(outcome.jct[chosen] / np.maximum(outcome.duration[chosen], 10.0), 2),
            }
    if outcome.topology.used:
        used, possible, empty = (
            np.array(leaves) for leaves in (outcome.topology.used, outcome.topology.possible, outcome.topology.empty)
        )
        content["topology"] = {
            "starts": len(used),
            "leaves_over_possible_now": round(float((used / possible).mean()), 4),
            "leaves_over_empty": round(float((used / empty).mean()), 4),
            "in_one_leaf": round(float((used[empty == 1] == 1).mean()), 4) if (empty == 1).any() else None,
        }
    return content


def _spread(values: npt.NDArray[np.float64], digits: int = 0) -> dict[str, float]:
    marks = {
        "mean": float(values.mean()),
        **{f"p{mark}": float(np.percentile(values, mark)) for mark in (50, 95, 99)},
        "max": float(values.max()),
    }
    return {name: round(value, digits) for name, value in marks.items()}


def curves(outcomes: Mapping[str, JobOutcome]) -> Sequence[tuple[str, list[tuple[float, float]], list[float]]]:
    """For pictures: name, (hours, share of cards given away), and total waiting in seconds, ascending."""
    drawn = []
    for name, outcome in outcomes.items():
        begin = outcome.samples[0].at_s
        used = [((s.at_s - begin) / 3600, s.allocated / outcome.capacity) for s in outcome.samples]
        drawn.append((name, used, np.sort(outcome.jct - outcome.duration).tolist()))
    return drawn
