"""Placeholders of texts, filled with facts.

Facts come from tenants' objects too: names are made visible, long ones are cut, and lists are limited. A text never fails for a missing fact: its optional
parts, in square brackets, are left out, and without a required fact the caller uses the code's title.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from hbox_common.model.explanation import Fact
from hbox_common.visible import visible

from .code import Language, Text

#: Maximum characters of one name or detail, and names of a list.
MAX_NAME, MAX_DETAIL, MAX_NAMES = 80, 400, 20

#: Every placeholder, with its meaning and an example.
FACTS: Mapping[str, tuple[str, Fact]] = {
    "ahead": ("jobs of the queue that come before this one", 3),
    "lent": ("what idle cards leave of a node to a pod without cards", 28),
    "among": ("nodes that the statement is about, if not all", 4),
    "by": ("queue or person that causes the state", "research"),
    "cards": ("cards that one pod requests, or that are reclaimed", 8),
    "count": ("nodes, pods or jobs that the code counts", 2),
    "detail": ("the limit, quota or refusal in the words of its component", "64 cards of 64 are in use"),
    "domain": ("HyperNode", "leaf-0"),
    "fit": ("pods of the gang that fit now", 13),
    "free": ("cards free on all nodes together", 12),
    "free_mib": ("largest free memory of one card, in MiB", 4_000),
    "group": ("PodGroup", "train"),
    "key": ("label key", "zone"),
    "known": ("existing names", ["research", "vision"]),
    "label": ("label key of the pod", "scheduling.x-k8s.io/pod-group"),
    "labels": ("labels of nodes that the pod requires", ["zone=a", "disk=ssd"]),
    "largest": ("the largest amount that one node or queue has", 8),
    "largest_mib": ("memory of the largest card, in MiB", 81_559),
    "model": ("card model that the pod requests", "H1OO"),
    "models": ("card models of these nodes", ["A100", "H100"]),
    "most": ("pods that fit if nothing else runs", 16),
    "name": ("name of the object", "urgent"),
    "namespace": ("namespace of the job", "ml"),
    "nearest": ("existing name that is most similar", "H100"),
    "need": ("amount that one pod or the job requests", 500),
    "need_mib": ("card memory that the pod requests, in MiB", 200_000),
    "nodes": ("names of nodes", ["node-0001", "node-0002"]),
    "pods": ("pods that have to start together", 20),
    "queue": ("queue of the job", "research"),
    "queues": ("queues that hold the cards", ["research (96)", "vision (32)"]),
    "resource": ("resource name", "cpu"),
    "room": ("pods that the domain has room for", 4),
    "short": ("pods or nodes that are missing", 1),
    "spare": ("cards free that are too few for the pod", 1),
    "state": ("state of the queue", "Closed"),
    "tier": ("highest allowed tier", 1),
    "total": ("cards that the pod may use, free or not", 128),
    "until_at": ("expected time, in seconds since the epoch", 1_772_460_720.0),
    "value": ("label value", "moon"),
}

_PART = re.compile(r"\[([^\]]*)\]|([^\[]+)")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
#: A counted noun of an English text, and the verb that agrees with it.
_SINGULAR_VERBS = {
    "are": "is", "come": "comes", "do": "does", "exist": "exists", "get": "gets", "give": "gives", "have": "has", "keep": "keeps", "lack": "lacks",
    "match": "matches", "take": "takes", "wait": "waits",
}  # fmt: skip
_COUNTED = re.compile(
    r"(?P<of>\b(?:of|on|from) )?\{(?P<fact>\w+)\} (?P<running>running )?(?P<noun>card|job|node|pod)s\b"
    rf"(?:(?P<that> that)? (?P<verb>{'|'.join(_SINGULAR_VERBS)})\b)?"
)


def placeholders(template: str) -> set[str]:
    """Names of all facts of a template."""
    return set(_PLACEHOLDER.findall(template))


def filled(template: str, facts: Mapping[str, Fact], language: Language = Language.EN) -> str | None:
    """The text with these facts; None if one is missing that is not in an optional part."""
    known = {name for name, value in facts.items() if value not in ("", (), [])}
    out = []
    for part in _PART.finditer(template):
        optional, required = part.groups()
        text = optional if required is None else required
        if not placeholders(text) <= known:
            if required is not None:
                return None
            continue
        if language is Language.EN:
            text = _COUNTED.sub(lambda found: _singular(found) if facts[found["fact"]] == 1 else found[0], text)
        out.append(_PLACEHOLDER.sub(lambda found: fact_text(found[1], facts[found[1]], language), text))
    return "".join(out)


def _singular(counted: re.Match[str]) -> str:
    """Of "the cards of one node are in use" the verb agrees with the cards."""
    of, fact, running, noun, that, verb = counted.groups(default="")
    agrees = verb if of and not that else _SINGULAR_VERBS.get(verb, "")
    return f"{of}{{{fact}}} {running}{noun}{that}" + (f" {agrees}" if verb else "")


def fact_text(name: str, value: Fact, language: Language = Language.EN) -> str:
    """One fact: times in UTC, numbers without needless digits, names made visible and cut."""
    if isinstance(value, str):
        return clean(value, MAX_DETAIL if name == "detail" else MAX_NAME)
    if isinstance(value, int | float):
        return time_text(value) if name.endswith("_at") else number(value)
    return names(value, language)


def names(values: Sequence[str], language: Language = Language.EN, more: int = 0) -> str:
    """A list of names, at most MAX_NAMES of them. `more`: how many `values` does not have."""
    shown = ", ".join(clean(one) for one in values[:MAX_NAMES])
    more += max(0, len(values) - MAX_NAMES)
    return shown if more <= 0 else shown + _AND_MORE.of(language).format(more)


_AND_MORE = Text(" and {} more", " 等另外 {} 个")


def clean(text: str, most: int = MAX_NAME) -> str:
    """Untrusted text as part of one line."""
    text = visible(text[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"


def number(value: float) -> str:
    """Without needless digits, never in powers of ten."""
    return str(int(value)) if value == int(value) else f"{value:.3f}".rstrip("0").rstrip(".")


def time_text(at: float) -> str:
    """Seconds since the epoch as date and time in UTC."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, OSError, ValueError):
        return "?"
