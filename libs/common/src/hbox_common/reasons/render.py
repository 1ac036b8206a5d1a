"""Explanations as text: the same words in `hbox why`, conditions, Events, the API and the console."""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from hbox_common.model.explanation import Change, ChangeKind, Explanation, Fact

from .codes import CODES


class Language(StrEnum):
    """Of a text."""

    EN = "en"
    ZH = "zh"


#: English and Chinese.
_CHANGES = {
    ChangeKind.PODS: ("{pods} pods start now", "{pods} 个 Pod 可立即启动"),
}


def headline(explanation: Explanation, language: Language = Language.EN) -> str:
    """One line: outcome, and the code's text with the explanation's facts."""
    code = CODES.get(explanation.code)
    if code is None:  # of a newer scheduler
        return f"{explanation.outcome}: {explanation.code}"
    return f"{explanation.outcome}: {_filled(code.en if language is Language.EN else code.zh, explanation.facts)}"


def lines(explanation: Explanation, language: Language = Language.EN) -> Iterator[str]:
    """The whole explanation, the headline first."""
    yield headline(explanation, language)
    for change in explanation.changes:
        yield f"  {change_text(change, language)}"


def change_text(change: Change, language: Language = Language.EN) -> str:
    """One proposed change: what to do, who may do it, and the command."""
    template = _CHANGES[change.kind][language is Language.ZH]
    return _filled(template, change.facts) + (f": {change.command}" if change.command else "")


def _filled(template: str, facts: Mapping[str, Fact]) -> str:
    return template.format_map({name: _text(value) for name, value in facts.items()})


def _text(value: Fact) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value) if isinstance(value, int | str) else ", ".join(value)
