"""One entry of the catalogue of reasons."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from hbox_common.model.explanation import Outcome, Owner, Stage


class Language(StrEnum):
    """Of a text."""

    EN = "en"
    ZH = "zh"


class Text(NamedTuple):
    """A text in both languages."""

    en: str
    zh: str

    def of(self, language: Language) -> str:
        """The text in this language."""
        return self.zh if language is Language.ZH else self.en


@dataclass(frozen=True, slots=True)
class Code:
    """One reason for which a job waits.

    `outcome`, `owner`: the usual ones; an explanation has its own. `title`: without placeholders. `text`: one line with placeholders in braces; a part in
    square brackets is left out if one of its facts is missing. `cause`, `fix`: sentences of its page.
    """

    name: str
    stage: Stage
    outcome: Outcome
    owner: Owner
    title: Text
    text: Text
    cause: Text
    fix: Text
