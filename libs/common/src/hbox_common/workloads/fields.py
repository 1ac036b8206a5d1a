"""Values at paths of an object that a tenant wrote: read within bounds, or turned into a text that names the fault. Nothing here raises."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hbox_common.model.bounds import INT32_MAX, is_name, not_a_name, sanitized


@dataclass(slots=True)
class Fields:
    """Reads values of one object; `problems` collects the faults for which its pods wait."""

    root: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)  #: faults that stop no pod, since Volcano reads the value as a default

    def count(self, path: str, value: Any) -> int | None:
        """A number of pods; None if nothing, or nothing valid, is written."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.problems.append(f"{path} is {shown(value)}: write a whole number")
            return None
        if not 0 <= value <= INT32_MAX:
            self.problems.append(f"{path} is {shown(value)}: write 0 to {INT32_MAX}")
            return None
        return value

    def name(self, path: str, value: Any) -> str:
        """The name of an object; empty if nothing, or nothing valid, is written."""
        if value is None or value == "":
            return ""
        if not isinstance(value, str):
            self.problems.append(f"{path} is {shown(value)}: write a name")
            return ""
        if not is_name(value):
            self.problems.append(not_a_name(path, value))
            return ""
        return value

    def first(self, paths: Iterable[str], at: Any = None, prefix: str = "") -> tuple[str, Any]:
        """Path and value of the first of the paths at which something is written; ("", None) without one."""
        base = self.root if at is None else at
        for path in paths:
            if (value := at_path(base, path)) is not None:
                return prefix + path, value
        return "", None


def shown(value: Any) -> str:
    """A value in a message. `repr` of a tenant's value may recurse too deeply, or be refused for its digits."""
    match value:
        case str():
            return sanitized(repr(value[:80]), 80)
        case bool() | float() | None:
            return repr(value)
        case int():
            return str(value) if value.bit_length() <= 128 else f"a number of {value.bit_length()} bits"
        case Mapping():
            return "an object"
        case list() | tuple():
            return "a list"
    return f"a {type(value).__name__}"


def at_path(value: Any, path: str) -> Any:
    """The value at a path of keys; None if there is none."""
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def texts(value: Any) -> Mapping[str, str]:
    """Labels or annotations: entries that are texts."""
    if not isinstance(value, Mapping):
        return {}
    return {key: text for key, text in value.items() if isinstance(key, str) and isinstance(text, str)}


def seconds(value: Any) -> float:
    """RFC 3339 as seconds since the epoch; 0 if it is none."""
    if not isinstance(value, str):
        return 0.0
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
