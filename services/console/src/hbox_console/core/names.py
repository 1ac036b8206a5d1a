"""Names of jobs, pods, namespaces and queues that the platform knows: which words of a text are names of someone.

Names of objects that were removed are kept for a while, since texts of others may still contain them.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from hbox_common.reasons import CODES

#: Maximum removed names that are kept.
MAX_REMOVED = 50_000

_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")


class Kind(StrEnum):
    NAMESPACE = "namespace"
    QUEUE = "queue"
    OBJECT = "object"  #: a job or a pod, by its bare name


def tokens_of(text: str) -> list[str]:
    """What may be a name, in order."""
    return _WORD.findall(text)


def texts_in(value: object) -> Iterable[str]:
    """All texts in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield str(key)
            yield from texts_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from texts_in(one)


#: Of texts that are not in the catalogue.
_FURTHER_TOKENS = """
0 1 2 a all and are at available be because beyond bound by can card cards change cluster cpu cpus  deserved each
empty even fit fits fitting for free gang gone gpu gpus guaranteed has have held hold holds in is it its job jobs limit
limits memory more must namespace namespaces need needs next no node nodes not of on one or other others over pending
pod pods policy pool pools priority  queue queues reclaim reclaimed room running s share shares some start starts
taken than that the they this time to topology   used uses wait waiting waits when which while with without
"""
#: Words of the catalogue and of common texts reveal nothing where they are also someone's name.
PLAIN_TOKENS = frozenset(
    word
    for text in (_FURTHER_TOKENS, *(text for code in CODES.values() for text in texts_in(asdict(code))))
    for word in tokens_of(text)
)


@dataclass(slots=True)
class Names:
    """Who has a name: of an object the namespaces that have one of this name, counted."""

    _owners: dict[str, Counter[str]] = field(default_factory=dict)
    _namespaces: Counter[str] = field(default_factory=Counter)
    _removed: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)

    def add(self, namespace: str, name: str) -> None:
        self._namespaces[namespace] += 1
        self._owners.setdefault(name, Counter())[namespace] += 1

    def remove(self, namespace: str, name: str) -> None:
        """The object is gone; its name stays known until MAX_REMOVED others went after it."""
        key = (namespace, name)
        if key in self._removed:
            self._forget(key)
        self._removed[key] = None
        self._removed.move_to_end(key)
        if len(self._removed) > MAX_REMOVED:
            oldest, _ = self._removed.popitem(last=False)
            self._forget(oldest)

    def mention(self, namespace: str, name: str) -> None:
        """An event names the object: its name stays known as that of a removed one."""
        if (namespace, name) in self._removed:
            self._removed.move_to_end((namespace, name))
        else:
            self.add(namespace, name)
            self.remove(namespace, name)

    def _forget(self, key: tuple[str, str]) -> None:
        namespace, name = key
        self._namespaces[namespace] -= 1
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]
        owners = self._owners[name]
        owners[namespace] -= 1
        if not owners[namespace]:
            del owners[namespace]
        if not owners:
            del self._owners[name]

    def namespaces_of(self, word: str) -> Iterable[str]:
        """Namespaces to which the word belongs: `namespace/name`, a namespace, or the name of an object there."""
        before, slash, _ = word.partition("/")
        if slash and before in self._namespaces:
            return (before,)
        if word in self._namespaces:
            return (word, *self._owners.get(word, ()))
        return tuple(self._owners.get(word, ()))


def namespaces_in(texts: Iterable[str], names: Names) -> set[str]:
    """The namespaces to which words of the texts belong."""
    found: set[str] = set()
    for text in texts:
        for word in tokens_of(text):
            for part in {word, *word.split("/")}:
                found.update(names.namespaces_of(part))
    return found


def queues_in(texts: Iterable[str], queues: Set[str]) -> set[str]:
    """The queues that words of the texts name."""
    tokens = {part for text in texts for word in tokens_of(text) for part in {word, *word.split("/")}}
    return {word for word in tokens if word in queues}


#: In the place of names that the client may not see.
OTHER_JOB, OTHER_NAMESPACE, OTHER_QUEUE = "(another job)", "(another namespace)", "(another queue)"


@dataclass(frozen=True, slots=True)
class Veil:
    """Replaces names that a client may not see. `namespaces`, `queues`: those that it may see; None: all."""

    names: Names
    known_queues: Set[str]
    namespaces: frozenset[str] | None
    queues: frozenset[str] | None

    def text(self, text: str, *, is_name: bool = False) -> str:
        """`is_name`: the whole text is a name, whatever word it is."""
        if not text or (self.namespaces is None and self.queues is None):
            return text
        if is_name and text in PLAIN_TOKENS:
            return self._hidden(text)
        return _WORD.sub(lambda found: self._word(found[0]), text)

    def _known(self, word: str) -> bool:
        return word in self.known_queues or bool(self.names.namespaces_of(word))

    def _word(self, word: str) -> str:
        if word in PLAIN_TOKENS:
            return word
        return self._hidden(word)

    def _hidden(self, word: str) -> str:
        before, slash, after = word.partition("/")
        if slash and "." not in before and not self._known(word):
            return f"{self._word(before)}/{self._word(after)}"
        if self.queues is not None and word in self.known_queues and word not in self.queues:
            return OTHER_QUEUE
        if self.namespaces is None:
            return word
        owners = tuple(self.names.namespaces_of(word))
        if not owners or any(owner in self.namespaces for owner in owners):
            return word
        return OTHER_NAMESPACE if word == owners[0] else OTHER_JOB


#: Keys of JSON objects whose values are names.
_NAME_KEYS = frozenset(
    {"job", "jobs", "name", "names", "namespace", "namespaces", "parent", "pod", "pods", "queue", "queues", "users"}
)


def veiled(value: object, veil: Veil, *, is_name: bool = False) -> object:
    """The JSON value with all of its texts through the veil, keys included: numbers under keys that become the same are summed."""
    if isinstance(value, str):
        return veil.text(value, is_name=is_name)
    if isinstance(value, Mapping):
        made: dict[str, object] = {}
        for key, one in value.items():
            name, content = veil.text(str(key)), veiled(one, veil, is_name=key in _NAME_KEYS)
            former = made.get(name)
            if isinstance(former, int | float) and isinstance(content, int | float):
                content = former + content
            made[name] = content
        return made
    if isinstance(value, list | tuple):
        return [veiled(one, veil, is_name=is_name) for one in value]
    return value
