"""The HTTP API's objects. OpenAPI comes from these models (`openapi`); a test checks that what is served fits them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

BASE = "/api/v1"
API_VERSION = "hbox.io/v1"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)


class Problem(_Model):
    """An error (RFC 9457)."""

    status: int
    title: str
    detail: str
    code: str = Field(description="unauthenticated, not-allowed, not-found, invalid-request, conflict, unavailable, internal")
    hint: str = Field(description="What to do; may be empty.")


class PodCounts(_Model):
    bound: int
    members: int
    min: int


class Job(_Model):
    """A gang (PodGroup) or a single pod, as `hbox jobs -o json` prints it."""

    name: str = Field(description="namespace/name")
    id: str
    queue: str
    priority: int
    state: Literal["PENDING", "WAITING", "INVALID", "GROWING", "BOUND", "RUNNING"]
    pods: PodCounts
    placed: dict[str, str] = Field(description="Nodes by pod.")
    waiting: list[str] = Field(description="Pods without a node.")
    cards: int
    age_seconds: float
    reason: str = Field(description="Why it waits; names of other tenants are replaced.")
    verdict: str = Field(description="What ends the wait: wait, change or escalate; empty if that is not known.")
    code: str = Field(description="Of the reason (`hbox reason ls`).")
    owner: str = Field(description="Who acts: user, queue-admin, operator, system.")
    wait_seconds: dict[str, float] = Field(description="Its waiting by code of the reason.")
    trace_id: str = Field(description="Of its OpenTelemetry trace and log lines; empty if it is not known yet.")
    shard: str | None = None


class Queue(_Model):
    """A queue, as `hbox queue ls -o json` prints it. Amounts are base units by resource name."""

    name: str
    parent: str
    depth: int
    state: str
    weight: int
    priority: int
    reclaimable: bool
    guarantee: dict[str, int]
    deserved: dict[str, int]
    by_weight: dict[str, int]
    capability: dict[str, int]
    used: dict[str, float]
    borrowed: dict[str, float]
    idle: dict[str, float]
    pools: list[str]
    home: str
    borrows_from: list[str]
    lent_pools: list[str]
    lent_to: list[str]
    namespaces: list[str]
    bound: bool
    priority_classes: list[str]
    non_preemptible_classes: list[str]
    pending_jobs: int
    pending_cards: int
    oldest_pending_seconds: float
    faults: list[str]


class CardCounts(_Model):
    free: float
    total: float
    free_percent: list[int]


class Node(_Model):
    """A node, as `hbox nodes -o json` prints it. `cardsByQueue`: queues that the client may not see are one sum, `others`."""

    name: str
    state: Literal["READY", "CORDONED", "NOT-READY"]
    pool: str
    model: str
    cards: CardCounts
    healthy: bool
    health: dict[str, Any]
    bad_cards: list[int]
    pods: int
    cards_by_queue: dict[str, int]
    used: dict[str, int]
    allocatable: dict[str, int]
    refuses: list[dict[str, Any]]
    device_plugin: dict[str, Any] | None
    kubelet_report: dict[str, Any] | None
    reason: str


class JobDocument(Job):
    api_version: Literal["hbox.io/v1"]
    kind: Literal["Job"]


class QueueDocument(Queue):
    api_version: Literal["hbox.io/v1"]
    kind: Literal["Queue"]


class NodeDocument(Node):
    api_version: Literal["hbox.io/v1"]
    kind: Literal["Node"]


class ListMetadata(_Model):
    revision: int = Field(description="Of the service's state; increases with every change.")
    continue_: str = Field(alias="continue", description="Cursor of the next page; empty = this is the last one.")


class Others(_Model):
    """Queues that the client may not see, as one sum."""

    queues: int
    used: dict[str, float]
    pending_jobs: int
    pending_cards: int


class QueueListMetadata(ListMetadata):
    others: Others


class JobList(_Model):
    api_version: Literal["hbox.io/v1"]
    kind: Literal["JobList"]
    metadata: ListMetadata
    items: list[Job]


class QueueList(_Model):
    api_version: Literal["hbox.io/v1"]
    kind: Literal["QueueList"]
    metadata: QueueListMetadata
    items: list[Queue]


class NodeList(_Model):
    api_version: Literal["hbox.io/v1"]
    kind: Literal["NodeList"]
    metadata: ListMetadata
    items: list[Node]


class Rights(_Model):
    """`jobs`, `queues`: true = all of them; false = those of single namespaces and queues."""

    jobs: bool
    queues: bool
    nodes: bool


class ExplanationDocument(_Model):
    """Why a job waits. `explanation`: null if it waits for nothing."""

    api_version: Literal["hbox.io/v1"]
    kind: Literal["JobExplanation"]
    explanation: dict[str, Any] | None


class FailedRule(_Model):
    label: str = Field(description="As in the counts of nodes of an explanation.")
    code: str = Field(description="Of the reason (`hbox reason ls`); empty: the label has none.")


class NodeExplanation(_Model):
    """The rules that one node fails for a pod of a waiting job, in the order in which reasons are given; none: the node has room."""

    api_version: Literal["hbox.io/v1"]
    kind: Literal["NodeExplanation"]
    name: str
    id: str
    node: str
    failed: list[FailedRule]


class PlacementExplanation(_Model):
    """The decisions that gave a job its places, oldest first, of those that scheduler-core keeps, as `hbox why --placed -o json` prints them. `since`: when
    scheduler-core started, in seconds since the epoch. Without the right to list nodes, `runner_up` is null."""

    api_version: Literal["hbox.io/v1"]
    kind: Literal["PlacementExplanation"]
    name: str
    id: str
    since: float
    decisions: list[dict[str, Any]]


class PublicEvent(_Model):
    """A CloudEvent, as on the bus (docs/guides/events.md). `dataschema` names the schema of `data`."""

    specversion: Literal["1.0"]
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: Literal["application/json"]
    dataschema: str
    data: dict[str, Any]


class EventList(_Model):
    """Public events, oldest first, as `hbox events -o json` prints them. `metadata.continue` is always set: events come after it."""

    api_version: Literal["hbox.io/v1"]
    kind: Literal["EventList"]
    metadata: ListMetadata
    items: list[PublicEvent]


class Evictions(_Model):
    """Receipts of evictions, newest first, as `hbox why --evicted -o json` prints them."""

    api_version: Literal["hbox.io/v1"]
    kind: Literal["EvictionList"]
    metadata: ListMetadata
    items: list[dict[str, Any]]


class EvictionExplanation(_Model):
    """The evictions of a job or pod, and its jobs as they are now, as `hbox why --evicted -o json` prints them."""

    api_version: Literal["hbox.io/v1"]
    kind: Literal["EvictionExplanation"]
    name: str
    receipts: list[dict[str, Any]]
    now: list[Job]


class EvictionPause(_Model):
    """Whether the ledger's rate limit pauses evictions. `released`: the word that resumed them last."""

    api_version: Literal["hbox.io/v1"]
    kind: Literal["EvictionPause"]
    paused: bool
    message: str
    released: str


class CardList(_Model):
    """Cards by node, as `hbox nodes --devices -o json` prints them. A page ends with a node."""

    api_version: Literal["hbox.io/v1"]
    kind: Literal["CardList"]
    metadata: ListMetadata
    items: list[dict[str, Any]]


class NodeCards(_Model):
    """One node's cards with the pods that hold them, its NUMA nodes and its kubelet's allocations, as `hbox node show -o json` prints them."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel)

    api_version: Literal["hbox.io/v1"]
    kind: Literal["NodeCards"]
    name: str
    state: str
    pool: str
    cards: list[dict[str, Any]]


class UsageList(_Model):
    """As `hbox usage -o json`; queues, departments and users that the client may not see are `others`."""

    api_version: Literal["hbox.io/v1"]
    kind: Literal["UsageList"]
    since: int
    until: int
    items: list[dict[str, Any]]
    total: dict[str, Any]


class WhoAmI(_Model):
    api_version: Literal["hbox.io/v1"]
    kind: Literal["WhoAmI"]
    user: str
    groups: list[str]
    rights: Rights


class Document(_Model):
    """One object."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel)

    api_version: Literal["hbox.io/v1"]
    kind: str
