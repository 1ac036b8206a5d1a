"""A certificate of the service's own, kept in a Secret that all replicas share, and published to clients in the ConfigMap by which they find the API.

It is made at the start if the Secret has none, or one that is past half of its life or lacks a name. Of replicas that make one at the same time the first
write counts.
"""

import base64
import binascii
import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hbox_common.clock import wall_s
from hbox_common.errors import Conflict, InvalidRequest
from hbox_common.kube import CONFIGMAPS, KubeClient, Resource
from hbox_common.kube.transport import MERGE_PATCH
from hbox_common.selfsigned import SEED_BYTES, self_signed
from hbox_common.x509 import in_pem

log = logging.getLogger(__name__)

SECRETS = Resource("", "v1", "secrets", namespaced=True)
ACCESS, PUBLIC = "hbox-access", "kube-public"
NAMES = "hbox.io/names"
LIFE_S = 5 * 365 * 86_400


async def keep(client: KubeClient, *, namespace: str, name: str, names: Sequence[str], folder: Path) -> tuple[Path, Path]:
    """Certificate and key as files in `folder`. Raises Unavailable, InvalidRequest (the Secret does not exist, or the rights are missing)."""
    while True:
        secret = await client.json("GET", SECRETS.path(namespace, name))
        pair = _pair(secret, names)
        if pair is None:
            now = wall_s()
            pair = self_signed(names[0], names, secrets.token_bytes(SEED_BYTES), begins=now - 60, ends=now + LIFE_S)
            try:
                await client.json(
                    "PATCH", SECRETS.path(namespace, name), body=_patch(secret, pair, names), content_type=MERGE_PATCH
                )
            except Conflict:
                continue  # another replica's is there now
            log.info("made a certificate for %s", ", ".join(names))
        await client.json(
            "PATCH", CONFIGMAPS.path(PUBLIC, ACCESS), body={"data": {"ca.crt": pair[0]}}, content_type=MERGE_PATCH
        )
        return _files(folder, pair)


def _pair(secret: Mapping[str, Any], names: Sequence[str]) -> tuple[str, str] | None:
    """What the Secret has, if it is good."""
    data, notes = secret.get("data") or {}, secret["metadata"].get("annotations") or {}
    try:
        pair = tuple(base64.b64decode(data[key], validate=True).decode() for key in ("tls.crt", "tls.key"))
        life = in_pem(pair[0])[0]
    except (KeyError, TypeError, ValueError, binascii.Error, InvalidRequest):
        return None
    fresh = wall_s() < (life.begins + life.ends) / 2
    return (pair[0], pair[1]) if fresh and notes.get(NAMES) == ",".join(names) else None


def _patch(secret: Mapping[str, Any], pair: tuple[str, str], names: Sequence[str]) -> Mapping[str, Any]:
    encoded = [base64.b64encode(text.encode()).decode() for text in pair]
    return {
        "metadata": {
            "resourceVersion": secret["metadata"]["resourceVersion"],
            "annotations": {NAMES: ",".join(names)},
        },
        "data": {"tls.crt": encoded[0], "tls.key": encoded[1]},
    }


def _files(folder: Path, pair: tuple[str, str]) -> tuple[Path, Path]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = folder / "tls.crt", folder / "tls.key"
    for path, text in zip(paths, pair, strict=True):
        path.touch(mode=0o600)
        path.write_text(text)
    return paths
