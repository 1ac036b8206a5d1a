"""Untrusted text made safe for display: nothing in it moves the cursor, hides text, or changes the text direction.

Tenants write names, annotations, messages and Events, and terminals interpret control characters in them: `ESC[2J` clears the screen, U+202E reverses a line, a
line break forges a line. Such characters are shown as in JSON (`\\u001b`), so that JSON may be treated the same way without changing its meaning.
"""

import re
import unicodedata

#: Controls (C0 without tab, delete, C1), marks of direction, separators of lines, the byte order mark, halves of surrogate pairs.
_HIDDEN = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_UNSEEN = re.compile(f"[{_HIDDEN}]")
_UNSEEN_OR_BREAK = re.compile(f"[\n\t{_HIDDEN}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """One line: line breaks and tabs are escaped too."""
    return _UNSEEN_OR_BREAK.sub(_escaped, text) if _UNSEEN_OR_BREAK.search(text) else text


def visible_lines(text: str) -> str:
    """Several lines: line breaks and tabs are meant."""
    return _UNSEEN.sub(_escaped, text) if _UNSEEN.search(text) else text


def _escaped(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}"


def width(text: str) -> int:
    """Columns of a terminal that the text takes: Chinese characters take two."""
    return len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def padded(text: str, columns: int) -> str:
    """The text, with spaces up to so many columns of a terminal."""
    return text + " " * max(0, columns - width(text))
