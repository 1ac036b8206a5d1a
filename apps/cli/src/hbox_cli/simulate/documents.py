"""Files of Kubernetes documents, as `kubectl get -o yaml` or `-o json` writes them: several in a file, lists of them in one."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.yamltext import MAX_FILE_BYTES, contents_of

T = TypeVar("T")

_INT64 = 2**63
_SUFFIXES = (".yaml", ".yml", ".json")
_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_EXPECTED = re.compile(r"^Expected `(?P<want>[^`]+)`(?:, got `(?P<got>[^`]+)`)?")
_LITERALS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "keys and values",
    "array": "a list",
}


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file. `number` counts the file's documents from 1; `item` is its place in a list, from 0, or -1."""

    number: int
    content: Mapping[str, Any]
    item: int = -1

    @property
    def kind(self) -> str:
        return str(self.content.get("kind", ""))

    @property
    def group(self) -> str:
        """The API group; empty for the core one."""
        version = str(self.content.get("apiVersion", ""))
        return version.rpartition("/")[0]

    @property
    def where(self) -> str:
        """For messages: which document, and which object."""
        meta = self.content.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        name = "/".join(str(part) for part in (meta.get("namespace"), meta.get("name")) if part)
        place = f"document {self.number}" + (f", item {self.item + 1}" if self.item >= 0 else "")
        return f"{place} ({' '.join(part for part in (self.kind, name) if part)})"

    def wrong(self, field: str, what: str, *, hint: str = "") -> InvalidRequest:
        return InvalidRequest(f"{self.where}: {field}: {what}", hint=hint)

    def read(self, kind: type[T], *, namespaced: bool) -> T:
        """The object as a value of this kind. A uid is made up where there is none. Raises InvalidRequest that names document, object and field."""
        content = dict(self.content)
        meta = content["metadata"] = content.get("metadata", {})
        if isinstance(meta, dict):
            meta = content["metadata"] = dict(meta)
            scope = str(meta.setdefault("namespace", "default")) if namespaced else ""
            meta.setdefault("uid", f"{scope}{'-' if self.kind == 'Pod' else '/'}{meta.get('name', '')}".strip("/"))
        try:
            return msgspec.convert(content, kind)
        except msgspec.ValidationError as e:
            raise self._mapped(str(e)) from e

    def _mapped(self, text: str) -> InvalidRequest:
        found = _PATH.search(text)
        field = found["path"] if found and found["path"] else "it"
        text = text[: found.start()] if found else text
        if missing := re.search(r"missing required field `(\w+)`", text):
            return self.wrong(f"{field}.{missing[1]}".removeprefix("it."), "is missing")
        if expected := _EXPECTED.match(text):
            kinds = set(expected["want"].split(" | ")) - {"null"}
            if "float" in kinds:
                kinds.discard("int")
            want = " or ".join(sorted(_LITERALS.get(one, one) for one in kinds))
            got = f", not {_LITERALS.get(expected['got'], expected['got'])}" if expected["got"] else ""
            hint = (
                "write it without quotes"
                if expected["got"] == "str"
                else "what looks like a number or a truth, and is none, needs quotes"
            )
            return self.wrong(field, f"has to be {want}{got}", hint=hint)
        return self.wrong(field, text)


def _cleaned(number: int, value: Any) -> Any:
    """A copy in which `key: null` is absent, as the API server reads it. Raises InvalidRequest for what it would not read."""
    if isinstance(value, dict):
        return {key: _cleaned(number, one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_cleaned(number, one) for one in value]
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise InvalidRequest(f"document {number}: {value} is no number that Kubernetes can hold", hint="write less than 2^63")
    return value


def files_of(paths: tuple[Path, ...]) -> list[Path]:
    """The files that these paths name: each file itself, of a folder all YAML and JSON files below it, in order. Raises NotFound."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES and p.is_file())
            if not inside:
                raise NotFound(
                    f"{path} has no file that ends in {', '.join(_SUFFIXES)}", hint="name a folder of saved clusters, or files"
                )
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise NotFound(
                f"{path} is not there", hint="save a cluster with: kubectl get nodes,pods,podgroups,queues -A -o yaml > FILE"
            )
    return list(dict.fromkeys(found))


def documents_of(path: Path) -> list[Document]:
    """The objects of one file. Raises InvalidRequest, with line and column, for what is neither YAML nor JSON, or no Kubernetes object."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise InvalidRequest(f"the file is larger than {MAX_FILE_BYTES >> 20} MiB", hint="save fewer objects in one")
    except OSError as e:
        raise InvalidRequest(f"the file cannot be read: {e.strerror}") from e
    return objects_of(contents_of(text))


def objects_of(contents: Iterable[Any]) -> list[Document]:
    """The objects of a file's documents. Raises InvalidRequest for what is no Kubernetes object."""
    return [document for number, content in enumerate(contents, 1) for document in _objects(number, _cleaned(number, content))]


def _objects(number: int, content: Any) -> Iterator[Document]:
    if content is None:
        return
    if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
        raise InvalidRequest(
            f"document {number}: it has no kind", hint="every document has to be a Kubernetes object or a list of them"
        )
    if not (content["kind"].endswith("List") and isinstance(content.get("items"), list)):
        yield Document(number, content)
        return
    for place, item in enumerate(content["items"]):
        if not isinstance(item, dict):
            raise InvalidRequest(f"document {number}, item {place + 1}: it is no object")
        # The API server leaves kind and version out of the items of a typed list.
        named = {"kind": content["kind"].removesuffix("List"), "apiVersion": content.get("apiVersion", "v1"), **item}
        yield Document(number, named, place)
