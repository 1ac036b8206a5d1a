"""Topology spread constraints, as kube-scheduler filters and scores them (PodTopologySpread)."""

from collections.abc import Iterator, Sequence

import numpy as np

from hbox_common.model import PodTerm, Spread, selects

from ..cluster.arrays import Bools, Floats, Ints
from ..cluster.entities import Member
from ..cluster.population import Population
from ..explain.labels import Label


def failures(population: Population, member: Member, eligible: Bools, untainted: Bools) -> Iterator[tuple[str, Bools]]:
    """Label and mask `[N]`. eligible: `[N]`, nodes that the pod's selector and affinity allow; untainted: those whose taints it tolerates."""
    hard = [spread for spread in member.constraints.spread if spread.hard]
    if not hard:
        return
    all_keys = _with_keys(population, hard)
    for spread in hard:
        counted = all_keys & _judged(spread, eligible, untainted)
        counts, codes, has = _counts(population, member, spread, counted)
        yield Label.SPREAD_NO_LABEL, ~has
        domains = np.unique(codes[counted])
        per_domain = np.bincount(codes, weights=counts * counted, minlength=int(codes.max(initial=0)) + 1)
        lowest = per_domain[domains].min() if len(domains) >= max(spread.min_domains, 1) else 0
        own = int(selects(spread.selector, member.labels))
        yield Label.SPREAD_SKEW, has & (per_domain[codes] + own - lowest > spread.max_skew)


def score(population: Population, member: Member, candidates: Bools, eligible: Bools, untainted: Bools) -> Floats | None:
    """`[N]`, 0 to 100 over the candidates, for constraints that are wishes; None where there are none."""
    soft = [spread for spread in member.constraints.spread if not spread.hard]
    if not soft or not candidates.any():
        return None
    scored = candidates & _with_keys(population, soft)
    total = np.zeros(population.columns.size, dtype=np.float64)
    for spread in soft:
        counted = _with_keys(population, soft) & _judged(spread, eligible, untainted)
        counts, codes, _ = _counts(population, member, spread, counted)
        size = len(np.unique(codes[scored]))
        per_domain = np.bincount(codes, weights=counts * counted, minlength=int(codes.max(initial=0)) + 1)
        total += per_domain[codes] * np.log(size + 2) + (spread.max_skew - 1)
    if not scored.any():
        return np.zeros_like(total)
    total = np.round(total)
    low, high = total[scored].min(), total[scored].max()
    out = np.full_like(total, 100.0) if high == 0 else 100.0 * (high + low - total) / high
    out[~scored] = 0.0
    return out


def _with_keys(population: Population, spreads: Sequence[Spread]) -> Bools:
    has = population.columns.alive[: population.columns.size].copy()
    for spread in spreads:
        has &= population.columns.descriptions.column(spread.topology_key).codes[: population.columns.size] > 0
    return has


def _judged(spread: Spread, eligible: Bools, untainted: Bools) -> Bools:
    judged = np.ones_like(eligible)
    if spread.honor_affinity:
        judged &= eligible
    if spread.honor_taints:
        judged &= untainted
    return judged


def _counts(population: Population, member: Member, spread: Spread, counted: Bools) -> tuple[Ints, Ints, Bools]:
    """Matching pods by node, domain codes by node, and the nodes that have the key. As in kube-scheduler, pods that are being deleted do not count, and a
    selector without conditions matches no pod."""
    if spread.selector is not None and not spread.selector.matches:
        counts = np.zeros(len(counted), dtype=np.int64)
    else:
        counts = population.of((PodTerm(spread.topology_key, spread.selector),), member.namespace, staying=True)
    codes = population.columns.descriptions.column(spread.topology_key).codes[: len(counted)]
    return counts, codes, codes > 0
