"""Events for programs outside HBox: CloudEvents 1.0 in JSON, structured mode, in HBOX_CLOUDEVENTS.

A body contains the attributes and `data`. The attributes that are constant for a type (`specversion`, `type`, `datacontenttype`, `dataschema`) are added by the
codec. `source` and `id` identify an event for ever: a publisher that repeats an event after a crash repeats both, and a consumer drops the repetition.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

from pydantic import ConfigDict, Field

from hbox_common.model import CardId, CardSlice, NodeName

from .base import About, Event, Stream, register

#: Of one event: nodes, and cards of one node, that are listed. The counts cover all.
MOST_NODES, MOST_CARDS = 64, 16

#: Resources of one amount of a queue, the first by name.
MOST_RESOURCES = 64

#: Characters of a free text.
MOST_TEXT = 1000


class CloudEvent(Event):
    """Base of the public events, which `public` declares. `kind` is the domain and the event, `entity` the attribute `subject`. Subclasses narrow `data`."""

    model_config = ConfigDict(populate_by_name=True, defer_build=True)  # most programs use none of them

    kind: ClassVar[str]
    version: ClassVar[int] = 1

    id: str
    source: str  #: /hbox/<service>
    entity: str = Field(alias="subject")
    time: str  #: RFC 3339, UTC
    data: Event

    @classmethod
    def of(cls, data: Event, *, at: float, id: str = "") -> Self:
        """The event with this data. `at`: seconds since the epoch; `id`: empty if the publisher assigns it later (`identified`)."""
        queue, job, node = (getattr(data, name, "") for name in ("queue", "job", "node"))
        entity = f"nodes/{node}" if node else f"queues/{queue}/jobs/{job}" if job else f"queues/{queue}"
        return cls(id=id, source=f"/hbox/{cls.about.writers[0]}", entity=entity, time=rfc3339(at), data=data)

    def identified(self, id: str) -> Self:
        return self.model_copy(update={"id": id})

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its subject on the bus."""
        node = getattr(self.data, "node", "")
        return (node,) if node else (getattr(self.data, "queue", ""), getattr(self.data, "job", ""))

    @classmethod
    @cache
    def ce_type(cls) -> str:
        return f"io.hbox.{cls.kind}.v{cls.version}"

    @classmethod
    @cache
    def dataschema(cls) -> str:
        """The name of the JSON Schema of `data`, as its `$id`; the file is docs/reference/events/<kind>.v<version>.json."""
        return f"urn:hbox:event:{cls.kind}:v{cls.version}"

    @property
    def own_id(self) -> str:
        return self.id

    def attributes(self) -> dict[str, Any]:
        """All of the event, as it is written: a map of JSON values."""
        content = self.model_dump(mode="json", by_alias=True)
        return {
            "specversion": "1.0",
            "id": content["id"],
            "source": content["source"],
            "type": self.ce_type(),
            "subject": content["subject"],
            "time": content["time"],
            "datacontenttype": "application/json",
            "dataschema": self.dataschema(),
            "data": content["data"],
        }


C = TypeVar("C", bound=type[CloudEvent])


def public(kind: str, writer: str, keys: str = "{queue}.{job}") -> Callable[[C], C]:
    """Class decorator of a public event: `kind` is <domain>.<event>, `keys` the end of its subjects."""

    def declare(event: C) -> C:
        event.kind = kind
        event.about = About(f"hbox.v2.event.{kind}.{keys}", Stream.CLOUD_EVENTS, (writer,), ("integrators", "cli", "console"))
        return register(event)

    return declare


def rfc3339(at: float) -> str:
    """`at`: seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Data(Event):
    """Base of the parts of `data`."""

    model_config = ConfigDict(defer_build=True)


class NodePlace(Data):
    """Pods of one job on one node, and their cards."""

    node: NodeName
    pods: int
    cards: tuple[CardId, ...] = ()  #: `gpu:UUID`, or `mig:UUID` of a MIG instance; MOST_CARDS at most
    card_count: int = 0  #: all cards, listed or not


class Places(Data):
    """Nodes and cards of some pods: MOST_NODES nodes are listed, the counts cover all."""

    nodes: tuple[NodePlace, ...] = ()
    node_count: int = 0
    pod_count: int = 0
    card_count: int = 0


def places_of(pods: Iterable[tuple[NodeName, Sequence[CardSlice]]]) -> Places:
    """`pods`: node and card slices of each pod. Nodes are listed by name, cards in the order of the slices."""
    count: dict[NodeName, int] = {}
    cards: dict[NodeName, dict[CardId, None]] = {}
    for node, slices in pods:
        count[node] = count.get(node, 0) + 1
        cards.setdefault(node, {}).update((one.card, None) for one in slices)
    return Places(
        nodes=tuple(
            NodePlace(node=node, pods=count[node], cards=tuple(cards[node])[:MOST_CARDS], card_count=len(cards[node]))
            for node in sorted(count)[:MOST_NODES]
        ),
        node_count=len(count),
        pod_count=sum(count.values()),
        card_count=sum(map(len, cards.values())),
    )
