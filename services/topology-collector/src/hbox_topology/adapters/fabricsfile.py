"""The file HBOX_FABRICS_FILE, which lists the sources of the fabric.

fabrics:
- name: compute
  ufm: {url: https://ufm.example.org, auth: token, credentials: /etc/hbox/ufm, ca: /etc/hbox/ufm/ca.crt}
  otherHcas: mlx5_1[23]
- name: lab
  ibnetdiscover: /data/fabric.txt
- name: roce
  lldp: /data/lldp
- name: racks
  labels: [topology.kubernetes.io/zone, example.org/rack]
- name: hypernodes
  hyperNodes: true
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from hbox_common.errors import InvalidRequest
from hbox_common.runtime import WatchedFile
from hbox_common.yamltext import content_of

#: What a fabric may be called: it is a token of a subject on the bus, and the beginning of names of domains.
_NAME = r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Auth(StrEnum):
    """How UFM is logged in to. The folder `credentials` has username and password (basic, session), token, or tls.crt and tls.key."""

    BASIC = "basic"
    CERTIFICATE = "certificate"
    SESSION = "session"
    TOKEN = "token"  # noqa: S105  the name of a way, no secret


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class UfmSpec(_Part):
    url: str = Field(max_length=256)
    auth: Auth = Field(default=Auth.TOKEN, strict=False)
    credentials: Path = Field(strict=False)
    ca: Path | None = Field(default=None, strict=False)
    poll_s: float = Field(default=5.0, ge=0.1, le=3600, alias="pollSeconds", strict=False)
    resync_s: float = Field(default=3600.0, ge=10, le=86_400, alias="resyncSeconds", strict=False)
    page: int = Field(default=2000, ge=1, le=20_000, alias="pageRows")
    timeout_s: float = Field(default=60.0, ge=1, le=600, alias="timeoutSeconds", strict=False)
    most_mib: int = Field(default=512, ge=1, le=4096, alias="mostMiB")

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("has to be https://HOST[:PORT]")
        if parts.username or parts.password:
            raise ValueError("has a user in it: put it into the folder `credentials`")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ValueError("would send credentials in the clear: write https://")
        return url.rstrip("/")

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""


class FabricSpec(_Part):
    """One fabric, from exactly one source."""

    name: str = Field(pattern=_NAME)
    ufm: UfmSpec | None = None
    ibnetdiscover: Path | None = Field(default=None, strict=False)
    lldp: Path | None = Field(default=None, strict=False)
    labels: list[str] = []
    hyper_nodes: bool = Field(default=False, alias="hyperNodes")
    ages: bool | None = None  #: whether hard gangs wait when it is not confirmed for long; None: of UFM alone
    other_hcas: str = Field(default="", alias="otherHcas", max_length=256)

    @field_validator("other_hcas")
    @classmethod
    def _a_pattern(cls, text: str) -> str:
        try:
            re.compile(text)
        except re.error as e:
            raise ValueError(f"is no regular expression: {e}") from e
        return text

    @model_validator(mode="after")
    def _one_source(self) -> "FabricSpec":
        given = [self.ufm, self.ibnetdiscover, self.lldp, self.labels or None, self.hyper_nodes or None]
        if sum(one is not None for one in given) != 1:
            raise ValueError(f"fabric {self.name} has to name one of ufm, ibnetdiscover, lldp, labels, hyperNodes")
        return self

    @property
    def is_aging(self) -> bool:
        return self.measured and (self.ufm is not None if self.ages is None else self.ages)

    @property
    def measured(self) -> bool:
        """Whether it is a graph of cables."""
        return not self.labels and not self.hyper_nodes


class _File(_Part):
    fabrics: list[FabricSpec] = Field(default=[], max_length=32)
    export_hyper_nodes: bool = Field(default=False, alias="exportHyperNodes")

    @model_validator(mode="after")
    def _names_differ(self) -> "_File":
        names = [one.name for one in self.fabrics]
        if len(set(names)) != len(names):
            raise ValueError("two fabrics have one name")
        if self.export_hyper_nodes and any(one.hyper_nodes for one in self.fabrics):
            raise ValueError("exportHyperNodes writes what hyperNodes reads: leave one of them out")
        return self


@dataclass(frozen=True, slots=True)
class Fabrics:
    """The file's content."""

    fabrics: tuple[FabricSpec, ...]
    export: bool = False  #: domains are written as HyperNode objects too, for others to read

    @property
    def measured(self) -> frozenset[str]:
        return frozenset(one.name for one in self.fabrics if one.measured)

    @property
    def several(self) -> bool:
        """Whether names of domains need the name of their fabric."""
        return len(self.measured) > 1


#: Without a file: the HyperNodes of the cluster.
HYPERNODES_ONLY = Fabrics((FabricSpec(name="hypernodes", hyper_nodes=True),))


def fabrics_file(path: Path, hosts: tuple[str, ...] = ()) -> WatchedFile[Fabrics]:
    """Raises InvalidRequest that names file and field. `hosts`: the only ones that may be asked; () = those that the file names."""
    return WatchedFile(path, lambda text: fabrics_of(text, hosts), setting="HBOX_FABRICS_FILE", what="a file of fabrics")


def fabrics_of(text: str, hosts: tuple[str, ...] = ()) -> Fabrics:
    """Raises InvalidRequest that names the field, or the line that is no YAML."""
    read: Any = content_of(text)
    try:
        found = _File.model_validate({} if read is None else read)
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InvalidRequest(
            f"{where}: {first['msg'].removeprefix('Value error, ')}",
            hint="write fabrics: with a name and one of ufm, ibnetdiscover, lldp, labels, hyperNodes, each",
        ) from e
    for one in found.fabrics:
        if one.ufm is not None and hosts and one.ufm.host not in hosts:
            raise InvalidRequest(
                f"fabric {one.name}: host {one.ufm.host} is not among HBOX_FABRIC_HOSTS", hint=f"allowed: {', '.join(hosts)}"
            )
    return Fabrics(tuple(found.fabrics), found.export_hyper_nodes)
