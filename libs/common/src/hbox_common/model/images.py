"""Container images: which nodes have which, and what pods run."""

from dataclasses import dataclass

from .ids import NodeName

_HUB = "docker.io"


@dataclass(frozen=True, slots=True)
class HeldImage:
    """An image, and nodes that have it. `names`: all by which these know it, as `image_name` writes them."""

    names: tuple[str, ...]
    size_bytes: int
    nodes: tuple[NodeName, ...]


def image_name(reference: str) -> str:
    """The whole name of an image, as container runtimes complete it: `nginx` is `docker.io/library/nginx:latest`."""
    first, slash, rest = reference.partition("/")
    if not slash:
        reference = f"{_HUB}/library/{reference}"
    elif not any(sign in first for sign in ".:") and first != "localhost":
        reference = f"{_HUB}/{reference}"
    elif first == _HUB and "/" not in rest:
        reference = f"{_HUB}/library/{rest}"
    tagged = "@" in reference or ":" in reference.rpartition("/")[2]
    return reference if tagged else f"{reference}:latest"
