"""A message in as many as it takes: divided by bytes, not by counts, since one item may be a hundred times as long as another.

What fits is encoded once. What does not is halved until it does; an item that no message can carry alone is left out, and told of: it must not keep the others
back. It should have been refused where it entered the platform.
"""

from collections.abc import Callable, Iterator

from hbox_common.errors import InvalidRequest
from hbox_common.events import Event, encode, halves

#: Kept free of what the broker takes, for headers.
HEADERS = 4096

#: Is told of the message with the one item that cannot be sent, and why.
Refused = Callable[[Event, InvalidRequest], None]


def parts(event: Event, most: int, refused: Refused) -> Iterator[tuple[Event, bytes]]:
    """Messages that say together what `event` says, in its order, each with its body of at most `most` bytes."""
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


def emptied(event: Event) -> Event:
    """The message without any items."""
    return event.model_copy(update={name: type(getattr(event, name))() for name in event.about.items})
