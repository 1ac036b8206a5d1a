"""Who may say and hear what on a closed broker: one user a service, with the subjects that the message registry gives it, and no other.

A service publishes what it is a writer of, asks what it is an asker of, and answers into the inboxes of those who may ask it. It reads streams that hold
something for it: by the durable consumers that are its own, and by consumers that it makes and forgets (their names are random, and nobody may list names).
JetStream's rights are by stream, so a reader of one subject of a stream may read its others. A stream that is missing may be made by any service, with
whatever configuration: streams in memory are gone when the broker starts anew. Nobody but `ADMIN` changes or deletes streams, takes messages out, or
looks at the consumers of others.

What a service names as the source of a message is checked by readers (`Delivery`, `writers_only`); that it cannot name what it is not, by the broker.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hbox_common.events import REGISTRY, Event, Stream, token_of

from .micro import OF, PREFIX, inbox_of
from .streams import LIMITS

#: The services' names, as the registry has them among writers and readers.
SERVICES = ("topology-collector", "job-controller", "scheduler-core", "quota-ledger", "binder", "health-monitor", "node-agent")

#: The commands of `hbox`, for whoever operates the platform: hears and asks everything, and says nothing but
#: what it could not read.
OPERATOR = "hbox-cli"

#: Who offers endpoints to readers of single queues.
ANSWERS_READERS = ("quota-ledger", "job-controller")

#: Makes and mends streams.
ADMIN = "admin"

#: What the registry calls them.
_IN_REGISTRY = {OPERATOR: "cli"}

#: Durable consumers: whose, and of which stream.
DURABLES: Mapping[str, tuple[str, Stream]] = {
    "quota-ledger-plans": ("quota-ledger", Stream.PLANS),
    "quota-ledger-outcomes": ("quota-ledger", Stream.OUTCOMES),
    "quota-ledger-pods": ("quota-ledger", Stream.JOBS),
    "binder-evictions": ("binder", Stream.DECISIONS),
    "binder-binds": ("binder", Stream.DECISIONS),
    "binder-nodes": ("binder", Stream.DECISIONS),
}

_CONSUMER = "$JS.API.CONSUMER"
_CONSUMING = ("CREATE", "INFO", "DELETE", "MSG.NEXT")

#: Of NATS' micro services: who is there.
_VERBS = ("PING", "INFO", "STATS")


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects, as nats-server takes them; what is denied is so although it is allowed."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    publish_denied: tuple[str, ...] = ()

    def block(self) -> str:
        """As nats-server's configuration has it. There an empty list of what is allowed allows everything."""
        publish = {"allow": self.publish, "deny": self.publish_denied} if self.publish else {"deny": [">"]}
        return json.dumps({"publish": publish, "subscribe": {"allow": self.subscribe} if self.subscribe else {"deny": [">"]}})


def users(readers: Iterable[str] = ()) -> dict[str, Permissions]:
    """All users of a platform, by name. `readers`: others, who may be answered by `ANSWERS_READERS`."""
    every = {user: _of(user) for user in (*SERVICES, OPERATOR)}
    inboxes = tuple(f"{inbox_of(reader)}.>" for reader in sorted(readers))
    for user in ANSWERS_READERS:
        every[user] = replace(every[user], publish=(*every[user].publish, *inboxes))
    return every | {ADMIN: Permissions((">",), (">",))}


def read_only(name: str, queues: Iterable[str]) -> Permissions:
    """Of somebody else's program: hears what happens to these queues, as it happens, and asks micro services about them, on subjects that name the queue and
    the reader, which nobody else may publish on. Streams keep all queues together, so it reads none."""
    tokens = [token_of(queue) for queue in sorted(set(queues))]
    told = [
        ".".join(
            queue if part == "{queue}" else "*" if part.startswith("{") else part for part in type_.about.subject.split(".")
        )
        for type_ in REGISTRY.values()
        if "integrators" in type_.about.readers and "{queue}" in type_.about.subject
        for queue in tokens
    ]
    asked = [f"{PREFIX}.*.*.{OF}.{queue}.{token_of(name)}" for queue in tokens]
    return Permissions(publish=tuple(asked), subscribe=(*sorted(told), f"{inbox_of(name)}.>"))


def authorization(keys: Mapping[str, str], others: Mapping[str, Permissions] | None = None) -> str:
    """nats-server's `authorization` block: who is not in it gets in no more. `keys`: public nkeys by user; `others`: users beside the platform's own."""
    every = users(others or ()) | dict(others or {})
    lines = "\n".join(f"    {{ nkey: {keys[user]}, permissions: {every[user].block()} }} # {user}" for user in sorted(keys))
    return f"authorization {{\n  users: [\n{lines}\n  ]\n}}\n"


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
        publish += [f"{inbox_of(asker)}.>" for asker in askers]
        subscribe += [f"{PREFIX}.{user}.>", *(t.subject() for t in answered)]
        subscribe += [f"$SRV.{verb}{of}" for verb in _VERBS for of in ("", f".hbox-{user}", f".hbox-{user}.*")]
    readers = {name, "operators"} if user == OPERATOR else {name}
    read = {t.about.stream for t in stored if t.about.stream is not None and readers & {*t.about.readers}}
    written = {t.about.stream for t in stored if t.about.stream is not None and name in t.about.writers}
    allowed, denied = _jetstream(user, read, written)
    return Permissions(tuple(sorted({*publish, *allowed})), tuple(sorted(set(subscribe))), tuple(sorted(denied)))


def _jetstream(user: str, read: set[Stream], written: set[Stream]) -> tuple[list[str], list[str]]:
    """What a user may ask of JetStream's API, and what of that is denied all the same."""
    allowed = [f"$JS.API.STREAM.INFO.{stream}" for stream in Stream]
    if user != OPERATOR:
        allowed += [f"$JS.API.STREAM.CREATE.{stream}" for stream in Stream]
    allowed += [f"$JS.API.DIRECT.GET.{stream}" for stream in read | written]
    consumed = read | {
        stream for stream in written if LIMITS[stream].last_value
    }  # who starts anew goes on from what it said last
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
    """Questions are subscribed to; pages of their answers go to the asker's inbox, whatever their subject."""
    return type_.about.stream is None and "asker" in type_.model_fields


def _user(in_registry: str) -> str:
    return {called: user for user, called in _IN_REGISTRY.items()}.get(in_registry, in_registry)
