"""Permissions on a broker with users: one user per service, limited to the subjects that the message registry assigns to it.

A service publishes the types that it writes, sends the requests that it may ask, and answers into the inboxes of the clients of its endpoints. It reads streams
that contain types for it: through its own durable consumers, and through ephemeral consumers (with random names, which no other user may list). JetStream's
permissions are per stream, so a reader of one subject of a stream may read its others. Any service may create a missing stream, with any
configuration: streams in memory do not survive a restart of the broker. Programs on nodes may not: they publish on subjects of their own, and read the last
values of these, or of decisions about them. Only `ADMIN` may change or delete streams, delete messages, or inspect the consumers of
others.

Readers check the source that a message names (`Delivery`, `writers_only`); the broker ensures that a service cannot publish another service's types.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hbox_common.events import REGISTRY, Event, Stream, token_of

from .micro import OF, PREFIX, inbox_of
from .streams import LIMITS

#: The services' names, as the registry has them among writers and readers.
SERVICES = (
    "topology-collector",
    "job-controller",
    "scheduler-core",
    "quota-ledger",
    "binder",
    "health-monitor",
    "node-agent",
    "console",
)

#: Services whose endpoints another service calls.
CALLS: Mapping[str, tuple[str, ...]] = {"console": ("scheduler-core",)}

#: User of the `hbox` command: reads every stream and sends every request that changes nothing, and publishes only dead letters.
OPERATOR = "hbox-cli"

#: As OPERATOR, whose inbox it shares, and sends orders to health-monitor.
ORDERS = "hbox-orders"

#: A user for all nodes' agents, unless the callout admits each for its node (`agent_of`).
AGENT = "node-agent"

#: Executes remedies on one node (`remedy_of`); no user of it may publish about all nodes.
REMEDY = "node-remedy"

#: Services with endpoints for readers of single queues.
ANSWERS_READERS = ("quota-ledger", "job-controller")

#: Creates and corrects streams.
ADMIN = "admin"

#: Answers the broker about clients without a key (callout.py).
CALLOUT = "callout"
CALLOUT_SUBJECT = "$SYS.REQ.USER.AUTH"
#: Where nats-server waits for those answers.
SERVER_INBOX = "$SYS._INBOX."

#: Names in the registry that differ from the user's name.
_IN_REGISTRY = {OPERATOR: "cli"}

#: Durable consumers: owner and stream.
DURABLES: Mapping[str, tuple[str, Stream]] = {
    "quota-ledger-plans": ("quota-ledger", Stream.PLANS),
    "quota-ledger-outcomes": ("quota-ledger", Stream.OUTCOMES),
    "quota-ledger-pods": ("quota-ledger", Stream.JOBS),
    "binder-evictions": ("binder", Stream.DECISIONS),
    "binder-binds": ("binder", Stream.DECISIONS),
    "binder-nodes": ("binder", Stream.DECISIONS),
    "health-monitor-reports": ("health-monitor", Stream.REPORTS),
    "health-monitor-remedies": ("health-monitor", Stream.OUTCOMES),
    "health-monitor-gate": ("health-monitor", Stream.OUTCOMES),
}

#: Begins the subjects of public events; the next tokens are the domain, the event, the queue (`_`: none), and the job or node.
EVENTS_ROOT = "hbox.v2.event"

#: In place of a reader's queues: all queues, and nodes.
ALL_QUEUES = "*"

_CONSUMER = "$JS.API.CONSUMER"
_CONSUMING = ("CREATE", "INFO", "DELETE", "MSG.NEXT")

#: Discovery verbs of NATS micro services.
_VERBS = ("PING", "INFO", "STATS")


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects, in nats-server's syntax; a denied subject overrides an allowed one."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    publish_denied: tuple[str, ...] = ()

    def block(self) -> str:
        """As in nats-server's configuration, where an empty list of allowed subjects allows everything."""
        publish = {"allow": self.publish, "deny": self.publish_denied} if self.publish else {"deny": [">"]}
        return json.dumps({"publish": publish, "subscribe": {"allow": self.subscribe} if self.subscribe else {"deny": [">"]}})


def users(readers: Iterable[str] = ()) -> dict[str, Permissions]:
    """All users of a platform, by name. `readers`: external users that `ANSWERS_READERS` may answer."""
    every = {user: _of(user) for user in (*SERVICES, OPERATOR)} | {AGENT: _agent(AGENT)}
    orders = tuple(t.subject() for t in REGISTRY.values() if ORDERS in t.about.writers)
    every[ORDERS] = replace(every[OPERATOR], publish=(*every[OPERATOR].publish, *orders))
    inboxes = tuple(f"{inbox_of(reader)}.>" for reader in sorted(readers))
    for user in ANSWERS_READERS:
        every[user] = replace(every[user], publish=(*every[user].publish, *inboxes))
    return every | {
        ADMIN: Permissions((">",), (">",)),
        CALLOUT: Permissions((f"{SERVER_INBOX}>",), (CALLOUT_SUBJECT, f"{inbox_of(CALLOUT)}.>")),
    }


def read_only(name: str, queues: Iterable[str]) -> Permissions:
    """Permissions of an external program: it receives the live events of these queues, reads their public events through durable consumers of its own, and
    sends requests about them to micro services, on subjects that contain the queue and the reader, on which no other user may publish.

    A consumer reads a whole stream unless it has a filter, so a reader may create only consumers whose filter is in the subject of the request: the broker
    rejects the request if the consumer's configuration has another filter. `ALL_QUEUES`: the public events of all queues and of nodes.
    """
    if ALL_QUEUES in queues:
        consumer = consumer_of(name)
        return Permissions(
            publish=_consuming(consumer, f"{EVENTS_ROOT}.>"), subscribe=(f"{EVENTS_ROOT}.>", f"{inbox_of(name)}.>")
        )
    tokens = [token_of(queue) for queue in sorted(set(queues))]
    event_subjects = [
        ".".join(
            queue if part == "{queue}" else "*" if part.startswith("{") else part for part in type_.about.subject.split(".")
        )
        for type_ in REGISTRY.values()
        if "integrators" in type_.about.readers and "{queue}" in type_.about.subject
        for queue in tokens
    ]
    asked = [f"{PREFIX}.*.*.{OF}.{queue}.{token_of(name)}" for queue in tokens]
    for queue in sorted(set(queues)):
        asked += _consuming(consumer_of(name, queue), events_of(queue))
    return Permissions(publish=tuple(asked), subscribe=(*sorted(event_subjects), f"{inbox_of(name)}.>"))


def agent_user(node: str) -> str:
    """The user of the agent of one node."""
    return f"{AGENT}-{token_of(node)}"


def agent_of(node: str) -> Permissions:
    """Permissions of the agent of one node: it publishes messages about that node only, reads their last values, and has an inbox of its own."""
    return _agent(agent_user(node), node)


def _agent(user: str, *keys: str) -> Permissions:
    """Of one node, or of all. No consumers and no streams: they have settings by which the broker publishes on subjects of the client's choice."""
    own = [(t, t.subject(*keys) if keys else t.filter()) for t in REGISTRY.values() if AGENT in t.about.writers]
    gets = [f"$JS.API.DIRECT.GET.{t.about.stream}.{subject}" for t, subject in own]
    return Permissions(publish=tuple(sorted([*(subject for _, subject in own), *gets])), subscribe=(f"{inbox_of(user)}.>",))


def remedy_user(node: str) -> str:
    """The user of node-remedy on one node."""
    return f"{REMEDY}-{token_of(node)}"


def remedy_of(node: str) -> Permissions:
    """Permissions of node-remedy on one node: it reads the decisions about that node, and publishes their results."""
    types = [t for t in REGISTRY.values() if t.about.stream is not None]
    results = [t.subject(node) for t in types if REMEDY in t.about.writers]
    decisions = {t.subject(node): t.about.stream for t in types if REMEDY in t.about.readers}
    return Permissions(
        publish=(*results, *(f"$JS.API.DIRECT.GET.{stream}.{subject}" for subject, stream in decisions.items())),
        subscribe=(*decisions, f"{inbox_of(remedy_user(node))}.>"),
    )


def of_node(program: str, node: str) -> tuple[str, Permissions]:
    """The user of AGENT or REMEDY on one node, and its permissions."""
    return (agent_user(node), agent_of(node)) if program == AGENT else (remedy_user(node), remedy_of(node))


def consumer_of(reader: str, queue: str = "") -> str:
    """The name of a reader's durable consumer of HBOX_CLOUDEVENTS: of one queue, or of all. Names of readers contain no `_`, so two readers share none."""
    return f"{token_of(reader)}_{token_of(queue)}" if queue else token_of(reader)


def events_of(queue: str) -> str:
    """The filter of a queue's public events."""
    return f"{EVENTS_ROOT}.*.*.{token_of(queue)}.*"


def _consuming(consumer: str, filter_: str) -> tuple[str, ...]:
    stream = Stream.CLOUD_EVENTS
    return (
        f"{_CONSUMER}.CREATE.{stream}.{consumer}.{filter_}",
        f"{_CONSUMER}.INFO.{stream}.{consumer}",
        f"{_CONSUMER}.MSG.NEXT.{stream}.{consumer}",
        f"$JS.ACK.{stream}.{consumer}.>",
    )


def authorization(keys: Mapping[str, str], others: Mapping[str, Permissions] | None = None, *, issuer: str = "") -> str:
    """nats-server's `authorization` block; other users cannot connect. `keys`: public nkeys by user; `others`: users in addition to the platform's own.
    `issuer`: the account's public nkey by which user CALLOUT admits agents, and no key does; empty: AGENT's key admits them."""
    every = users(others or ()) | dict(others or {})
    keys = {user: key for user, key in keys.items() if not (issuer and user == AGENT)}
    lines = "\n".join(f"    {{ nkey: {keys[user]}, permissions: {every[user].block()} }} # {user}" for user in sorted(keys))
    # Clients with one of these keys do not depend on the callout.
    callout = f"  auth_callout {{ issuer: {issuer}, users: [{', '.join(sorted(keys.values()))}] }}\n" if issuer else ""
    return f"authorization {{\n  users: [\n{lines}\n  ]\n{callout}}}\n"


def _of(user: str) -> Permissions:
    name = _IN_REGISTRY.get(user, user)
    types = list(REGISTRY.values())
    stored = [t for t in types if t.about.stream is not None]
    questions = [t for t in types if _is_question(t)]
    publish = [t.filter() for t in stored if {name, "all"} & {*t.about.writers}]
    publish += [t.subject() for t in questions if name in t.about.writers]
    subscribe = [f"{inbox_of(user)}.>"]
    if user == OPERATOR:
        publish += [f"{PREFIX}.>", "$SRV.>"]
    else:
        answered = [t for t in questions if name in t.about.readers]
        askers = {OPERATOR, ADMIN, *(_user(asker) for t in answered for asker in t.about.writers)}
        askers |= {caller for caller, called in CALLS.items() if user in called}
        publish += [f"{PREFIX}.{called}.*" for called in CALLS.get(user, ())]
        publish += [f"{inbox_of(asker)}.>" for asker in askers]
        subscribe += [f"{PREFIX}.{user}.>", *(t.subject() for t in answered)]
        subscribe += [f"$SRV.{verb}{of}" for verb in _VERBS for of in ("", f".hbox-{user}", f".hbox-{user}.*")]
    readers = {name, "operators"} if user == OPERATOR else {name}
    read = {t.about.stream for t in stored if t.about.stream is not None and readers & {*t.about.readers}}
    written = {t.about.stream for t in stored if t.about.stream is not None and name in t.about.writers}
    allowed, denied = _jetstream(user, read, written)
    return Permissions(tuple(sorted({*publish, *allowed})), tuple(sorted(set(subscribe))), tuple(sorted(denied)))


def _jetstream(user: str, read: set[Stream], written: set[Stream]) -> tuple[list[str], list[str]]:
    """Requests to JetStream's API that a user may send, and those that are denied nevertheless."""
    allowed = [f"$JS.API.STREAM.INFO.{stream}" for stream in Stream]
    if user != OPERATOR:
        allowed += [f"$JS.API.STREAM.CREATE.{stream}" for stream in Stream]
    allowed += [f"$JS.API.DIRECT.GET.{stream}" for stream in read | written]
    consumed = read | {
        stream for stream in written if LIMITS[stream].last_value
    }  # after a restart, a writer continues from its last value
    allowed += [f"{_CONSUMER}.{verb}.{stream}.*" for stream in consumed for verb in _CONSUMING]
    denied: list[str] = []
    for durable, (owner, stream) in DURABLES.items():
        if owner == user:
            allowed += [f"{_CONSUMER}.DURABLE.CREATE.{stream}.{durable}", f"$JS.ACK.{stream}.{durable}.>"]
            denied += [f"{_CONSUMER}.DELETE.{stream}.{durable}"]
        elif stream in consumed:
            denied += [f"{_CONSUMER}.{verb}.{stream}.{durable}" for verb in _CONSUMING]
    return allowed, denied


def _is_question(type_: type[Event]) -> bool:
    """Requests are subscribed to; pages of their answers go to the inbox of the client, whatever their subject."""
    return type_.about.stream is None and "asker" in type_.model_fields


def _user(in_registry: str) -> str:
    return {called: user for user, called in _IN_REGISTRY.items()}.get(in_registry, in_registry)
