"""What differs between two policies, by actions, plugins and arguments."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.yamltext import read_file
from hbox_scheduler.core.framework.conf import Conf, PluginConf, parse_conf
from hbox_scheduler.core.policy.default import PolicyName, default_conf
from hbox_scheduler.core.policy.registry import PLUGINS


def conf_of(named: str) -> Conf:
    """The policy of a file, or one of HBox's own by its name. Raises NotFound, InvalidRequest."""
    path = Path(named)
    if named in list(PolicyName) and not path.exists():
        return default_conf(PolicyName(named))
    if not path.is_file():
        raise NotFound(f"{named} is neither a file nor a policy of HBox", hint=f"policies: {', '.join(PolicyName)}")
    try:
        return parse_conf(read_file(path).decode(), plugins=tuple(PLUGINS))
    except UnicodeError as e:
        raise InvalidRequest(f"{path}: it is not UTF-8", hint="name a volcano-scheduler.conf") from e
    except InvalidRequest as e:
        raise InvalidRequest(f"{path}: {e.message}", hint=e.hint) from e


def differences(before: Conf, after: Conf) -> list[dict[str, str]]:
    """Name, and both values as text, of each part that differs; "" = absent."""
    old, new = dict(_parts(before)), dict(_parts(after))
    return [
        {"name": name, "before": old.get(name, ""), "after": new.get(name, "")}
        for name in dict.fromkeys((*old, *new))
        if old.get(name, "") != new.get(name, "")
    ]


def _parts(conf: Conf) -> Iterator[tuple[str, str]]:
    yield "actions", ", ".join(conf.actions)
    yield "plugins", ", ".join(plugin.name for plugin in conf.plugins)
    for number, tier in enumerate(conf.tiers, 1):
        for plugin in tier:
            yield f"tier of {plugin.name}", str(number)
            for name, value in _flags(plugin):
                yield f"{plugin.name}.{name}", value
    for action, arguments in conf.arguments.items():
        for name, value in arguments.items():
            yield f"action {action}.{name}", _text(value)


def _flags(plugin: PluginConf) -> Iterator[tuple[str, str]]:
    """What is set: neither the line in the file nor defaults."""
    yield from ((str(name), _text(value)) for name, value in plugin.arguments.items())
    if plugin.off:
        yield "off", ", ".join(sorted(map(str, plugin.off)))
    if plugin.hierarchy:
        yield "hierarchy", "true"


def _text(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)
