"""The text of DCGM's exporter, by HTTP."""

import http.client
import socket
import threading
from urllib.parse import urlsplit

from hbox_common.errors import Unavailable

#: Seconds without data, and of the whole call: less than the reader's deadline.
_TIMEOUT_S, _WHOLE_S = 5.0, 8.0
_MOST_BYTES = 8 * 2**20


class Exporter:
    """No proxy is used and no redirect followed: the exporter is on this node."""

    def __init__(self, url: str) -> None:
        self._url = url

    def read(self) -> str:
        """Blocks for _WHOLE_S at most. Raises Unavailable, also for a part of the text: cards without rows would count as missing."""
        try:
            return self._read().decode(errors="replace")
        except (OSError, ValueError, http.client.HTTPException) as e:
            raise Unavailable(f"DCGM's exporter at {self._url} does not answer: {e}") from e

    def _read(self) -> bytes:
        url = urlsplit(self._url)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=_TIMEOUT_S)
        late = threading.Event()

        def end() -> None:
            late.set()
            if connected is not None:
                connected.shutdown(socket.SHUT_RDWR)

        connected: socket.socket | None = None
        closing: http.client.HTTPResponse | None = None
        timer = threading.Timer(_WHOLE_S, end)
        timer.daemon = True
        try:
            timer.start()
            connection.connect()
            connected = connection.sock
            path = (url.path or "/") + (f"?{url.query}" if url.query else "")
            connection.request("GET", path, headers={"Accept-Encoding": "identity"})
            answer = connection.getresponse()
            closing = answer
            if answer.status != http.client.OK:
                raise OSError(f"status {answer.status}")
            if answer.getheader("Content-Encoding", "identity") != "identity":
                raise OSError("it is compressed, which was not requested")
            found = answer.read(_MOST_BYTES + 1)
            if len(found) > _MOST_BYTES:
                raise OSError(f"more than {_MOST_BYTES >> 20} MiB")
            if late.is_set() or answer.length:
                raise OSError("the text is not complete")
            return found
        except (OSError, ValueError, http.client.HTTPException) as e:
            raise (OSError(f"not complete within {_WHOLE_S:g} s") if late.is_set() else e) from e
        finally:
            timer.cancel()
            if closing is not None:
                closing.close()
            connection.close()
            if connected is not None:
                connected.close()
