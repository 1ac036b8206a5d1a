"""Settings of the console."""

import ipaddress
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator

from hbox_common.runtime import Settings


class ConsoleSettings(Settings):
    service: ClassVar[str] = "console"

    listen_host: str = Field("127.0.0.1", description="Listen address of the HTTP API; * = all addresses of the machine.")
    listen_port: int = Field(
        0, ge=0, le=65535, description="Port of listen_host; 0 = the service picks a free port and logs it."
    )
    tls_certificate: Path | None = Field(
        None,
        description="Serving certificate file; reloaded when it changes. Required unless listen_host is a loopback address.",
    )
    tls_key: Path | None = Field(None, description="Private key file of tls_certificate.")
    tls_secret: str = Field(
        "",
        description="Secret of lease_namespace in which the service keeps a certificate that it makes for itself; instead of tls_certificate.",
    )
    tls_names: str = Field("", description="DNS names and addresses of the certificate of tls_secret, separated by commas.")
    plain_http: bool = Field(
        False,
        description="true = serve without TLS on any address, where all clients are in a network of their own: tokens can be read on the way.",
    )
    client_certificates: bool = Field(
        True, description="true = clients may authenticate with certificates of the cluster's client CA; requires TLS."
    )
    review_cache_s: float = Field(
        50.0,
        ge=1,
        le=60,
        description="Seconds for which an answer about a token or a right is used again: a revoked right ends within this time.",
    )
    connections: int = Field(1024, ge=1, le=100_000, description="Maximum open connections of clients.")
    watches: int = Field(256, ge=1, le=10_000, description="Maximum concurrent streams of changes (/watch).")

    @model_validator(mode="after")
    def _secrets_travel_encrypted(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together")
        if self.tls_secret and (self.tls_certificate is not None or not self.names):
            raise ValueError("tls_secret needs tls_names, and no tls_certificate")
        if self.tls_certificate is None and not self.tls_secret and not self.plain_http and not _is_loopback(self.listen_host):
            raise ValueError(f"without tls_certificate only a loopback address may be used, not {self.listen_host}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.tls_names.split(",") if name.strip())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
