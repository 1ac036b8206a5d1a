"""What pods want of each other, from Kubernetes' fields."""

from collections.abc import Mapping, Sequence

from hbox_common import kube
from hbox_common.kube.selectors import selector_of
from hbox_common.model import NO_CONSTRAINTS, Match, MatchOperator, PodConstraints, PodTerm, Selector, Spread, WeightedTerm


def constraints_of(spec: kube.PodSpec, labels: Mapping[str, str]) -> PodConstraints:
    """Of a pod with these labels. Raises ValueError for an operator or a policy that Kubernetes does not have."""
    affinity = spec.affinity
    near = affinity.pod_affinity if affinity is not None else None
    apart = affinity.pod_anti_affinity if affinity is not None else None
    if near is None and apart is None and not spec.topology_spread_constraints:
        return NO_CONSTRAINTS
    return PodConstraints(
        affinity=_terms(near.required, labels) if near else (),
        anti_affinity=_terms(apart.required, labels) if apart else (),
        preferred_affinity=_weighted(near.preferred, labels) if near else (),
        preferred_anti_affinity=_weighted(apart.preferred, labels) if apart else (),
        spread=tuple(_spread(one, labels) for one in spec.topology_spread_constraints),
    )


def _terms(terms: Sequence[kube.PodAffinityTerm], labels: Mapping[str, str]) -> tuple[PodTerm, ...]:
    return tuple(_term(term, labels) for term in terms)


def _weighted(terms: Sequence[kube.WeightedPodAffinityTerm], labels: Mapping[str, str]) -> tuple[WeightedTerm, ...]:
    return tuple(WeightedTerm(one.weight, _term(one.pod_affinity_term, labels)) for one in terms)


def _term(term: kube.PodAffinityTerm, labels: Mapping[str, str]) -> PodTerm:
    selector = selector_of(term.label_selector)
    if selector is not None:
        selector = Selector((
            *selector.matches,
            *_keyed(term.match_label_keys, MatchOperator.IN, labels),
            *_keyed(term.mismatch_label_keys, MatchOperator.NOT_IN, labels),
        ))  # fmt: skip
    return PodTerm(term.topology_key, selector, tuple(sorted(term.namespaces)), selector_of(term.namespace_selector))


def _spread(spread: kube.TopologySpreadConstraint, labels: Mapping[str, str]) -> Spread:
    if spread.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
        raise ValueError(f"topologySpreadConstraints: whenUnsatisfiable {spread.when_unsatisfiable!r}")
    if spread.max_skew < 1:
        raise ValueError(f"topologySpreadConstraints: maxSkew {spread.max_skew}")
    selector = selector_of(spread.label_selector)
    if selector is not None:
        selector = Selector((*selector.matches, *_keyed(spread.match_label_keys, MatchOperator.IN, labels)))
    return Spread(
        max_skew=spread.max_skew,
        topology_key=spread.topology_key,
        hard=spread.when_unsatisfiable == "DoNotSchedule",
        selector=selector,
        min_domains=spread.min_domains or 1,
        honor_affinity=spread.node_affinity_policy == "Honor",
        honor_taints=spread.node_taints_policy == "Honor",
    )


def _keyed(keys: Sequence[str], operator: MatchOperator, labels: Mapping[str, str]) -> tuple[Match, ...]:
    return tuple(Match(key, operator, (labels[key],)) for key in keys if key in labels)
