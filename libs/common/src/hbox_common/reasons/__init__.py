"""The catalogue of reasons and the one renderer of explanations, in English and Chinese."""

from .codes import CODES, Code, code_of
from .render import Language, change_text, headline, lines

__all__ = ["CODES", "Code", "Language", "change_text", "code_of", "headline", "lines"]
