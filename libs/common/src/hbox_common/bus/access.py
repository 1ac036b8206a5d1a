"""Client credentials for the broker, and the authorities that verify its certificate."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hbox_common.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Access:
    """Paths of files that are read at each connection; None: not used. `seed`: the user's nkey. `token`: a token in place of a seed, for brokers with an
    authorization callout. `ca`: the authority of the broker's certificate; None: the machine's own authorities. `certificate` and `key`: the client's
    certificate, both or none."""

    seed: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None

    def options(self) -> dict[str, Any]:
        """As nats-py's `connect` takes them. Raises InvalidRequest for files that cannot be used."""
        found: dict[str, Any] = {}
        if self.seed is not None and self.token is not None:
            raise InvalidRequest("the broker takes a seed or a token", hint="set one of HBOX_NATS_SEED and HBOX_NATS_TOKEN")
        if self.token is not None:
            self.read_token()
            found["token"] = self.read_token
        if self.seed is not None:
            from hbox_common.brokerkeys import read_seed  # noqa: PLC0415  40 ms, which an open broker does not need

            read_seed(self.seed)
            found["nkeys_seed"] = str(self.seed)
        if (context := self.context()) is not None:
            found["tls"] = context
        return found

    def read_token(self) -> str:
        """Its present content. Raises InvalidRequest."""
        assert self.token is not None
        try:
            return self.token.read_text().strip()
        except (OSError, UnicodeDecodeError) as e:
            raise InvalidRequest(f"the token {self.token} for the broker cannot be read: {e}") from e

    def context(self) -> ssl.SSLContext | None:
        """Built from the present content of the files; None if no certificate is configured. Raises InvalidRequest for files that cannot be used."""
        if not (self.ca or self.certificate or self.key):
            return None
        if (self.certificate is None) != (self.key is None):
            raise InvalidRequest("a client certificate needs its key, and a key its certificate")
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as e:
            raise InvalidRequest(f"the certificates for the broker cannot be used: {e}") from e
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context
