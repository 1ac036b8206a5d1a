"""Which methods of a plugin class read the clock, by their bytecode: `hooks.check` compares them with what the class declares.

A method reads the clock if it loads an attribute `now`, calls a method of the class or a function of HBox that reads it, or loads an attribute in which such
a method keeps a result (`open` stores `session.now`). The search follows names instead of types. It may find too much, and never overlooks a read that stays
in the class, its module and HBox's functions; a value that an object of another module computed from the clock is not found.
"""

import dis
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType

#: The attribute of a session.
CLOCK = "now"

_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})
_OURS = frozenset({__name__.partition(".")[0], "hbox_common"})


@dataclass(slots=True)
class _Names:
    """Names in a function's bytecode, nested functions included."""

    loads: set[str]
    stores: set[str]
    globals: set[str]
    fills: bool  #: it stores into a container or calls a method that does


_FILLING = frozenset({"add", "append", "extend", "insert", "setdefault", "update"})


def clock_reads(plugin: type) -> Mapping[str, str]:
    """Method -> the name through which it reads the clock: `now`, or another method, function or attribute."""
    methods = {name: found for name in dir(plugin) if (found := _function(inspect.getattr_static(plugin, name))) is not None}
    names = {name: _names(method.__code__) for name, method in methods.items()}
    through: dict[str, str] = {}
    kept: set[str] = set()  # attributes in which clock-reading methods keep results
    changed = True
    while changed:
        changed = False
        for name, method in methods.items():
            if name in through:
                continue
            mine = names[name]
            way = next(iter(sorted(({CLOCK} | through.keys() | kept) & mine.loads)), "")
            way = way or next((other for other in sorted(mine.globals) if _reads(method, other, plugin.__module__)), "")
            if way:
                through[name], changed = CLOCK if CLOCK in mine.loads else way, True
                held = mine.loads if mine.fills else set()
                kept |= mine.stores | {one for one in held if one.startswith("_") and one not in methods}
    return through


def _reads(function: FunctionType, name: str, module: str, seen: frozenset[int] = frozenset()) -> bool:
    """Whether the global `name` of a function is a function of HBox, or a function or class of `module`, that reads the clock."""
    found = function.__globals__.get(name)
    if found is None or id(found) in seen:
        return False
    if isinstance(found, type) and found.__module__ == module:
        own = [one for value in vars(found).values() if (one := _function(value)) is not None]
    elif isinstance(found, FunctionType) and (found.__module__ == module or found.__module__.partition(".")[0] in _OURS):
        own = [found]
    else:
        return False
    seen |= {id(found)}
    return any(
        CLOCK in (names := _names(one.__code__)).loads or any(_reads(one, other, module, seen) for other in names.globals)
        for one in own
    )


def _function(value: object) -> FunctionType | None:
    """The function behind a method, a property or a static method."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, cached_property):
        value = value.func
    return value if isinstance(value, FunctionType) else None


def _names(code: CodeType) -> _Names:
    found = _Names(set(), set(), set(), fills=False)
    for one in _codes(code):
        for step in dis.get_instructions(one):
            if step.opname in _LOADS:
                found.loads.add(step.argval)
                found.fills |= step.argval in _FILLING
            elif step.opname == "STORE_ATTR":
                found.stores.add(step.argval)
            elif step.opname == "STORE_SUBSCR":
                found.fills = True
            elif step.opname == "LOAD_GLOBAL":
                found.globals.add(step.argval)
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
