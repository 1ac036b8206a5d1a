"""Jobs of a platform of `hbox up`, read from its HTTP API by the standard library's client.

The broker's client and the message models take ten times as long to import as this takes to list 500 jobs. Items are the same from both.
"""

import json
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from .platform.layout import Running

#: Items of a page: the most that the API accepts.
PAGE = 500
TIMEOUT_S = 5.0


def local_jobs(running: Running) -> list[dict[str, Any]] | None:
    """All jobs, oldest first, with the rights of the platform's kubeconfig; None if the API does not answer, or accepts no token of it."""
    token = _token(Path(running.kubeconfig))
    if not running.console or not token:
        return None
    connection = HTTPConnection(urlsplit(running.console).netloc, timeout=TIMEOUT_S)
    items: list[dict[str, Any]] = []
    cursor = ""
    try:
        while True:
            query = urlencode({"limit": PAGE, **({"continue": cursor} if cursor else {})})
            connection.request("GET", f"/api/v1/jobs?{query}", headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            page = json.loads(answer.read())
            if answer.status != 200:
                return None
            items += page["items"]
            cursor = page["metadata"]["continue"]
            if not cursor:
                return items
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()


def _token(kubeconfig: Path) -> str:
    """The bearer token of a kubeconfig that `hbox up` wrote, which is JSON; "" = there is none, or it is another kubeconfig."""
    try:
        [user] = json.loads(kubeconfig.read_bytes())["users"]
        return str(user["user"].get("token", ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
