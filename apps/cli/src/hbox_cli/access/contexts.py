"""The file of hbox contexts: `$XDG_CONFIG_HOME/hbox/contexts.yaml`, mode 0600. A context names a server, a broker or a state folder, and the credentials."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from hbox_common.errors import InvalidRequest, NotFound

from .files import config_folder, private_folder, write_private

FORMAT = {"apiVersion": "hbox.io/v1", "kind": "Contexts"}


@dataclass(frozen=True, slots=True)
class Stored:
    """One context. Of `server`, `nats_url`, `state` and `kube_context` the first that is set is where commands get their data."""

    name: str
    server: str = ""
    ca: str = ""  #: PEM
    nats_url: str = ""
    nats_seed: str = ""
    nats_ca: str = ""
    state: str = ""
    kube_context: str = ""  #: whose user's credentials are presented
    kubeconfig: str = ""  #: files that have it, separated as in KUBECONFIG; "" = as kubectl finds them
    token_file: str = ""


@dataclass(frozen=True, slots=True)
class Contexts:
    """What the file has."""

    current: str = ""
    contexts: tuple[Stored, ...] = ()

    def named(self, name: str) -> Stored | None:
        return next((one for one in self.contexts if one.name == name), None)

    def using(self, name: str) -> "Contexts":
        """Raises NotFound."""
        if self.named(name) is None:
            raise unknown(name, [one.name for one in self.contexts])
        return replace(self, current=name)

    def storing(self, context: Stored) -> "Contexts":
        others = [one for one in self.contexts if one.name != context.name]
        return Contexts(context.name, tuple(sorted([*others, context], key=lambda one: one.name)))


def unknown(name: str, known: Sequence[str]) -> NotFound:
    near = difflib.get_close_matches(name, known, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`hbox ctx ls` lists them; `hbox ctx login` adds one"
    return NotFound(f"there is no context {name}", hint=hint)


def path_of() -> Path:
    return config_folder() / "contexts.yaml"


def read(path: Path) -> Contexts:
    """Empty where there is no file. Raises InvalidRequest."""
    if not path.exists():
        return Contexts()
    from hbox_common.yamltext import settings_of  # noqa: PLC0415  30 ms

    content = settings_of(path)
    if content is None:
        return Contexts()
    listed = content.get("contexts", []) if isinstance(content, Mapping) else None
    if not isinstance(listed, list):
        raise InvalidRequest(f"{path}: not a file of contexts", hint="`hbox ctx login` writes a new one if you remove it")
    return Contexts(str(content.get("current") or ""), tuple(_stored(path, one) for one in listed))


def write(path: Path, contexts: Contexts) -> None:
    """Raises InvalidRequest where it cannot be written."""
    import yaml  # noqa: PLC0415

    listed = [{_written(name): value for name, value in asdict(one).items() if value} for one in contexts.contexts]
    try:
        private_folder(path.parent)
        write_private(path, yaml.safe_dump({**FORMAT, "current": contexts.current, "contexts": listed}, sort_keys=False))
    except OSError as e:
        raise InvalidRequest(f"{path} cannot be written: {e.strerror}", hint="XDG_CONFIG_HOME names another folder") from e


_NAMES = {one.name for one in fields(Stored)}


def _stored(path: Path, entry: object) -> Stored:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise InvalidRequest(f"{path}: a context has no name")
    plain: dict[str, Any] = {_read(name): value for name, value in entry.items()}
    if wrong := next((name for name, value in plain.items() if name not in _NAMES or not isinstance(value, str)), None):
        raise InvalidRequest(f"{path}: context {entry['name']}: {_written(wrong)} is unknown, or not a string")
    return Stored(**plain)


def _written(name: str) -> str:
    """`nats_url` as `natsUrl`."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _read(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in str(name))
