"""Regular expressions that come from outside: objects of Kubernetes, files, command lines.

They are matched by RE2 in time linear in the text, whatever is written, where Python's own engine takes years for `^([a-z]+)+X$`. It is also what Kubernetes'
and Volcano's programs read (Go's `regexp` has RE2's syntax), so that a pattern means the same here and there.
"""

from functools import lru_cache
from typing import Protocol

import re2

from .errors import InvalidRequest

#: Characters of one pattern, and bytes that RE2 may use for its automata.
MAX_LENGTH = 4096
MAX_MEMORY = 8 * 2**20


class Pattern(Protocol):
    def search(self, text: str, /) -> object | None:
        """Something where the pattern is found anywhere in the text, None elsewhere."""
        ...


@lru_cache(maxsize=1024)
def compiled(text: str) -> Pattern:
    """Raises InvalidRequest for what is no regular expression, or too long or too large a one."""
    if len(text) > MAX_LENGTH:
        raise InvalidRequest(f"is a pattern of {len(text)} characters", hint=f"write at most {MAX_LENGTH}")
    options = re2.Options()
    options.max_mem, options.log_errors = MAX_MEMORY, False
    try:
        pattern: Pattern = re2.compile(text, options)
    except (re2.error, ValueError) as e:  # ValueError: a lone half of a surrogate pair, which is no text
        detail = e.args[0] if e.args else e
        reason = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise InvalidRequest(
            f"is no regular expression: {reason}",
            hint="write one as Go and RE2 read it, without look-around and back-references",
        ) from e
    return pattern
