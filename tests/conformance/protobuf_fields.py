"""The protobuf fields of the kinds that the emulator serves (`hbox_sandbox.api.protobuf`), from the generated.proto files of Kubernetes' Go modules.

python -m tests.conformance.protobuf_fields     # writes them anew; `go` and the modules of tests/real/assets are needed
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hbox_sandbox.api
from hbox_sandbox.api.definitions import definitions

FILE = Path(hbox_sandbox.api.__file__).with_name("protobuf.json")
_ASSETS = Path(__file__).parents[1] / "real" / "assets"
_MODULES = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver")
_PACKAGE = re.compile(r"^package ([\w.]+);", re.M)
_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.M | re.S)
_FIELD = re.compile(
    r"^  (?:(?P<label>optional|repeated) (?P<type>[\w.]+)|map<string, (?P<value>[\w.]+)>) (?P<name>\w+) = (?P<number>\d+);",
    re.M,
)
_SCALARS = ("string", "bytes", "bool", "int32", "int64", "double")


def schema_name(qualified: str) -> str:
    """`.k8s.io.api.core.v1.Pod` as OpenAPI names it."""
    return qualified.lstrip(".").replace("k8s.io.", "io.k8s.", 1)


def messages(text: str) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Name and fields of each message: by number, the name, the type and `map`, `repeated` or ""."""
    package = _PACKAGE.search(text)
    assert package is not None
    for found in _MESSAGE.finditer(text):
        fields: dict[str, list[str]] = {}
        for field in _FIELD.finditer(found[2]):
            kind = field["type"] or field["value"]
            if kind not in _SCALARS:
                kind = schema_name(kind if "." in kind else f"{package[1]}.{kind}")
            many = "map" if field["value"] else field["label"].replace("optional", "")
            fields[field["number"]] = [field["name"], kind, many]
        yield schema_name(f"{package[1]}.{found[1]}"), fields


def read_fields() -> dict[str, dict[str, list[str]]]:
    """Those of the published schemas, and all that they refer to."""
    everything: dict[str, dict[str, list[str]]] = {}
    for module in _MODULES:
        command = ["go", "list", "-m", "-f", "{{.Dir}}", module]
        folder = subprocess.run(command, cwd=_ASSETS, check=True, capture_output=True, text=True).stdout.strip()
        for file in sorted(Path(folder).rglob("generated.proto")):
            everything |= dict(messages(file.read_text()))
    chosen: dict[str, dict[str, list[str]]] = {}
    waiting = [
        *definitions(),
        "io.k8s.apimachinery.pkg.runtime.Unknown",
        "io.k8s.api.policy.v1.Eviction",
        "io.k8s.api.core.v1.Binding",
    ]
    while waiting:
        name = waiting.pop()
        if name in everything and name not in chosen:
            chosen[name] = everything[name]
            waiting += [kind for _, kind, _ in chosen[name].values() if kind not in _SCALARS]
    return dict(sorted(chosen.items()))


def main() -> int:
    lines = (f"{json.dumps(name)}:{json.dumps(fields, separators=(',', ':'))}" for name, fields in read_fields().items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    sys.stdout.write(f"{FILE}: {FILE.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
