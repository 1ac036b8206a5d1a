"""Checks that the engine of scheduler-core names no plugin; `make check` runs it.

Everything that the engine must know about a plugin is a declaration of `hooks.Plugin`. Outside of the folders in `NAMING`, no module imports a plugin's
class, and no string is a plugin's name, except names of attributes (`attrgetter("gang")`) and prefixes of actions (`gangpreempt`).
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from hbox_scheduler.core.framework.hooks import Hook
from hbox_scheduler.core.policy.registry import PLUGINS

CORE = Path("services/scheduler-core/src/hbox_scheduler/core")
#: The plugins themselves, the policies that list them, and the tools that compare policies.
NAMING = frozenset({"plugins", "policy", "simulate"})
_EXCEPT = frozenset({"attrgetter", "removeprefix"})


def names_in(source: str, plugins: Mapping[str, Hook] = PLUGINS) -> Iterator[tuple[int, str]]:
    """Line and text of each plugin that the source names."""
    classes = {plugin.__name__ for plugin in plugins.values()}
    tree = ast.parse(source)
    attributes = {
        id(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and (getattr(node.func, "id", "") or getattr(node.func, "attr", "")) in _EXCEPT
        for argument in node.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, one.name) for one in node.names if one.name in classes)
        elif isinstance(node, ast.Constant) and node.value in plugins and id(node) not in attributes:
            yield node.lineno, repr(node.value)


def main() -> int:
    """1 if a module of the engine names a plugin."""
    found = [
        f"{path}:{line}: names the plugin {text}; declare what the engine must know in hooks.Plugin"
        for path in sorted(CORE.rglob("*.py"))
        if path.relative_to(CORE).parts[0] not in NAMING
        for line, text in names_in(path.read_text())
    ]
    print("\n".join(found), end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
