"""Jobs by the names that users type. Pure."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from hbox_common.errors import NotFound


def find(items: Sequence[dict[str, Any]], job: str) -> dict[str, Any]:
    """The job meant, by its own name or one of its pods'. Raises NotFound, with the nearest names, also when several have the name."""
    matches = [item for item in items if job in (item["id"], item["name"]) or item["name"].partition("/")[2] == job]
    matches = matches or [item for item in items if job in _short(item["name"])]
    matches = matches or [item for item in items if _has_pod(item, job)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise NotFound(
            f"{len(matches)} jobs are called {job}", hint="name one of " + ", ".join(item["name"] for item in matches[:5])
        )
    near = difflib.get_close_matches(job, [n for item in items for n in (item["name"], item["name"].partition("/")[2])], 3)
    raise NotFound(
        f"there is no job {job} with a live pod",
        hint=f"did you mean {' or '.join(near)}?" if near else "`hbox jobs` lists them",
    )


def _has_pod(item: Mapping[str, Any], pod: str) -> bool:
    namespace = item["name"].partition("/")[0]
    return any(pod in (name, f"{namespace}/{name}") for name in (*item["placed"], *item["waiting"]))


def _short(name: str) -> tuple[str, ...]:
    """A gang by owner (namespace/kind/name, with /part if the owner has several) without its kind; nothing of other jobs."""
    namespace, *rest = name.split("/")
    own = "/".join(rest[1:])
    return (own, f"{namespace}/{own}") if own else ()
