"""Parser of volcano-scheduler.conf: the accepted settings, and precise errors for all others.

    actions: "enqueue, allocate, backfill"
    tiers:
    - plugins:
      - name: gang
        enablePreemptable: false
      - name: binpack
        arguments: {binpack.weight: 10}
    configurations:
    - name: allocate
      arguments: {...}

Flags may be written `enable...` or `enabled...`: Volcano mixes both forms. An unknown action or plugin is an error here; Volcano logs it and continues
without it. Volcano ignores an unknown key of a plugin (an argument outside `arguments:`, a misspelt flag), so a file that works there stays valid here:
`Conf.ignored` collects such keys. Services and simulations print them as warnings; `hbox policy check` refuses them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import yaml

from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import check

from .hooks import FLAGS, HIERARCHY_FLAG, IDLE_FLAGS, Hook

#: Actions in the order in which the documentation lists them.
ACTIONS = (
    "enqueue", "allocate", "backfill", "preempt", "reclaim", "shuffle", "gangpreempt", "gangreclaim", "consolidate",
)  # fmt: skip

#: Volcano's switch of several actions, by both of its names: whether failures are cached for equal pods. HBox always caches them.
FAILURES_REMEMBERED = ("enablePredicateErrorCache", "predicateErrorCacheEnable")

#: Actions of older Volcano versions and of its design documents. Volcano 1.16 also rejects them.
GONE = ("elect", "reserve", "gangPreempt", "gangReclaim")

#: Capitals of plugins' names in camel case: `leastWaste` for `least-waste`.
_CAMEL = re.compile(r"(?<=[a-z])[A-Z]")

_TOP = ("actions", "tiers", "configurations", "metrics")
_FLAGS = {flag.lower().replace("enabled", "enable", 1): flag for flag in (*FLAGS, *IDLE_FLAGS, HIERARCHY_FLAG)}


@dataclass(frozen=True, slots=True)
class PluginConf:
    """One plugin of a tier. `off` holds the hooks that are switched off."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    off: frozenset[Hook] = frozenset()
    hierarchy: bool = False
    line: int = field(default=0, compare=False)  #: line in the file; 0 = not from a file


@dataclass(frozen=True, slots=True)
class Conf:
    """A parsed policy file."""

    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginConf, ...], ...]
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  #: by action
    #: for each key without effect: its position, and what to write instead
    ignored: tuple[InvalidRequest, ...] = field(default=(), compare=False)

    def refuse_ignored(self) -> None:
        """Raises the first of `ignored`, if there is any."""
        if self.ignored:
            raise self.ignored[0]

    @property
    def plugins(self) -> list[PluginConf]:
        return [plugin for tier in self.tiers for plugin in tier]

    @property
    def summary(self) -> str:
        """Its actions and plugins, in a line."""
        return f"{', '.join(self.actions)} by {', '.join(plugin.name for plugin in self.plugins) or 'no plugins'}"


#: Of a policy; one with all plugins and all their arguments has 20,000.
MAX_LENGTH = 2**20


def parse_conf(text: str, *, plugins: Sequence[str]) -> Conf:
    """The policy that `text` describes. `plugins`: the names there are.

    Raises InvalidRequest that names line, key and what is allowed.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidRequest(f"the policy has {len(text)} characters", hint=f"write at most {MAX_LENGTH}")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise InvalidRequest(
            f"{where}{e.problem or e.context}", hint="the policy has to be YAML, as volcano-scheduler.conf is"
        ) from e
    except (yaml.YAMLError, RecursionError) as e:  # characters that YAML does not allow; nesting without end
        raise InvalidRequest(" ".join(str(e).split()), hint="the policy has to be YAML, as volcano-scheduler.conf is") from e
    check(text.encode())
    if root is None:
        raise InvalidRequest("the policy is empty", hint='it needs at least `actions: "enqueue, allocate"` and `tiers:`')
    top = _mapping(root, "the policy")
    for key, (node, _) in top.items():
        if key not in _TOP:
            raise _wrong(node, f"unknown key {key!r}", _TOP)
    actions = _actions(*top["actions"]) if "actions" in top else ("enqueue", "allocate", "backfill")
    ignored: list[InvalidRequest] = []
    tiers = _tiers(top["tiers"][1], plugins, ignored) if "tiers" in top else ()
    arguments = _configurations(top["configurations"][1]) if "configurations" in top else {}
    return Conf(actions, tiers, arguments, tuple(ignored))


def _actions(key: yaml.Node, value: yaml.Node) -> tuple[str, ...]:
    text = _value(value)
    if not isinstance(text, str):
        raise _wrong(value, "actions must be one string of names with commas between", ACTIONS)
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise _wrong(key, "actions names no action", ACTIONS)
    for name in names:
        if name not in ACTIONS:
            too = ", which Volcano 1.16 refuses too" if name in GONE else ""
            raise _wrong(value, f"unknown action {name!r}{too}", ACTIONS)
    return names


def _tiers(value: yaml.Node, known: Sequence[str], ignored: list[InvalidRequest]) -> tuple[tuple[PluginConf, ...], ...]:
    tiers: list[tuple[PluginConf, ...]] = []
    seen: set[str] = set()
    for item in _sequence(value, "tiers"):
        tier = _mapping(item, "a tier")
        for key, (node, _) in tier.items():
            if key != "plugins":
                raise _wrong(node, f"unknown key {key!r} in a tier", ("plugins",))
        found = [_plugin(p, known, ignored) for p in _sequence(tier["plugins"][1], "plugins")] if "plugins" in tier else []
        for plugin in found:
            if plugin.name in seen:
                raise _wrong(item, f"plugin {plugin.name!r} is listed twice", ())
            seen.add(plugin.name)
        tiers.append(tuple(found))
    return tuple(tiers)


def _plugin(value: yaml.Node, known: Sequence[str], ignored: list[InvalidRequest]) -> PluginConf:
    """Parse one plugin. Appends its keys without effect to `ignored`."""
    keys = _mapping(value, "a plugin")
    if "name" not in keys:
        raise _wrong(value, "a plugin without a name", known)
    name = str(_value(keys["name"][1]))
    if (dashed := _CAMEL.sub(lambda capital: f"-{capital[0].lower()}", name)) in known:
        name = dashed
    if name not in known:
        raise _wrong(keys["name"][1], f"unknown plugin {name!r}", known)
    off: set[Hook] = set()
    hierarchy = False
    arguments: Mapping[str, Any] = {}
    for key, (node, content) in keys.items():
        if key == "name":
            continue
        if key == "arguments":
            arguments = _arguments(content)
            continue
        flag = _FLAGS.get(key.lower().replace("enabled", "enable", 1))
        if flag is None:
            ignored.append(_unknown_key(node, key, name))
            continue
        on = _value(content)
        if not isinstance(on, bool):
            raise _wrong(content, f"{key} must be true or false", ())
        if flag == HIERARCHY_FLAG:
            hierarchy = on
        elif not on:
            off.update(FLAGS.get(flag, ()))
    return PluginConf(name, arguments, frozenset(off), hierarchy, value.start_mark.line + 1)


def _unknown_key(node: yaml.Node, key: str, plugin: str) -> InvalidRequest:
    """The warning about an unknown key: its position, and what to write instead. Volcano ignores the key and uses the plugin's defaults."""
    mark = node.start_mark
    what = f"line {mark.line + 1}, column {mark.column + 1}: unknown key {key!r} in plugin {plugin} has no effect"
    if key.startswith("disable") and (flag := _FLAGS.get(key.lower().replace("disable", "enable", 1))) is not None:
        return InvalidRequest(what, hint=f"write {flag}: false")
    if not key.isalnum():
        return InvalidRequest(what, hint="write it below `arguments:`")
    return _wrong(
        node, f"unknown key {key!r} in plugin {plugin} has no effect", ("name", "arguments", *sorted(_FLAGS.values()))
    )


def _configurations(value: yaml.Node) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for item in _sequence(value, "configurations"):
        keys = _mapping(item, "a configuration")
        name = str(_value(keys["name"][1])) if "name" in keys else ""
        if name not in ACTIONS:
            raise _wrong(item, f"a configuration for the unknown action {name!r}", ACTIONS)
        found[name] = _arguments(keys["arguments"][1]) if "arguments" in keys else {}
    return found


def _arguments(value: yaml.Node) -> Mapping[str, Any]:
    content = _value(value)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise _wrong(value, "arguments must be keys and values", ())
    return {str(key): one for key, one in content.items()}


def _value(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as e:
        raise InvalidRequest(f"line {node.start_mark.line + 1}: {e.problem}") from e
    finally:
        loader.dispose()


def _mapping(node: yaml.Node, what: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(node, f"{what} must be keys and values", ())
    return {str(key.value): (key, value) for key, value in node.value}


def _sequence(node: yaml.Node, what: str) -> list[yaml.Node]:
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        return []
    if not isinstance(node, yaml.SequenceNode):
        raise _wrong(node, f"{what} must be a list", ())
    return list(node.value)


def _wrong(node: yaml.Node, what: str, allowed: Sequence[str]) -> InvalidRequest:
    mark = node.start_mark
    close: list[str] = []
    if "'" in what:
        close = get_close_matches(what.split("'")[1], allowed, n=1)
    hint = f"did you mean {close[0]}?" if close else f"allowed: {', '.join(allowed)}" if allowed else ""
    return InvalidRequest(f"line {mark.line + 1}, column {mark.column + 1}: {what}", hint=hint)
