"""Splits a message into as many as needed: by bytes, not by counts, since one item may be a hundred times as long as another.

A message that fits is encoded once; a larger one is halved until its parts fit. If a single item does not fit into any message, it is reported and left out, so
that it does not block the others. Such an item should have been rejected where it entered the platform.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from hbox_common.errors import InvalidRequest
from hbox_common.events import Event, encode, halves

E = TypeVar("E", bound=Event)

#: Kept free of what the broker takes, for headers.
HEADERS = 4096

#: Called with the message of the one item that cannot be sent, and the reason.
Refused = Callable[[Event, InvalidRequest], None]


def parts(event: Event, most: int, refused: Refused) -> Iterator[tuple[Event, bytes]]:
    """Messages that together contain the items of `event`, in order, each with its body of at most `most` bytes."""
    try:
        body = encode(event)
        if len(body) > most:
            raise InvalidRequest(f"{event.ce_type()}: {len(body)} bytes, the broker takes {most}")
    except InvalidRequest as e:
        two = halves(event)
        if two is None:
            refused(event, e)
            return
    else:
        yield event, body
        return
    for half in two:
        yield from parts(half, most, refused)


def emptied(event: E) -> E:
    """The message without any items."""
    return event.model_copy(update={name: type(getattr(event, name))() for name in event.about.items})
