"""Messages that the broker itself published for a client, and how their receivers recognize them.

A client that may send a request to JetStream names any subject for its answer, and the broker does not check that subject. An answer to a direct get is a copy
of a stored message, with the publisher's own headers and body: a client could thereby let the broker publish the client's content on a subject on which only
another user may publish. To such copies the broker adds headers, which no publisher of ours sets. Other answers (acknowledgements, JSON) are not readable as
messages. A consumer with a `deliver_subject` delivers unchanged messages, with a reply subject below `$JS.`, to clients of exactly that subject.
"""

from collections.abc import Mapping

from hbox_common.errors import InvalidRequest

#: Set by the broker in answers to direct gets, in republished and in sourced messages.
COPY_HEADERS = frozenset(
    {
        "Nats-Stream",
        "Nats-Subject",
        "Nats-Sequence",
        "Nats-Time-Stamp",
        "Nats-Last-Sequence",
        "Nats-Num-Pending",
        "Nats-Stream-Source",
    }
)
#: Set by `Connection` where one of COPY_HEADERS occurs twice: a direct get of a message that is a copy already.
COPIED = "hbox-copied"

#: Begin the inboxes of clients: of the platform's users (`micro.inbox_of`), and of NATS' own tools.
_INBOXES = ("_INBOX_", "_INBOX.")


def refuse_copy(subject: str, headers: Mapping[str, str], *, direct_get: bool = False) -> None:
    """Raises InvalidRequest if a message that was published on `subject` is a copy. `direct_get`: the message is itself an answer to our direct get."""
    if COPIED in headers or (not direct_get and not COPY_HEADERS.isdisjoint(headers)):
        raise InvalidRequest(
            f"{subject}: it was copied by the broker from another subject, which no publisher of ours requests"
        )


def is_request(reply: str, headers: Mapping[str, str] | None) -> bool:
    """Whether a client sent a message directly and asks for the answer in an inbox: a server with a free choice of subjects would be led to publish on its own
    ones."""
    return reply.startswith(_INBOXES) and COPY_HEADERS.isdisjoint(headers or {})
