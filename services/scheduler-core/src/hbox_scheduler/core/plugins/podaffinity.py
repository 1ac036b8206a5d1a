"""Affinity and anti-affinity between pods, with kube-scheduler's filters and scores (InterPodAffinity).

Required affinity: for every term, the node's domain holds a pod that matches all terms. The first pod of its kind may start in any domain if it matches its own
terms; pods on nodes without a domain do not count. Required anti-affinity works both ways: the pod's own terms against the pods that are there, and their terms
against the pod.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from ..cluster.arrays import Bools, Floats
from ..cluster.entities import Member
from ..cluster.interning import ZONE_FIELD
from ..cluster.population import Constraint, Population
from ..explain.labels import Label

#: What a pod's required affinity adds to the score of those that it would like to be near to (kube-scheduler's hardPodAffinityWeight).
_HARD_WEIGHT = 1

#: Constraints of other pods by which a node is scored (`Population.term_counts`), and their signs.
SCORED: Mapping[Constraint, int] = {"affinity": 1, "preferred_affinity": 1, "preferred_anti_affinity": -1}


def failures(population: Population, member: Member) -> Iterator[tuple[str, Bools]]:
    """Label and mask `[N]`."""
    constraints, namespace = member.constraints, member.namespace
    if constraints.affinity:
        counts = population.of(constraints.affinity, namespace)
        domains = [population.per_domain(counts, term.topology_key) for term in constraints.affinity]
        company = any((there[has] > 0).any() for there, has in domains)
        first = not company and population.matches(constraints.affinity, namespace, member)
        fails = np.zeros(population.columns.size, dtype=np.bool_)
        for there, has in domains:
            fails |= ~has if first else ~(has & (there > 0))
        of_volume = all(term.topology_key == ZONE_FIELD for term in constraints.affinity)
        yield Label.VOLUME_NODE_MISMATCH if of_volume else Label.POD_AFFINITY, fails
    for term in constraints.anti_affinity:
        there, has = population.per_domain(population.of((term,), namespace), term.topology_key)
        yield Label.POD_ANTI_AFFINITY, has & (there > 0)
    for counted in population.term_counts("anti_affinity"):
        if population.matches((counted.term,), counted.namespace, member):
            there, has = population.per_domain(counted.counts, counted.term.topology_key)
            yield Label.POD_ANTI_AFFINITY_OF_OTHERS, has & (there > 0)


def score(population: Population, member: Member, candidates: Bools) -> Floats | None:
    """`[N]`, 0 to 100 over the candidates; None if no pod has a preference."""
    total = np.zeros(population.columns.size, dtype=np.float64)
    asked = False
    for sign, terms in ((1, member.constraints.preferred_affinity), (-1, member.constraints.preferred_anti_affinity)):
        for one in terms:
            there, has = population.per_domain(population.of((one.term,), member.namespace), one.term.topology_key)
            total += sign * one.weight * np.where(has, there, 0)
            asked = True
    for constraint, sign in SCORED.items():
        for counted in population.term_counts(constraint):
            if population.matches((counted.term,), counted.namespace, member):
                there, has = population.per_domain(counted.counts, counted.term.topology_key)
                total += sign * (counted.weight or _HARD_WEIGHT) * np.where(has, there, 0)
                asked = True
    if not asked or not candidates.any():
        return None
    low, high = total[candidates].min(), total[candidates].max()
    return np.zeros_like(total) if high == low else 100.0 * (total - low) / (high - low)
