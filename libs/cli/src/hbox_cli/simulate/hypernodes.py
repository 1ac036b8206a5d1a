"""HyperNodes, with their members resolved against the nodes and HyperNodes of the same file."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hbox_common import kube
from hbox_common.model import NodeName, NodeState
from hbox_scheduler.core.session import HyperNode

from . import kinds
from .documents import Document

_TYPES = ("Node", "HyperNode")
_FORMS = "exactMatch, regexMatch or labelMatch"


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    labels: Mapping[str, str]


def hypernodes_of(documents: Sequence[Document], nodes: Iterable[NodeState]) -> list[HyperNode]:
    """The file's HyperNodes in its order. A member that names what is not there is left out, as Volcano does. Raises InvalidRequest."""
    read = [(document, document.read(kinds.HyperNode, namespaced=False)) for document in documents]
    candidates = {
        "Node": [_Candidate(node.name, node.labels) for node in nodes],
        "HyperNode": [_Candidate(one.metadata.name, one.metadata.labels) for _, one in read],
    }
    found = []
    for document, one in read:
        if one.spec.tier < 0:
            raise document.wrong("spec.tier", f"is {one.spec.tier}", hint="write 0 or more; 1 is a leaf")
        below: dict[str, dict[str, None]] = {"Node": {}, "HyperNode": {}}
        for place, member in enumerate(one.spec.members):
            field = f"spec.members[{place}]"
            if member.type not in _TYPES:
                raise document.wrong(f"{field}.type", f"is {member.type!r}", hint=f"allowed: {', '.join(_TYPES)}")
            names = _members(document, f"{field}.selector", member.selector, candidates[member.type])
            below[member.type].update(dict.fromkeys(names))
        below["HyperNode"].pop(one.metadata.name, None)
        found.append(
            HyperNode(
                name=one.metadata.name,
                tier=one.spec.tier,
                tier_name=one.spec.tier_name,
                nodes=tuple(NodeName(name) for name in below["Node"]),
                children=tuple(below["HyperNode"]),
                labels=one.metadata.labels,
            )
        )
    return found


def _members(document: Document, field: str, selector: kinds.MemberSelector, candidates: Sequence[_Candidate]) -> list[str]:
    given = [form for form in (selector.exact_match, selector.regex_match, selector.label_match) if form is not None]
    if len(given) != 1:
        raise document.wrong(field, f"names {len(given)} of {_FORMS}", hint=f"write exactly one of {_FORMS}")
    if selector.exact_match is not None:
        return [one.name for one in candidates if one.name == selector.exact_match.name]
    if selector.regex_match is not None:
        try:
            pattern = re.compile(selector.regex_match.pattern)
        except re.error as e:
            raise document.wrong(f"{field}.regexMatch.pattern", f"is no regular expression: {e}") from e
        return [one.name for one in candidates if pattern.search(one.name)]
    assert selector.label_match is not None
    return [one.name for one in candidates if selected(document, field, selector.label_match, one.labels)]


def selected(document: Document, field: str, selector: kinds.LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether a label selector holds. Raises InvalidRequest for an operator that Kubernetes does not have."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(document, f"{field}.matchExpressions", rule, labels) for rule in selector.match_expressions
    )


def _holds(document: Document, field: str, rule: kube.Requirement, labels: Mapping[str, str]) -> bool:
    match rule.operator:
        case "In":
            return labels.get(rule.key) in rule.values
        case "NotIn":
            return labels.get(rule.key) not in rule.values
        case "Exists":
            return rule.key in labels
        case "DoesNotExist":
            return rule.key not in labels
        case other:
            raise document.wrong(field, f"operator {other!r}", hint="allowed: In, NotIn, Exists, DoesNotExist")
