"""What makes an object acceptable: names, labels, quantities, references; and what may not change in a pod.

Each check returns causes for a 422; wrong JSON types are 400, as when the real server fails to decode.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from .errors import Json, bad_request, cause
from .resources import NameRule, ResourceType

_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?\d+))?")
_NAME_RULES = {
    NameRule.PATH: (re.compile(r"(?!\.\.?$)[^/%]+"), 253, "may not be '.' or '..', and may not contain '/' or '%'"),
    NameRule.SUBDOMAIN: (
        re.compile(_SUBDOMAIN),
        253,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
        f"alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')",
    ),
    NameRule.LABEL: (
        re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"),
        63,
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric "
        "character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    ),
    NameRule.LABEL_1035: (
        re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?"),
        63,
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an "
        "alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
    ),
}
_ANNOTATION_BYTES = 256 * 1024


@lru_cache(maxsize=65_536)
def _name_problem(rule: NameRule, name: str) -> str:
    pattern, limit, text = _NAME_RULES[rule]
    if len(name) > limit:
        return f"must be no more than {limit} characters"
    return "" if pattern.fullmatch(name) else text


@lru_cache(maxsize=65_536)
def _label_problem(key: str, value: str | None) -> str:
    """Empty when `key` (and `value`, unless None) is a valid label."""
    prefix, _, name = key.rpartition("/")
    if len(name) > 63 or not _QUALIFIED.fullmatch(name) or (prefix and _name_problem(NameRule.SUBDOMAIN, prefix)):
        return f"Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.'"
    if value is not None and (len(value) > 63 or not _LABEL_VALUE.fullmatch(value)):
        return f"Invalid value: \"{value}\": a valid label must be an empty string or consist of at most 63 alphanumeric characters, '-', '_' or '.'"
    return ""


@lru_cache(maxsize=65_536)
def is_quantity(text: str) -> bool:
    return _QUANTITY.fullmatch(text) is not None


def require_strings(value: Any, path: str) -> None:
    """400 unless `value` is absent or a map of strings."""
    if value is None:
        return
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise bad_request(f"json: cannot unmarshal into Go struct field {path} of type map[string]string")


def check_metadata(resource: ResourceType, meta: Json) -> list[Json]:
    causes: list[Json] = []
    name = meta.get("name", "")
    if not name:
        causes.append(cause("metadata.name", "Required value: name or generateName is required", "FieldValueRequired"))
    elif problem := _name_problem(resource.name_rule, name):
        causes.append(cause("metadata.name", f'Invalid value: "{name}": {problem}'))
    for key, value in (meta.get("labels") or {}).items():
        if problem := _label_problem(key, value):
            causes.append(cause("metadata.labels", problem))
    annotations = meta.get("annotations") or {}
    problems = (_label_problem(key.lower(), None) for key in annotations)
    causes += [cause("metadata.annotations", problem) for problem in problems if problem]
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATION_BYTES:
        causes.append(
            cause("metadata.annotations", f"Too long: may not be more than {_ANNOTATION_BYTES} bytes", "FieldValueTooLong")
        )
    for at, owner in enumerate(meta.get("ownerReferences") or ()):
        empty = (part for part in ("apiVersion", "kind", "name", "uid") if not owner.get(part))
        causes += [cause(f"metadata.ownerReferences[{at}].{part}", 'Invalid value: "": must not be empty') for part in empty]
    return causes


def check_pod(pod: Json) -> list[Json]:
    spec = pod["spec"]
    causes: list[Json] = []
    containers = spec.get("containers")
    if not containers:
        causes.append(cause("spec.containers", "Required value", "FieldValueRequired"))
    for part in ("containers", "initContainers"):
        names: set[str] = set()
        for at, container in enumerate(spec.get(part) or ()):
            causes += _check_container(container, f"spec.{part}[{at}]", names)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        supported = 'supported values: "Always", "Never", "OnFailure"'
        message = f'Unsupported value: "{spec.get("restartPolicy")}": {supported}'
        causes.append(cause("spec.restartPolicy", message, "FieldValueNotSupported"))
    return causes


def _check_container(container: Json, path: str, names: set[str]) -> list[Json]:
    causes: list[Json] = []
    name = container.get("name", "")
    if not name:
        causes.append(cause(f"{path}.name", "Required value", "FieldValueRequired"))
    elif problem := _name_problem(NameRule.LABEL, name):
        causes.append(cause(f"{path}.name", f'Invalid value: "{name}": {problem}'))
    elif name in names:
        causes.append(cause(f"{path}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate"))
    names.add(name)
    if not container.get("image"):
        causes.append(cause(f"{path}.image", "Required value", "FieldValueRequired"))
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for resource, quantity in limits.items():
        if "/" in resource and str(requests.get(resource, quantity)) != str(quantity):
            text = f'Invalid value: "{requests[resource]}": must be equal to {resource} limit of {quantity}'
            causes.append(cause(f"{path}.resources.requests", text))
    unlimited = (resource for resource in requests if "/" in resource and resource not in limits)
    text = "Required value: Limit must be set for non overcommitable resources"
    causes += [cause(f"{path}.resources.limits", text, "FieldValueRequired") for _ in unlimited]
    return causes


def check_quantities(spec: Json) -> None:
    """400 for a resource quantity that is none, as when decoding it."""
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or ():
            resources = container.get("resources") or {}
            for amounts in (resources.get("limits"), resources.get("requests")):
                for quantity in (amounts or {}).values():
                    if not is_quantity(str(quantity)) or isinstance(quantity, bool):
                        pattern = "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                        raise bad_request(f"quantities must match the regular expression {pattern} (got {quantity!r})")


def check_pod_update(old: Json, new: Json) -> list[Json]:
    """Of a pod's spec, only images, deadlines, added tolerations and removed scheduling gates may change (ValidatePodUpdate); while it is
    gated, also its node selector and affinity."""
    before, after = dict(old["spec"]), dict(new["spec"])
    gated = bool(before.get("schedulingGates"))
    causes: list[Json] = []
    allowed = ["activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"]
    allowed += ["nodeSelector", "affinity"] if gated else []
    kept = [each for each in before.get("tolerations") or () if each not in (after.get("tolerations") or ())]
    if kept:
        causes.append(
            cause(
                "spec.tolerations",
                "Forbidden: existing toleration can not be modified except its tolerationSeconds",
                "FieldValueForbidden",
            )
        )
    added = [each for each in after.get("schedulingGates") or () if each not in (before.get("schedulingGates") or ())]
    if added:
        causes.append(
            cause(
                "spec.schedulingGates",
                "Forbidden: only deletion is allowed, but found new scheduling gates",
                "FieldValueForbidden",
            )
        )
    for spec in (before, after):
        for name in allowed:
            spec.pop(name, None)
        for part in ("containers", "initContainers"):
            if part in spec:
                spec[part] = [{key: value for key, value in each.items() if key != "image"} for each in spec[part]]
    if before != after:
        differing = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
        names = (
            "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
            "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        text = f"Forbidden: pod updates may not change fields other than {names} (changed: {', '.join(differing)})"
        causes.append(cause("spec", text, "FieldValueForbidden"))
    return causes
