"""Base class of all messages on the bus, and the registry of message types.

A message is a frozen pydantic model whose fields are the nouns of `model`: pydantic validates their dataclasses on every consume, so that a core receives only
well-formed data. New fields need a default; a change that breaks readers needs a new type under a new version (`extra` is ignored, so that old readers accept
messages of new writers).

Values that a message contains by the thousand (the 1,024 placements of a gang) are plain dataclasses, never modified: frozen dataclasses or models cost three
times as much, more than the placement itself. The receiver validates them like all other data.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, ClassVar, TypeVar
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from hbox_common.model import Epoch, Index
from hbox_common.model.bounds import INT64_MAX
from hbox_common.model.wire import BOUNDS


class Stream(StrEnum):
    """JetStream streams; their limits are in `hbox_common.bus.streams`."""

    STATE = "HBOX_STATE"
    JOBS = "HBOX_JOBS"
    PLANS = "HBOX_PLANS"
    DECISIONS = "HBOX_DECISIONS"
    OUTCOMES = "HBOX_OUTCOMES"
    EVENTS = "HBOX_EVENTS"
    CLOUD_EVENTS = "HBOX_CLOUDEVENTS"
    REPORTS = "HBOX_REPORTS"
    INCIDENTS = "HBOX_INCIDENTS"
    DEAD = "HBOX_DLQ"


@dataclass(frozen=True, slots=True)
class About:
    """Properties of a message type, listed in the bus reference.

    `subject` is the subject's template: `hbox.v1.<domain>.<event>` and then one `{key}` per key token. `stream` is None for request and reply. `items`: fields
    with independent items: an invalid item is set aside and the others are accepted, and a message that is too large is split into several. `whole`: readers
    treat each message as the complete state; such a message is never split.
    """

    subject: str
    stream: Stream | None
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    max_bytes: int = 256 * 1024
    items: tuple[str, ...] = ()
    whole: bool = False


#: Epochs come from clocks, in seconds, and indexes count changes: no valid value is far beyond either, and no later value could follow one.
SaidEpoch = Annotated[Epoch, Field(ge=0, le=2**40)]
SaidIndex = Annotated[Index, Field(ge=0, le=2**53)]


#: Of a core schema, what is no schema itself.
NO_SCHEMA = frozenset({"cls", "config", "default", "metadata"})


def _hold_to_int64(schema: Any, handler: GetCoreSchemaHandler, seen: set[str]) -> None:
    if isinstance(schema, list):
        for one in schema:
            _hold_to_int64(one, handler, seen)
    elif isinstance(schema, dict):
        if schema.get("type") == "int":
            schema.setdefault("le", INT64_MAX)
        elif schema.get("type") == "definition-ref":
            if schema["schema_ref"] not in seen:
                seen.add(schema["schema_ref"])
                _hold_to_int64(handler.resolve_ref_schema(schema), handler, seen)
        else:
            for key, one in schema.items():
                if key not in NO_SCHEMA:
                    _hold_to_int64(one, handler, seen)


class Event(BaseModel):
    """Base of all messages. Each concrete class names its `about`; its CloudEvents type is `io.hbox.v1.<domain>.<event>`."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, str_max_length=BOUNDS["str_max_length"])

    about: ClassVar[About]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Limits every integer of the message and of its dataclasses to the range of a database integer."""
        schema = handler(source)
        _hold_to_int64(schema, handler, set())
        return schema

    @property
    def closes(self) -> bool:
        """Whether it is the last value of its subject: what it is about is gone. The broker keeps such a one for a day."""
        return False

    @property
    def lasts_s(self) -> int:
        """Seconds for which the broker keeps the message; 0: as long as its stream keeps messages."""
        return 0

    @property
    def own_id(self) -> str:
        """The message id that the event itself determines; empty: the publisher chooses one."""
        return ""

    @classmethod
    @cache
    def ce_type(cls) -> str:
        return "io." + ".".join(token for token in cls.about.subject.split(".") if not token.startswith("{"))

    @classmethod
    def subject(cls, *keys: str) -> str:
        """The subject of one message: the template with its keys in place, each escaped to one token.

        Raises ValueError when the number of keys is not the template's.
        """
        fixed = [token for token in cls.about.subject.split(".") if not token.startswith("{")]
        if len(fixed) + len(keys) != cls.about.subject.count(".") + 1:
            raise ValueError(f"{cls.__name__} takes {cls.about.subject}, not {len(keys)} keys")
        return ".".join(fixed + [token_of(key) for key in keys])

    @classmethod
    def filter(cls, *keys: str | None) -> str:
        """The subject with a wildcard for every key that is None, or for all keys if none is given: a consumer's filter.

        Raises ValueError if the number of keys is not the template's.
        """
        if not keys:
            return ".".join("*" if token.startswith("{") else token for token in cls.about.subject.split("."))
        subject = cls.subject(*(key or "" for key in keys)).split(".")
        fixed = len(subject) - len(keys)
        return ".".join([*subject[:fixed], *("*" if key is None else token_of(key) for key in keys)])


E = TypeVar("E", bound=type[Event])

REGISTRY: dict[str, type[Event]] = {}


def register(event: E) -> E:
    """Class decorator: makes a message type known to codec, bus and documents."""
    name = event.ce_type()
    if name in REGISTRY:
        raise ValueError(f"two message types are called {name}")
    REGISTRY[name] = event
    return event


_ESCAPED = re.compile(r"[^a-z0-9-]", re.DOTALL)

#: Of one token, in bytes. The broker closes a connection over a line with the subject of more than 4 KiB, and no subject has more than four keys. Every name
#: that Kubernetes allows is shorter when it is escaped.
TOKEN_BYTES = 640


def token_of(text: str) -> str:
    """User text as one subject token: lower-case letters, digits and '-' unchanged, every other character as `_` and its hexadecimal code; a text longer than
    TOKEN_BYTES is cut and followed by `_x`, which no escape contains, and a digest of the whole.

    Injective, so that two names never share a subject; the empty text is `_`.
    """
    token = _ESCAPED.sub(lambda found: f"_{ord(found[0]):x}_", text) or "_"
    if len(token) <= TOKEN_BYTES:
        return token
    return f"{token[:64]}_x{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def shard_of(key: str, shards: int) -> str:
    """The shard of a key in a state that is published in `shards` parts: constant for each key."""
    return str(crc32(key.encode("utf-8", "surrogatepass")) % shards)
