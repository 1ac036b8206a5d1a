"""The text of DCGM's exporter, by HTTP."""

import http.client
import urllib.request

from hbox_common.errors import Unavailable

#: Seconds without data; the reader's deadline covers the whole call.
_TIMEOUT_S = 5.0
_MOST_BYTES = 8 * 2**20


class Exporter:
    """No proxy is used: the exporter is on this node."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def read(self) -> str:
        """Blocks. Raises Unavailable."""
        try:
            with self._opener.open(self._url, timeout=_TIMEOUT_S) as answer:
                found: bytes = answer.read(_MOST_BYTES + 1)
        except (OSError, ValueError, http.client.HTTPException) as e:
            raise Unavailable(f"DCGM's exporter at {self._url} does not answer: {e}") from e
        if len(found) > _MOST_BYTES:
            raise Unavailable(f"DCGM's exporter at {self._url} answers with more than {_MOST_BYTES >> 20} MiB")
        return found.decode(errors="replace")
