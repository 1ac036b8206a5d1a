"""JSON that is nested deeper than a decoder follows.

The API server accepts objects of any kind without a closed schema that are nested 10,000 levels deep; msgspec raises RecursionError at about 1,000, also for
fields that it skips. One such object must not end the watch of its kind. Fields that HBox reads are a few levels deep, so deeper ones are cut off.
"""

import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

#: Levels that are kept of a document that is nested too deeply.
LEVELS = 128

_FLAT = rb'"(?:[^"\\]++|\\.)*+"?|[^\]\[{}"]++'
#: Up to the next bracket, over strings and over values without inner brackets. A string without an end takes the rest.
_TO_BRACKET = re.compile(rb"(?:" + _FLAT + rb"|[\[{](?:" + _FLAT + rb")*+[\]}])*+[\]\[{}]", re.DOTALL)


def decoded(decoder: "msgspec.json.Decoder[T]", text: Any) -> T:
    """What `decoder` reads, without the values below LEVELS if `text` is nested too deeply. Raises msgspec.DecodeError."""
    try:
        return decoder.decode(text)
    except RecursionError:
        return decoder.decode(shallow(bytes(text)))


def shallow(text: bytes) -> bytes:
    """The document with null in place of each object and array below LEVELS. Of a text that is no JSON, a text that is none either."""
    kept: list[bytes] = []
    level = start = at = 0
    while (found := _TO_BRACKET.match(text, at)) is not None:
        at = found.end()
        if text[at - 1] in b"{[":
            level += 1
            if level == LEVELS + 1:
                kept += (text[start : at - 1], b"null")
        else:
            level -= 1
            if level == LEVELS:
                start = at
    if level <= LEVELS:
        kept.append(text[start:])
    return b"".join(kept)
