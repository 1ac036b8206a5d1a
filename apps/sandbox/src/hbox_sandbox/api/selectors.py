"""Label and field selectors: texts from the query (or a LabelSelector object) become predicates over stored versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from .errors import Json, bad_request
from .resources import EVENTS, NODES, PODS, ResourceType
from .store import Match, Version

LabelTest: TypeAlias = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"^\s*(?P<key>[\w./-]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*(?P<key>[\w./-]+)\s*(?P<op>==|=|!=)\s*(?P<value>[\w.-]*)\s*$")
_COMPARE = re.compile(r"^\s*(?P<key>[\w./-]+)\s*(?P<op>[<>])\s*(?P<value>-?\d+)\s*$")
_EXISTS = re.compile(r"^\s*(?P<not>!?)\s*(?P<key>[\w./-]+)\s*$")

# Supported fields by collection, beyond metadata.name and metadata.namespace
# (k8s.io/kubernetes pkg/apis/core/v1/conversion.go and pkg/registry/core/*/strategy.go).
_FIELDS: dict[str, frozenset[str]] = {
    PODS.storage: frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.nominatedNodeName",
        }
    ),
    NODES.storage: frozenset({"spec.unschedulable"}),
    EVENTS.storage: frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    ),
    "namespaces.": frozenset({"status.phase"}),
    "secrets.": frozenset({"type"}),
    "jobs.batch": frozenset({"status.successful"}),
    "replicasets.apps": frozenset({"status.replicas"}),
}


def _pod_fields(pod: Json) -> Mapping[str, str]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return {
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.schedulerName": spec.get("schedulerName", ""),
        "status.phase": status.get("phase", ""),
        "spec.restartPolicy": spec.get("restartPolicy", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.nominatedNodeName": status.get("nominatedNodeName", ""),
    }


def _node_fields(node: Json) -> Mapping[str, str]:
    return {"spec.unschedulable": "true" if (node.get("spec") or {}).get("unschedulable") else "false"}


def _event_fields(event: Json) -> Mapping[str, str]:
    fields = {f"involvedObject.{key}": str(value) for key, value in (event.get("involvedObject") or {}).items()}
    fields["reason"] = event.get("reason", "")
    fields["type"] = event.get("type", "")
    fields["reportingComponent"] = event.get("reportingComponent", "")
    fields["source"] = (event.get("source") or {}).get("component", "") or fields["reportingComponent"]
    return fields


def _namespace_fields(namespace: Json) -> Mapping[str, str]:
    return {"status.phase": (namespace.get("status") or {}).get("phase", "")}


def _secret_fields(secret: Json) -> Mapping[str, str]:
    return {"type": secret.get("type", "")}


def _job_fields(job: Json) -> Mapping[str, str]:
    return {"status.successful": str((job.get("status") or {}).get("succeeded", 0))}


def _replica_set_fields(one: Json) -> Mapping[str, str]:
    return {"status.replicas": str((one.get("status") or {}).get("replicas", 0))}


_NO_FIELDS: Mapping[str, str] = {}
_EXTRACT: dict[str, Callable[[Json], Mapping[str, str]]] = {
    PODS.storage: _pod_fields,
    NODES.storage: _node_fields,
    EVENTS.storage: _event_fields,
    "namespaces.": _namespace_fields,
    "secrets.": _secret_fields,
    "jobs.batch": _job_fields,
    "replicasets.apps": _replica_set_fields,
}


def field_values(resource: ResourceType) -> Callable[[Json], Mapping[str, str]]:
    """The function that reads an object's selectable fields."""
    return _EXTRACT.get(resource.storage, lambda _: _NO_FIELDS)


def label_test(text: str) -> LabelTest:
    """A predicate from `a=b,c in (d,e),!f`; 400 where the syntax is wrong."""
    tests = [_requirement(part) for part in _split(text)]
    return lambda labels: all(test(labels) for test in tests)


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part for part in parts if part.strip()] if text.strip() else []


def _requirement(part: str) -> LabelTest:
    if found := _SET.match(part):
        values = {value.strip() for value in found["values"].split(",")}
        return _in(found["key"], values) if found["op"] == "in" else _not_in(found["key"], values)
    if found := _EQUAL.match(part):
        values = {found["value"]}
        return _not_in(found["key"], values) if found["op"] == "!=" else _in(found["key"], values)
    if found := _COMPARE.match(part):
        return _compare(found["key"], found["op"], int(found["value"]))
    if found := _EXISTS.match(part):
        key, present = found["key"], not found["not"]
        return lambda labels: (key in labels) is present
    raise bad_request(f"unable to parse requirement: {part.strip()!r} is not a label selector")


def _in(key: str, values: set[str]) -> LabelTest:
    return lambda labels: labels.get(key) in values


def _not_in(key: str, values: set[str]) -> LabelTest:
    return lambda labels: labels.get(key) not in values


def _compare(key: str, op: str, bound: int) -> LabelTest:
    def test(labels: Mapping[str, str]) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > bound if op == ">" else value < bound

    return test


def selector_object_test(selector: Json) -> LabelTest:
    """A predicate from a LabelSelector object; the empty one selects everything."""
    tests: list[LabelTest] = [_in(key, {value}) for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, values = each["key"], set(each.get("values") or ())
        match each["operator"]:
            case "In":
                tests.append(_in(key, values))
            case "NotIn":
                tests.append(_not_in(key, values))
            case "Exists":
                tests.append(_requirement(key))
            case "DoesNotExist":
                tests.append(_requirement(f"!{key}"))
            case other:
                raise bad_request(f'"{other}" is not a valid label selector operator')
    return lambda labels: all(test(labels) for test in tests)


def format_selector(selector: Json | None) -> str:
    """A LabelSelector object as text, in the order of the keys (labels.Selector String); "" for one that selects everything."""
    terms = [(key, f"{key}={value}") for key, value in ((selector or {}).get("matchLabels") or {}).items()]
    for each in (selector or {}).get("matchExpressions") or ():
        key, operator = each["key"], each["operator"]
        if operator in ("Exists", "DoesNotExist"):
            terms.append((key, key if operator == "Exists" else f"!{key}"))
        else:
            terms.append((key, f"{key} {operator.lower()} ({','.join(sorted(each.get('values') or ()))})"))
    return ",".join(text for _, text in sorted(terms))


def _field_terms(resource: ResourceType, text: str) -> Sequence[tuple[str, str, bool]]:
    terms = []
    for part in text.split(","):
        if not part.strip():
            continue
        operator = "!=" if "!=" in part else "==" if "==" in part else "="
        key, found, value = part.partition(operator)
        key, value = key.strip(), value.strip().replace("\\,", ",")
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        known = _FIELDS.get(resource.storage, frozenset())
        stored = _stored_field(resource, key)
        if stored not in known and stored not in ("metadata.name", "metadata.namespace"):
            if known:
                raise bad_request(f"field label not supported: {key}")
            raise bad_request(f'"{key}" is not a known field selector: only "metadata.name", "metadata.namespace"')
        terms.append((stored, value, operator == "!="))
    return terms


def _stored_field(resource: ResourceType, key: str) -> str:
    if resource.storage == EVENTS.storage and resource.from_stored is not None:
        return key.replace("regarding.", "involvedObject.").replace("reportingController", "reportingComponent")
    return key


def match_for(resource: ResourceType, *, namespace: str, labels: str, fields: str) -> Match | None:
    """The predicate that a list or watch applies, None where it takes everything; 400 for unknown fields or bad syntax."""
    label = label_test(labels) if labels.strip() else None
    terms = _field_terms(resource, fields)
    if not (namespace or label or terms):
        return None

    def match(version: Version) -> bool:
        if namespace and version.namespace != namespace:
            return False
        if label is not None and not label(version.labels):
            return False
        for key, value, negated in terms:
            if key == "metadata.name":
                actual = version.name
            elif key == "metadata.namespace":
                actual = version.namespace
            else:
                actual = version.fields.get(key, "")
            if (actual == value) is negated:
                return False
        return True

    return match
