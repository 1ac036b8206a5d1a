"""Requests of plugins to external services, and the port through which a session sends them. Adapters implement the port."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hbox_common.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Question:
    """An HTTP POST with a JSON body; the response is JSON."""

    url: str
    body: str
    timeout_s: float


class Ask(Protocol):
    """Port to external services."""

    def __call__(self, question: Question, /) -> Mapping[str, Any] | None:
        """Return the answer; None = it is pending, and its arrival retries the waiting jobs. Raises Unavailable, with the reason, if there is none."""
        ...


def no_webhooks(question: Question, /) -> Mapping[str, Any] | None:
    """Port of sessions without external services: always raises Unavailable."""
    raise Unavailable(f"{question.url}: no requests are sent from here")
