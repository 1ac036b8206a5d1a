"""The small tree of errors that cross module walls.

A library's own errors are mapped to these once, at its adapter, with `from`. Unschedulable work is not an error: it is a result with reasons.
"""

from .redaction import redacted


class HBoxError(Exception):
    """Base class of all errors that HBox raises on purpose.

    `message` states the fault and its place; `hint` the remedy (may be empty). Passwords and tokens in addresses are removed from both.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        message = redacted(message)
        super().__init__(message)
        self.message = message
        self.hint = redacted(hint)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidRequest(HBoxError):
    """What came in is wrong and will be wrong again: the sender has to change it."""


class NotFound(InvalidRequest):
    """The thing named does not exist."""


class Conflict(HBoxError):
    """The thing changed meanwhile: look again, then decide anew."""


class Unavailable(HBoxError):
    """Another party does not answer, or asks to come back later: retrying may help.

    `outcome_unknown` is true when the request may have taken effect all the same; `retry_after_s` is the other party's wish, if it named one.
    """

    def __init__(
        self, message: str, *, hint: str = "", retry_after_s: float | None = None, outcome_unknown: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
        self.outcome_unknown = outcome_unknown


class Bug(HBoxError):
    """An invariant of ours is broken: stop rather than go on with a wrong state."""
