"""What a pod wants of its neighbours: affinity between pods, topology spread, images."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from hbox_common import kube
from hbox_common.model import Match, MatchOperator
from hbox_scheduler.core.session import PodTerm, Selector, Spread, Wishes

from .documents import Document
from .kinds import LabelSelector


class _Slim(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    pass


class _Term(_Slim, frozen=True, gc=False):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class _Weighted(_Slim, frozen=True, gc=False):
    weight: int
    pod_affinity_term: _Term


class _Rules(_Slim, frozen=True, gc=False):
    required: tuple[_Term, ...] = msgspec.field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[_Weighted, ...] = msgspec.field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class _Affinity(_Slim, frozen=True, gc=False):
    pod_affinity: _Rules = _Rules()
    pod_anti_affinity: _Rules = _Rules()


class _Spread(_Slim, frozen=True, gc=False):
    max_skew: int
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class _Container(_Slim, frozen=True, gc=False):
    image: str = ""


class _Spec(_Slim, frozen=True, gc=False):
    affinity: _Affinity = _Affinity()
    topology_spread_constraints: tuple[_Spread, ...] = ()
    containers: tuple[_Container, ...] = ()


class _Pod(kube.KubeObject, frozen=True, gc=False):
    spec: _Spec = _Spec()


def wishes_of(document: Document) -> Wishes:
    """Of a pod. Raises InvalidRequest."""
    pod = document.read(_Pod, namespaced=True)
    labels, spec = pod.metadata.labels, pod.spec
    near, apart = spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity
    return Wishes(
        near=_terms(document, "spec.affinity.podAffinity", near.required, labels),
        apart=_terms(document, "spec.affinity.podAntiAffinity", apart.required, labels),
        rather_near=_weighted(document, "spec.affinity.podAffinity", near.preferred, labels),
        rather_apart=_weighted(document, "spec.affinity.podAntiAffinity", apart.preferred, labels),
        spread=tuple(
            _spread(document, f"spec.topologySpreadConstraints[{place}]", one, labels)
            for place, one in enumerate(spec.topology_spread_constraints)
        ),
        images=tuple(container.image for container in spec.containers if container.image),
    )


def _terms(document: Document, field: str, terms: Sequence[_Term], labels: dict[str, str]) -> tuple[PodTerm, ...]:
    return tuple(_term(document, f"{field}.required[{place}]", term, labels) for place, term in enumerate(terms))


def _weighted(
    document: Document, field: str, terms: Sequence[_Weighted], labels: dict[str, str]
) -> tuple[tuple[int, PodTerm], ...]:
    return tuple(
        (one.weight, _term(document, f"{field}.preferred[{place}].podAffinityTerm", one.pod_affinity_term, labels))
        for place, one in enumerate(terms)
    )


def _term(document: Document, field: str, term: _Term, labels: dict[str, str]) -> PodTerm:
    selector = selector_of(document, f"{field}.labelSelector", term.label_selector)
    if selector is not None:
        same = tuple(Match(key, MatchOperator.IN, (labels[key],)) for key in term.match_label_keys if key in labels)
        other = tuple(Match(key, MatchOperator.NOT_IN, (labels[key],)) for key in term.mismatch_label_keys if key in labels)
        selector = Selector((*selector.matches, *same, *other))
    return PodTerm(
        topology_key=term.topology_key,
        selector=selector,
        namespaces=tuple(sorted(term.namespaces)),
        namespace_selector=selector_of(document, f"{field}.namespaceSelector", term.namespace_selector),
    )


def _spread(document: Document, field: str, spread: _Spread, labels: dict[str, str]) -> Spread:
    if spread.max_skew < 1:
        raise document.wrong(f"{field}.maxSkew", f"is {spread.max_skew}", hint="write 1 or more")
    selector = selector_of(document, f"{field}.labelSelector", spread.label_selector)
    if selector is not None:
        same = tuple(Match(key, MatchOperator.IN, (labels[key],)) for key in spread.match_label_keys if key in labels)
        selector = Selector((*selector.matches, *same))
    return Spread(
        max_skew=spread.max_skew,
        topology_key=spread.topology_key,
        hard=spread.when_unsatisfiable == "DoNotSchedule",
        selector=selector,
        min_domains=spread.min_domains or 1,
        honor_affinity=spread.node_affinity_policy == "Honor",
        honor_taints=spread.node_taints_policy == "Honor",
    )


def selector_of(document: Document, field: str, selector: LabelSelector | None) -> Selector | None:
    """Raises InvalidRequest for an operator that labels of pods do not have."""
    if selector is None:
        return None
    matches = [Match(key, MatchOperator.IN, (value,)) for key, value in sorted(selector.match_labels.items())]
    for place, one in enumerate(selector.match_expressions):
        if one.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise document.wrong(
                f"{field}.matchExpressions[{place}].operator",
                f"is {one.operator!r}",
                hint="allowed: In, NotIn, Exists, DoesNotExist",
            )
        matches.append(Match(one.key, MatchOperator(one.operator), one.values))
    return Selector(tuple(matches))
