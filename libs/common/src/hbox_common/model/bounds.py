"""Size limits of everything that a tenant's object contributes, and sanitizing of untrusted text.

Kubernetes limits names and labels; annotations, messages and most lists are limited only by the size of the whole object (1.5 MiB in etcd). Values are checked
where they enter HBox, so that no later code has to handle a string that fits into no message, a number that fits into no database, or a name that makes the
broker close the connection. An object beyond a limit is rejected with a reason; a value is never truncated silently if that would change its meaning. Lengths
are bytes of UTF-8, as the broker and etcd count them.
"""

import re
from collections.abc import Mapping

INT64_MAX = 2**63 - 1
#: Of counts, priorities and tiers, as Kubernetes types them.
INT32_MAX = 2**31 - 1

#: RFC 1123 subdomains: the names of objects.
NAME_BYTES = 253
#: A qualified name: a subdomain, a slash, a label.
KEY_BYTES = NAME_BYTES + 1 + 63

#: Of one annotation that policies read. The longest that means anything lists the tasks of a job: thirty names as long as Kubernetes allows.
ANNOTATION_BYTES = 2048
#: Of an id of ours, as it is written on pods.
ID_BYTES = 128
#: Texts about an object: a condition holds 32 KiB and an Event 1 KiB, and longer texts are not read.
TEXT_BYTES = 1024

#: Resource names that one pod or PodGroup may ask for, host ports among them. Pods of today's operators name five.
RESOURCES = 64
#: Placement constraints (selectors, affinity, tolerations, spreading) together with the containers' requests, as JSON. Five thousand hosts can be excluded by
#: name.
SHAPE_BYTES = 96 * 1024
#: One value of a selector: labels have 63, names of nodes 253.
VALUE_BYTES = 253
#: Models that one pod may allow.
MODELS = 64
#: Claims on volumes of one pod.
VOLUMES = 128
#: Roles with a minimum, sub-groups, and the labels that these go by.
ROLES, SUB_GROUPS, SUB_GROUP_LABELS = 256, 64, 16
#: Of one resource that one pod asks for: 128 TiB, or as many thousandths of cores. A thousand times a node's; sixty thousand of them add up within int64.
MOST_OF_A_POD = 2**47

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
#: Control characters (C0, DEL, C1), line and paragraph separators, directional overrides, and halves of surrogate pairs.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def is_name(text: str) -> bool:
    """Whether an object of Kubernetes can be called so."""
    return len(text) <= NAME_BYTES and _SUBDOMAIN.fullmatch(text) is not None


def size(text: str) -> int:
    """Bytes of UTF-8; halves of surrogate pairs count as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def is_plain(text: str, most: int) -> bool:
    """Whether the text has at most so many bytes, and nothing that a terminal, a database or a subject chokes on."""
    return len(text) <= most and (text.isascii() or size(text) <= most) and _UNFIT.search(text) is None


def sanitized(text: str, most: int = TEXT_BYTES) -> str:
    """Untrusted text made safe to pass on: control and invalid characters become U+FFFD, and a text that is too long ends with an ellipsis."""
    text = _UNFIT.sub("\ufffd", text[: most + 1])
    if size(text) <= most:
        return text
    return text.encode()[: most - 3].decode("utf-8", "ignore") + "…"


def oversized(what: str, found: int, most: int) -> str:
    """A problem in words: too many of something."""
    return f"{what}: {found} are written, at most {most} are taken"


def not_plain(what: str, text: str, most: int) -> str:
    """A problem in words, of a text for which `is_plain` does not hold."""
    if (found := size(text)) > most:
        return f"{what} has {found} bytes, at most {most} are taken"
    return f"{what} has control characters: {sanitized(text, 64)}"


def not_a_name(what: str, text: str) -> str:
    """A problem in words, of a text for which `is_name` does not hold."""
    return f"{what} is {sanitized(text, 96)!r}, and no object of Kubernetes can be called so"


def plain_entries(entries: Mapping[str, str], most: int) -> tuple[dict[str, str], str]:
    """The entries with valid values, and the fault of the first other one."""
    kept: dict[str, str] = {}
    problem = ""
    for key, value in entries.items():
        if is_plain(value, most):
            kept[key] = value
        else:
            problem = problem or not_plain(f"annotation {key}", value, most)
    return kept, problem
