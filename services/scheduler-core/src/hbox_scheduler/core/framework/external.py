"""What plugins may ask of others than the session: the question, and the port through which it goes. Adapters bring the answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hbox_common.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Question:
    """A POST of JSON, to be answered with JSON."""

    url: str
    body: str
    timeout_s: float


class Ask(Protocol):
    """The port."""

    def __call__(self, question: Question, /) -> Mapping[str, Any] | None:
        """The answer; None = it is on its way, and whoever waits for it is looked at again when it has come. Raises Unavailable that says why there is
        none."""
        ...


def nobody(question: Question, /) -> Mapping[str, Any] | None:
    """The port of sessions that ask nobody. Raises Unavailable."""
    raise Unavailable(f"{question.url}: no requests are sent from here")
