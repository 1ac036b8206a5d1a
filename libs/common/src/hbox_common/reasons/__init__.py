"""The catalogue of reasons and the one renderer of explanations, in English and Chinese."""

from .code import Code, Language, Text
from .codes import CODES, code_of, code_of_label, code_of_message
from .render import blocked, change_text, duration, headline, language_of, lines, owner_text, trace_line, verdict_line, waited

__all__ = [
    "CODES",
    "Code",
    "Language",
    "Text",
    "blocked",
    "change_text",
    "code_of",
    "code_of_label",
    "code_of_message",
    "duration",
    "headline",
    "language_of",
    "lines",
    "owner_text",
    "trace_line",
    "verdict_line",
    "waited",
]
