"""A fabric in a file."""

import gzip
import io
from pathlib import Path

from hbox_common.errors import InvalidRequest, NotFound
from hbox_topology.core.fabric.build import build
from hbox_topology.core.fabric.graph import Graph
from hbox_topology.core.fabric.ibnetdiscover import parse_ibnetdiscover

#: Of text, unpacked: ten times the largest fabrics.
MAX_BYTES = 512 * 2**20


def graph_of(path: Path, *, former: Graph | None = None) -> Graph:
    """Raises InvalidRequest where the file is no ibnetdiscover text, NotFound where it is not there."""
    text = _text(path)
    try:
        return build(parse_ibnetdiscover(io.StringIO(text)), former=former)
    except InvalidRequest as e:
        raise InvalidRequest(f"{path}: {e.message}", hint=e.hint) from e


def _text(path: Path) -> str:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            read = file.read(MAX_BYTES + 1)
    except FileNotFoundError as e:
        raise NotFound(f"{path}: there is no such file") from e
    except (OSError, EOFError) as e:
        raise InvalidRequest(f"{path} cannot be read: {e}") from e
    if len(read) > MAX_BYTES:
        raise InvalidRequest(f"{path} has more than {MAX_BYTES >> 20} MiB of text")
    return read.decode("utf-8", errors="replace")
