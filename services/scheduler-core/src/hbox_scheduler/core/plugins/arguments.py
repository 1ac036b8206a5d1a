"""Arguments of plugins and actions: read with an exact error where one is wrong."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any

from hbox_common.errors import InvalidRequest

from .durations import duration_s

if TYPE_CHECKING:
    from ..framework.conf import PluginConf


class Given:
    """Keys and values of the arguments of a plugin or action. `done()` rejects keys that no accessor has read."""

    def __init__(self, owner: str, given: Mapping[str, Any]) -> None:
        """`owner`: the name in errors, such as `action preempt`."""
        self.owner = owner
        self._given = given
        self._known: set[str] = set()

    def number(self, key: str, default: float, *, least: float | None = None, most: float | None = None) -> float:
        """A number. Raises InvalidRequest."""
        value = self._take(key)
        if value is None:
            return default
        try:
            number = float(value) if not isinstance(value, bool) else None
        except (TypeError, ValueError, OverflowError):
            number = None
        if number is None or not isfinite(number):
            raise self._wrong(key, value, "a number")
        if least is not None and number < least:
            raise self._wrong(key, value, f"a number of at least {least:g}")
        if most is not None and number > most:
            raise self._wrong(key, value, f"a number of at most {most:g}")
        return number

    def integer(self, key: str, default: int, *, least: int | None = None) -> int:
        number = self.number(key, default, least=least)
        if number != int(number):
            raise self._wrong(key, number, "a whole number")
        return int(number)

    def switch(self, key: str, default: bool) -> bool:
        value = self._take(key)
        if value is None:
            return default
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def duration_s(self, key: str, default: str) -> float:
        """Seconds, of a duration as Go writes it. Raises InvalidRequest."""
        text = self.text(key, default)
        seconds = 0.0 if text == "0" else duration_s(text)
        if seconds is None:
            raise self._wrong(key, text, "a duration such as 90s, 10m or 1h30m")
        return seconds

    def text(self, key: str, default: str = "") -> str:
        value = self._take(key)
        return default if value is None else str(value)

    def names(self, key: str) -> list[str]:
        """Names with commas between."""
        return [name.strip() for name in self.text(key).split(",") if name.strip()]

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self._take(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(key, value, "keys and values")
        return value

    def nested(self, key: str) -> "Given":
        """The keys and values under a key; none where it is not there."""
        return Given(f"{self.owner}, {key}", self.mapping(key))

    def listing(self, key: str) -> list[Any]:
        value = self._take(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(key, value, "a list")
        return value

    def starting(self, prefix: str) -> dict[str, Any]:
        """What was given under keys that begin with `prefix`, by the rest of the key."""
        found = {key[len(prefix) :]: value for key, value in self._given.items() if key.startswith(prefix)}
        self._known.update(prefix + rest for rest in found)
        return found

    def done(self, *, also: tuple[str, ...] = (), warn: Callable[[str], None] | None = None) -> None:
        """Raises InvalidRequest for an argument that does not exist, or passes a warning to `warn` if given."""
        known = self._known | set(also)
        for key in self._given:
            if key not in known:
                close = get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"it has: {', '.join(sorted(known)) or 'none'}"
                if warn is None:
                    raise InvalidRequest(f"{self.owner} has no argument {key!r}", hint=hint)
                warn(f"{self.owner} has no argument {key!r} ({hint}); it is ignored")

    def _take(self, key: str) -> Any:
        self._known.add(key)
        return self._given.get(key)

    def _wrong(self, key: str, value: object, wanted: str) -> InvalidRequest:
        return InvalidRequest(f"{self.owner}, argument {key}: {value!r} is not {wanted}")


class Arguments(Given):
    """The arguments of one plugin."""

    def __init__(self, conf: "PluginConf") -> None:
        super().__init__(f"plugin {conf.name}", conf.arguments)
