"""The schemas of Kubernetes' own kinds that the emulator has (`hbox_sandbox.api.definitions`), read from a real API server.

python -m tests.conformance.openapi_schemas     # writes them anew, by the programs of `make kube-assets`
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

import hbox_sandbox.api
from hbox_cli.platform.assets import API_SERVER, ETCD
from hbox_sandbox.api.definitions import OBJECT_META, PATCH, REFERENCE
from hbox_sandbox.api.resources import BUILT_IN, REVIEWS

from ..real.control_plane import control_plane
from .kube_world import Json

FILE = Path(hbox_sandbox.api.__file__).with_name("schemas.json")
#: What is read: the kinds that the emulator serves.
_KINDS = {(each.group, each.version, each.kind) for each in (*BUILT_IN, *REVIEWS)} | {("autoscaling", "v1", "Scale")}


async def read_schemas(session: aiohttp.ClientSession, url: str) -> dict[str, Json]:
    """The schemas of the served kinds and all that they refer to, without texts."""
    places = {f"apis/{each.api_version}" if each.group else f"api/{each.version}" for each in (*BUILT_IN, *REVIEWS)}
    everything: dict[str, Json] = {}
    for place in sorted(places):
        async with session.get(f"{url}/openapi/v3/{place}") as response:
            everything |= (await response.json())["components"]["schemas"]
    chosen: dict[str, Json] = {}
    waiting = [OBJECT_META, PATCH]
    for name, schema in everything.items():
        kinds = {(each["group"], each["version"], each["kind"]) for each in schema.get("x-kubernetes-group-version-kind") or ()}
        if kinds & _KINDS:
            waiting.append(name)
    while waiting:
        name = waiting.pop()
        if name not in chosen:
            chosen[name] = everything[name]
            text = json.dumps(chosen[name])
            waiting += [part.partition('"')[0] for part in text.split(f'"$ref": "{REFERENCE}')[1:]]
    return {name: undescribed(schema) for name, schema in sorted(chosen.items())}


def undescribed(schema: Json) -> Json:
    """A schema without its texts, which the emulator takes from the official client's models."""
    found = {key: value for key, value in schema.items() if key != "description"}
    if "properties" in found:
        found["properties"] = {name: undescribed(field) for name, field in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = undescribed(found[key])
    return found


def written(schemas: Mapping[str, Json]) -> str:
    """One schema a line."""
    lines = (
        f"{json.dumps(name)}:{json.dumps(schema, separators=(',', ':'), sort_keys=True)}" for name, schema in schemas.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


async def _read(url: str, token: str, certificate: Path) -> dict[str, Json]:
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(certificate)))
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}, connector=connector) as session:
        return await read_schemas(session, url)


def main() -> int:
    with TemporaryDirectory() as folder, control_plane(Path(folder), programs=(ETCD, API_SERVER)) as plane:
        FILE.write_text(written(asyncio.run(_read(plane.url, plane.token, plane.certificate))))
    sys.stdout.write(f"{FILE}: {FILE.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
